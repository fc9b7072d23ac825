"""`python -m tests.coordinator.generated_pages`: write docs/settings.md, docs/metrics.md and docs/codes from the code.

Owns: the pages' form. Does not own: what they say (the settings' descriptions, the metrics' texts, `error_codes`).
Invariants: every setting of every class, every metric of the registry and every error code has its place; tests keep
the pages in step.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from annotated_types import Ge, Gt, Le
from prometheus_client import ProcessCollector
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from rootline.adapters.kafka.control_records import SKIPPED
from rootline.adapters.redis_metrics import RedisMetrics
from rootline.adapters.settings import EmbeddedLogSettings, KafkaSettings, RedisSettings, S3Settings, StoreSettings
from rootline.catalog.rest.catalog import CatalogMetrics
from rootline.catalog.rest.http_settings import CatalogSettings, HttpSettings
from rootline.cli.service_process import PROCESS_METRICS, describe_process
from rootline.coordinator.runtime.observing import TABLES_MAX, CoordinatorMetrics
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.error_codes import CATEGORIES, CODES, ErrorCode
from rootline.spark.stream_metrics import BATCH, StreamMetrics
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
| `ROOTLINE_SECRETS_DIR` | A folder whose files are settings, each named in small letters. |

A log on Kafka may name several servers, `kafka://host:port,host:port`; [operations.md](operations.md) tells how to run
it.
"""

_METRICS_HEADER: Final = f"""# Metrics

What coordinators and workers show under `/metrics`: names and labels are a contract. This page is generated from the
registry (`python -m tests.coordinator.generated_pages`); a test keeps it in step.

Those that begin with `rootline_worker_` are the worker's. `rootline worker` shows them alone, `rootline up` beside the
coordinator's; in a program that hosts an embedded lake both are in one registry. `kind` is the name of a kind of
maintenance, as `rootline maintenance run` takes it.

`rootline_redis_…`, `rootline_head_hints_total`, `rootline_worker_shared_tasks_total` and `rootline_worker_dead_tasks`
are there only where a Redis is named.

Those of exports and of the catalog (`rootline_export_…`, `rootline_catalog_…`) are also all that
`rootline catalog serve` shows, beside what follows.

`rootline_spark_…` are all that a Spark driver shows, where `rootline.spark.serve_metrics` was called
([spark.md](spark.md#watching-a-stream)). `query` is the name of a streaming query, its id if it has no name, or
`{BATCH}` for writes outside streams.

Every service that serves `/metrics` also shows `rootline_build_info` and, on Linux, what the kernel says of it:
{", ".join(f"`{name}`" for name in PROCESS_METRICS)}.
A program that hosts an embedded lake has a registry of its own, without these.

The label `table` is given to at most {TABLES_MAX} tables, and only to tables that exist; the rest share `_other` in
counters and have no gauges.

A verdict is counted once, when the log has acknowledged it, whatever path its intent took. `rootline_verdicts_total`
has those that this process decided; sums over all coordinators count no intent twice. A verdict that was on record
before this process came to it (in a root, or among the rejections held for the next coordinator) is counted in
`rootline_verdicts_told_again_total` instead. It may be its first telling: the coordinator that decided it may have
ended just before. One case cannot be told apart from the first time and counts as such: on an embedded log, a record
that cannot be decoded and is read again after a crash. The log lines follow the same rule (`action=verdict`, with
`told_again`); [operations.md](operations.md) says how many there are. What a killed process counted after its last
scrape is lost, its lines are not: only the line that counts those of its last second may be.

`topic` is the identity of the log, `embedded/<uuid>` for an embedded one. Times are in
seconds.

| metric | type | labels | what it tells |
|---|---|---|---|
"""


_CODES_HEADER: Final = """# Error codes

Every error and every rejection names one of these codes. A code keeps its meaning for ever. Each has a page: the cause,
what to do, what not to do; `rootline explain CODE` prints the same. These pages are generated from the code
(`python -m tests.coordinator.generated_pages`); a test keeps them in step.
"""


def settings_page() -> str:
    """docs/settings.md."""
    sections: list[tuple[str, str, type[BaseModel]]] = [
        ("The coordinator", "ROOTLINE_COORDINATOR__", CoordinatorSettings),
        ("The worker", "ROOTLINE_WORKER__", WorkerSettings),
        ("The catalog for other engines", "ROOTLINE_CATALOG__", CatalogSettings),
        ("Every HTTP server", "ROOTLINE_HTTP__", HttpSettings),
        ("An S3 store", "ROOTLINE_S3__", S3Settings),
        ("An embedded log", "ROOTLINE_EMBEDDED_LOG__", EmbeddedLogSettings),
        ("A log on Kafka", "ROOTLINE_KAFKA__", KafkaSettings),
        ("Redis or Valkey", "ROOTLINE_REDIS__", RedisSettings),
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
    StreamMetrics(registry)
    RedisMetrics().show_in(registry)
    registry.register(SKIPPED)
    describe_process(registry)
    for collector in registry._collector_to_names:
        described: Any = collector
        if isinstance(collector, ProcessCollector):
            continue  # which of them there are depends on the system
        [metric] = described.describe()
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        yield name, metric.type, tuple(described._labelnames), metric.documentation


def code_pages() -> dict[str, str]:
    """docs/codes: name of a file → what is in it."""
    by_category: dict[str, list[ErrorCode]] = {}
    for code in CODES.values():
        by_category.setdefault(code.category, []).append(code)
    index = _CODES_HEADER
    for category, said in CATEGORIES.items():
        known = sorted(by_category.get(category, ()), key=lambda code: code.code)
        if known:
            index += f"\n## {category}: {said.says}\n\n| code | cause |\n|---|---|\n"
            index += "".join(f"| [`{each.code}`]({each.code}.md) | {each.meaning} |\n" for each in known)
    pages = {f"{code.code}.md": code.page() for code in CODES.values()}
    return {"README.md": index, **pages}


def _write_codes() -> None:
    folder = DOCS / "codes"
    folder.mkdir(exist_ok=True)
    pages = code_pages()
    for old in folder.iterdir():
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    _write_codes()
    (DOCS / "settings.md").write_text(settings_page())
    (DOCS / "metrics.md").write_text(metrics_page())
