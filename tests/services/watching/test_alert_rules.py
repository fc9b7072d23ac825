"""Every alert is tested, is explained in the runbook, and watches metrics that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from rootline.cli.service_process import PROCESS_METRICS
from rootline.schemas.error_codes import CODES
from tests.coordinator.generated_pages import DOCS, metrics
from tests.services.watching.deployed_rules import DEPLOY, RULES, RULES_TEST, alerts, metrics_in, shortened
from tests.services.watching.prometheus_server import promtool

SCRAPED = {"up", *PROCESS_METRICS}
"""What no registry of ours says on every system."""


def known_metrics() -> set[str]:
    """As they are scraped."""
    names = set(SCRAPED)
    for name, kind, _, _ in metrics():
        names |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"} if kind == "histogram" else {name}
    return names


def test_every_alert_watches_metrics_that_exist() -> None:
    unknown = {alert.name: metrics_in(alert.expression) - known_metrics() for alert in alerts()}
    assert {name: missing for name, missing in unknown.items() if missing} == {}
    assert all(metrics_in(alert.expression) for alert in alerts())


def test_every_alert_links_to_its_section_of_the_runbook_and_every_section_has_its_alert() -> None:
    sections = re.findall(r"^### (\w+)$", (DOCS / "runbook.md").read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(alert.name for alert in alerts()), "one section for each alert"
    assert {alert.name: alert.runbook for alert in alerts()} == {
        name: f"docs/runbook.md#{name.lower()}" for name in sections
    }


def test_every_section_of_the_runbook_says_what_to_do() -> None:
    text = (DOCS / "runbook.md").read_text()
    for section in re.split(r"^###? ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        if title.startswith("Rootline"):
            assert re.search(r"^\* ", body, re.MULTILINE), f"{title} names no step"


def test_links_inside_the_runbook_lead_to_sections_that_exist() -> None:
    text = (DOCS / "runbook.md").read_text()
    anchors = {line.lower() for line in re.findall(r"^### (\w+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\(#([^)]+)\)", text)) - anchors == set()


def test_codes_that_alerts_name_exist() -> None:
    named = {
        code
        for alert in alerts()
        for code in re.findall(r'code!?="([a-z-]+)"', alert.expression)
        if not code.startswith("5")
    }
    assert named - set(CODES) == set()
    assert named


def test_every_alert_has_a_severity_that_the_runbook_explains() -> None:
    assert {alert.severity for alert in alerts()} == {"page", "ticket"}


def test_every_alert_has_a_test_that_sees_it_fire_and_one_that_sees_it_not() -> None:
    tests = yaml.safe_load(RULES_TEST.read_text())["tests"]
    assert [case["alertname"] for test in tests for case in test["alert_rule_test"]] == [
        test["name"] for test in tests for _ in test["alert_rule_test"]
    ]
    for test in tests:
        first, *later = [bool(case["exp_alerts"]) for case in test["alert_rule_test"]]
        assert (first, set(later)) == (False, {True}), test["name"]
    assert {test["name"] for test in tests} == {alert.name for alert in alerts()}


def test_every_alert_is_of_one_lake() -> None:
    for alert in alerts():
        joined = re.findall(r"\b(?:sum|max|min|count|avg)\b(?! by \(lake[,)])(?=[ (])", alert.expression)
        assert joined == [], f"{alert.name}: {joined} over all lakes"
        assert alert.summary.startswith("{{ with $labels.lake }}"), alert.name


@pytest.mark.services
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    done: subprocess.CompletedProcess[str] = promtool("test", "rules", RULES_TEST)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.services
def test_rules_and_configuration_are_well_formed_and_so_is_the_shortened_copy(tmp_path: Path) -> None:
    copy = tmp_path / "rules.yml"
    copy.write_text(shortened(10))
    for words in (("rules", RULES), ("rules", copy), ("config", DEPLOY / "prometheus" / "prometheus.yml")):
        done = promtool("check", *words)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_shortened_copy_differs_in_lengths_of_time_only() -> None:
    def without_times(text: str) -> str:
        return re.sub(r"\d+[smhd]+\b|(?<=> )\d+", "T", text)

    copied = {rule["alert"]: rule for group in yaml.safe_load(shortened(10))["groups"] for rule in group["rules"]}
    for alert in alerts():
        assert without_times(copied[alert.name]["expr"]) == without_times(alert.expression)
    for name, limit in (("RootlineRootLong", "3000"), ("RootlineLagGrows", "> 1000"), ("RootlineStoreFails", "> 0")):
        assert limit in copied[name]["expr"], "numbers of things stay"
    assert copied["RootlineIntentsWait"]["expr"].endswith("> 1")
