"""Pages that need no service: run in a lake of their own, as they are written."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

import rootline
from tests.documents.blocks import blocks_of
from tests.documents.page_shell import PageShell, free_port, page_shell
from tests.documents.run_where import left_out
from tests.engines.duckdb_reader import open_duckdb


def run_page(shell: PageShell, page: str) -> list[str]:
    """Run the page; what each block printed."""
    return [shell.run(block) for block in blocks_of(page, "python", "console", "shell") if not left_out(block)]


def test_the_quickstart_for_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with page_shell(tmp_path, monkeypatch) as shell:
        written, _, repeated, read, refused, _, looked = run_page(shell, "docs/quickstarts/python.md")
    assert written == "1\n"
    assert repeated == "True\nFalse\n"
    assert read.splitlines()[-2:] == ["4", "3"]
    assert re.match(r"rows-invalid - .*id", refused)
    assert "demo.trips" in looked
    assert "Oslo" in looked


def test_the_ten_tasks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with page_shell(tmp_path, monkeypatch) as shell:
        outputs = run_page(shell, "docs/quickstarts/ten-tasks.md")
    assert outputs == [
        "",
        "",
        "3\n",
        "[{'id': 2, 'price': 20.0}]\n",
        "RowCounts(inserted=1, updated=1, deleted=0)\n",
        "1\n",
        "1\n",
        "3 3\n3\n",
        "['id', 'town', 'price', 'at', 'tags', 'note']\n",
        "",
    ]


def test_the_quickstart_for_operators_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with page_shell(tmp_path, monkeypatch, {"8080": free_port()}) as shell:
        shell.exit_codes["trace"] = 1  # the page says so
        _, seen, table, paused, rejected, checked = run_page(shell, "docs/quickstarts/operator.md")
    assert "rootline_verdicts_total" in seen
    assert re.search(r"demo\.trips.*idle", table)
    assert re.search(r"demo\.trips.*paused", paused)
    assert "rejected" in rejected
    assert rejected.count("file-not-live") >= 2
    assert checked


def test_the_catalog_of_the_pages_is_read_by_the_engines_that_they_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {"8181": free_port(), "8080": free_port()}
    address = f"http://127.0.0.1:{ports['8181']}"
    monkeypatch.setenv("ROOTLINE_CATALOG__HTTP_PORT", ports["8181"])
    readme = blocks_of("README.md", "python", "shell", "sql")
    page = blocks_of("docs/other-engines.md", "console", "python", "sql")
    with page_shell(tmp_path, monkeypatch, ports) as shell:
        shell.run(readme[0])
        shell.namespace.pop("lake").close()  # type: ignore[attr-defined]
        monkeypatch.setenv("ROOTLINE_CATALOG__HTTP_PORT", ports["8181"])
        exported = shell.run(page[0])
        assert exported.strip().endswith(".metadata.json")
        shell.run(page[1])
        assert "catalog" in shell.namespace
        with open_duckdb() as duckdb:
            [ours] = [block for block in readme if block.language == "sql"]
            for text in (ours.text, page[2].text):
                for statement in text.replace("http://127.0.0.1:8181", address).split(";"):
                    words = statement.strip().removeprefix("-- in DuckDB").strip()
                    if words and not words.startswith(("INSTALL", "LOAD")):  # its extensions come as packages here
                        assert duckdb.query(words) is not None
                duckdb.query("DETACH lake")
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['8080']}/v1/config?warehouse=v3", timeout=30) as answer:
            assert json.load(answer)["endpoints"]


def test_the_table_of_the_page_about_foreign_clients_is_made_by_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [create] = blocks_of("docs/foreign-clients.md", "shell")
    with page_shell(tmp_path, monkeypatch) as shell:
        monkeypatch.setenv("ROOTLINE_WAREHOUSE", "./lake")
        (tmp_path / "trips.json").write_text('{"id": "long", "carrier": "string", "day": "date"}')
        shell.run(create)
        with rootline.connect("./lake", coordinator="elsewhere") as lake:
            [spec] = lake.table("demo.trips").definition().partition_specs
    assert list(spec.expr_ids) == [2, 4]
