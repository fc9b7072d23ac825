"""`python -m tests.coordinator.generated_pages`: write docs/settings.md and docs/metrics.md from the code.

Owns: the pages' form. Does not own: what they say (the settings' descriptions, the metrics' texts).
Invariants: every setting of every class and every metric of the registry is on its page; tests keep them in step.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from annotated_types import Ge, Gt, Le
from prometheus_client import ProcessCollector
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.open import StoreSettings
from rootline.adapters.s3.settings import S3Settings
from rootline.adapters.sqlite.settings import EmbeddedLogSettings
from rootline.catalog.rest.metrics import CatalogMetrics
from rootline.catalog.rest.settings import CatalogSettings
from rootline.cli.process_metrics import PROCESS_METRICS, describe_process
from rootline.coordinator.runtime.metrics import TABLES_MAX, CoordinatorMetrics
from rootline.coordinator.settings import CoordinatorSettings
from rootline.workers.metrics import WorkerMetrics
from rootline.workers.settings import WorkerSettings

DOCS: Final = Path(__file__).parents[2] / "docs"

_ABSOLUTE_READS: Final = StoreSettings.model_fields["absolute_reads"].description

_SETTINGS_HEADER: Final = f"""# Settings

Environment variables, read when a process starts. What belongs to a table is a table property instead. This page is
generated from the code (`python -m tests.coordinator.generated_pages`); a test keeps it in step. `rootline config
print` shows the values in force, with secrets masked.

## Where the lake is

| variable | what it says |
|---|---|
| `ROOTLINE_WAREHOUSE` | The warehouse: a path, `file:///dir`, or `s3://bucket/prefix`. `--warehouse` says the same. |
| `ROOTLINE_LOG` | The intent log: `kafka://host:port`, `sqlite:///dir` or a path; none: the warehouse's own. |
| `ROOTLINE_ABSOLUTE_READS` | {_ABSOLUTE_READS} |
| `ROOTLINE_SECRETS_DIR` | A folder whose files are settings of S3, Kafka or the catalog, named in small letters. |

A log on Kafka may name several servers, `kafka://host:port,host:port`; [operations.md](operations.md) tells how to run
it.
"""

_METRICS_HEADER: Final = f"""# Metrics

What coordinators and workers show under `/metrics`: names and labels are a contract. This page is generated from the
registry (`python -m tests.coordinator.generated_pages`); a test keeps it in step.

Those that begin with `rootline_worker_` are the worker's. `rootline worker` shows them alone, `rootline up` beside the
coordinator's; in a program that hosts an embedded lake both are in one registry. `kind` is the name of a kind of
maintenance, as `rootline maintenance run` takes it.

Those of exports and of the catalog (`rootline_export_…`, `rootline_catalog_…`) are also all that
`rootline catalog serve` shows, beside what follows.

Every process that serves `/metrics` also shows `rootline_build_info` and, on Linux, what the kernel says of it:
{", ".join(f"`{name}`" for name in PROCESS_METRICS)}.
A program that hosts an embedded lake has a registry of its own, without these.

The label `table` is given to at most {TABLES_MAX} tables, and only to tables that exist; the rest share `_other` in
counters and have no gauges.

A verdict is counted once, when the log has acknowledged it, whatever path its intent took. `rootline_verdicts_total`
has those that this process decided; sums over all coordinators count no intent twice. A verdict that was on record
before this process came to it (in a root, or among the rejections held for the next coordinator) is counted in
`rootline_verdicts_told_again_total` instead. It may be its first telling: the coordinator that decided it may have
ended just before. One case cannot be told apart from the first time and counts as such: a record that cannot be decoded
and is read again after a crash. The log lines follow the same rule (`action=verdict`, with `told_again`);
[operations.md](operations.md) says how many there are.

`topic` is the identity of the log, `embedded/<uuid>` for an embedded one. Times are in
seconds.

| metric | type | labels | what it tells |
|---|---|---|---|
"""


def settings_page() -> str:
    """docs/settings.md."""
    sections: list[tuple[str, str, type[BaseModel]]] = [
        ("The coordinator", "ROOTLINE_COORDINATOR__", CoordinatorSettings),
        ("The worker", "ROOTLINE_WORKER__", WorkerSettings),
        ("The catalog for other engines", "ROOTLINE_CATALOG__", CatalogSettings),
        ("An S3 store", "ROOTLINE_S3__", S3Settings),
        ("An embedded log", "ROOTLINE_EMBEDDED_LOG__", EmbeddedLogSettings),
        ("A log on Kafka", "ROOTLINE_KAFKA__", KafkaSettings),
    ]
    return _SETTINGS_HEADER + "".join(
        f"\n## {title}\n\n| variable | default | bounds | what it says |\n|---|---|---|---|\n"
        + "".join(_rows(prefix, kind))
        for title, prefix, kind in sections
    )


def _rows(prefix: str, kind: type[BaseModel]) -> Iterator[str]:
    for name, setting in kind.model_fields.items():
        default = _shown(setting.default)
        yield f"| `{prefix}{name.upper()}` | {default} | {_bounds(setting)} | {setting.description} |\n"


def _shown(default: Any) -> str:
    assert not isinstance(default, SecretStr), "a secret has no default"
    return "" if default in (None, "") else f"`{default}`"


def _bounds(setting: FieldInfo) -> str:
    words = []
    for bound in setting.metadata:
        match bound:
            case Gt():
                words.append(f"> {bound.gt}")
            case Ge():
                words.append(f"≥ {bound.ge}")
            case Le():
                words.append(f"≤ {bound.le}")
    return ", ".join(words)


def metrics_page() -> str:
    """docs/metrics.md."""
    rows = []
    for name, kind, labels, text in metrics():
        rows.append(f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |\n")
    return _METRICS_HEADER + "".join(sorted(rows))


def metrics() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """(name as it is scraped, type, labels, text) of every metric."""
    registry = CatalogMetrics(CoordinatorMetrics().registry).registry
    WorkerMetrics(registry, ())
    describe_process(registry)
    for collector in registry._collector_to_names:
        described: Any = collector
        if isinstance(collector, ProcessCollector):
            continue  # which of them there are depends on the system
        [metric] = described.describe()
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        yield name, metric.type, tuple(described._labelnames), metric.documentation


if __name__ == "__main__":
    (DOCS / "settings.md").write_text(settings_page())
    (DOCS / "metrics.md").write_text(metrics_page())
