"""The deployed configuration of Prometheus with other targets and times, so that what is shown is what is deployed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tests.services.watching.deployed_rules import DEPLOY


def scraping(targets: Mapping[str, Sequence[str]], folder: Path, *, rules: str | None = None) -> Path:
    """The configuration's file in `folder`. `targets`: job → URLs; `rules`: other ones than those that are deployed."""
    loaded = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    loaded["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for job in loaded["scrape_configs"]:
        named = [url.removeprefix("http://") for url in targets[job["job_name"]]]
        [deployed] = job["static_configs"]
        job["static_configs"] = [{**deployed, "targets": named}]
    (folder / "rules.yml").write_text(rules or (DEPLOY / "prometheus" / "rules.yml").read_text())
    made = folder / "prometheus.yml"
    made.write_text(yaml.safe_dump(loaded))
    return made
