"""The dashboards are well-formed, show metrics that exist, and are where Grafana is told to look."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.services.watching.dashboards import dashboards, queries
from tests.services.watching.deployed_rules import DEPLOY, metrics_in
from tests.services.watching.test_alert_rules import known_metrics

BOARDS = dashboards()
KINDS = {"timeseries", "stat", "table"}
WIDTH = 24


def test_there_is_one_for_each_of_what_is_watched() -> None:
    assert set(BOARDS) == {"overview.json", "table.json", "workers.json", "catalog.json", "spark.json"}
    assert len({board["uid"] for board in BOARDS.values()}) == len({board["title"] for board in BOARDS.values()}) == 5


def test_every_query_names_metrics_that_exist_and_variables_that_are_defined() -> None:
    for query in queries():
        where = (query.dashboard, query.panel, query.expression)
        assert metrics_in(query.expression), where
        assert metrics_in(query.expression) - known_metrics() == set(), where
        defined = {variable["name"] for variable in BOARDS[query.dashboard]["templating"]["list"]}
        used = set(re.findall(r"\$(\w+)", query.expression)) - {"__rate_interval"}
        assert used <= defined, where


def test_every_panel_shows_one_lake_and_every_single_number_has_limits() -> None:
    for query in queries():
        selectors = re.findall(r"\b(?:(?:rootline|process)_[a-z_]+|up)\b(\{[^}]*\})?", query.expression)
        assert all('lake="$lake"' in selector for selector in selectors), (query.panel, query.expression)
    for board in BOARDS.values():
        assert "lake" in {variable["name"] for variable in board["templating"]["list"]}
        for panel in board["panels"]:
            if panel["type"] == "stat":
                assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"], panel["title"]


def test_every_metric_of_ours_is_on_a_dashboard() -> None:
    shown = {name for query in queries() for name in metrics_in(query.expression)}
    ours = {re.sub(r"_(bucket|count|sum)$", "", name) for name in known_metrics() if name.startswith("rootline_")}
    not_shown = {name for name in ours if not any(one.startswith(name) for one in shown)}
    assert not_shown == {"rootline_clocks_apart_total"}, "it has an alert; a picture of it would be a flat line"


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_a_dashboard_has_the_fields_that_grafana_reads(name: str) -> None:
    board = BOARDS[name]
    assert isinstance(board["uid"], str)
    assert re.fullmatch(r"[a-z-]{1,40}", board["uid"])
    assert isinstance(board["schemaVersion"], int)
    assert "rootline" in board["tags"]
    assert set(board["time"]) == {"from", "to"}
    assert {variable["type"] for variable in board["templating"]["list"]} <= {"datasource", "query"}
    ids = [panel["id"] for panel in board["panels"]]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    for panel in board["panels"]:
        assert panel["type"] in KINDS, panel["title"]
        assert isinstance(panel["fieldConfig"]["defaults"]["unit"], str)
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters)), f"{panel['title']} names a query twice"
        assert letters, f"{panel['title']} has no query"


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_panels_lie_side_by_side_and_none_covers_another(name: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in BOARDS[name]["panels"]:
        at: dict[str, Any] = panel["gridPos"]
        assert at["x"] + at["w"] <= WIDTH, panel["title"]
        for place in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert place not in taken, f"{panel['title']} covers {taken.get(place)}"
            taken[place] = panel["title"]


def test_grafana_is_told_of_the_data_source_and_of_the_folder() -> None:
    folder = DEPLOY / "grafana" / "provisioning"
    [source] = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    [provider] = yaml.safe_load((folder / "dashboards" / "rootline.yml").read_text())["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"].startswith("/")
