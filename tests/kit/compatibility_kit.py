"""Iceberg's own compatibility kit for REST catalogs, run against a catalog that is served.

Owns: fetching the kit once through Maven, running it, reading its report. Does not own: the catalog, which tests must
pass (`expected.toml`).
Invariants: the kit runs in a Java of its own, and its client gets its settings from the caller only. A test that the
report does not name is an error of the run.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.services.cached_software import cached, carry_out, maven
from tests.services.java_runtime import java_runtime

_POM: Final = Path(__file__).with_name("pom.xml")
_NAME: Final = "Iceberg's compatibility kit"
_PACKAGE: Final = "org.apache.iceberg.rest"
CATALOG: Final = f"{_PACKAGE}.RESTCompatibilityKitCatalogTests"
VIEWS: Final = f"{_PACKAGE}.RESTCompatibilityKitViewCatalogTests"
_TIMEOUT_S: Final = 900.0


class Outcome(StrEnum):
    """The outcome of one test of the kit."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class KitTest:
    """A test of the kit: `name` is its method, with the number of a parameterized case in brackets."""

    kind: str
    name: str
    outcome: Outcome
    reason: str = ""


def run_kit(
    settings: Mapping[str, str], folder: Path, only: Sequence[str] = (), classes: Sequence[str] = (CATALOG, VIEWS)
) -> list[KitTest]:
    """Run the kit with a client of these catalog properties; its reports are written into `folder`.

    `only`: methods in the form `CLASS#METHOD`. Without it, all tests of `classes`.
    """
    java = java_runtime(_NAME)
    reports = folder / "reports"
    selected = [f"--select-method={method}" for method in only] or [f"--select-class={name}" for name in classes]
    command = [
        java.command,
        "-Xmx1g",
        "-XX:+EnableDynamicAgentLoading",
        "-Drck.local=false",
        "-Drck.purge-test-namespaces=true",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        f"{kit_jars()}/*",
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--disable-banner",
        "--details=none",
        f"--reports-dir={reports}",
        *selected,
    ]
    variables = {
        f"CATALOG_{name.replace('-', '__').replace('.', '_').upper()}": text for name, text in settings.items()
    }
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("CATALOG_", "AWS_"))}
    with (folder / "kit.log").open("w") as log:
        environment = outside | variables | {"AWS_REGION": "us-east-1"}
        subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=_TIMEOUT_S, check=False)
    found = [test for report in sorted(reports.glob("*.xml")) for test in _tests_of(report)]
    if not found:
        raise AssertionError(f"the kit ran no test: {(folder / 'kit.log').read_text()[-2_000:]}")
    return found


def kit_jars() -> Path:
    """The folder of the kit's jars, among them Iceberg's Java client and a compiler that needs no JDK."""
    with cached("iceberg-kit", hashlib.sha256(_POM.read_bytes()).hexdigest()[:12], _fetch) as jars:
        return jars


def _fetch(folder: Path) -> Path:
    (folder / "pom.xml").write_text(_POM.read_text())
    what = "fetching its jars, once (a minute or two)"
    carry_out(_NAME, what, [*maven(_NAME), "-f", "pom.xml", "package"], folder, timeout_s=900)
    return folder / "jars"


def _tests_of(report: Path) -> list[KitTest]:
    found = []
    for case in ET.parse(report).getroot().iter("testcase"):
        failed = next((case.find(word) for word in ("failure", "error") if case.find(word) is not None), None)
        skipped = case.find("skipped")
        outcome = Outcome.FAILED if failed is not None else Outcome.PASSED if skipped is None else Outcome.SKIPPED
        reason = "" if failed is None else (failed.get("message") or failed.text or "")
        found.append(KitTest(case.get("classname", "").rpartition(".")[2], case.get("name", ""), outcome, reason))
    return found
