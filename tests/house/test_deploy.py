"""What deploy/ and docker-compose.yml name exists: settings, commands, files, extras."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from rootline.adapters.settings import KafkaSettings, RedisSettings, S3Settings
from rootline.catalog.rest.http_settings import CatalogSettings, HttpSettings
from rootline.cli.app import command_tree
from rootline.coordinator.settings import CoordinatorSettings
from rootline.workers.settings import WorkerSettings

KNOWN_SETTINGS = {
    "ROOTLINE_WAREHOUSE",
    "ROOTLINE_LOG",
    "ROOTLINE_SECRETS_DIR",
    *(f"ROOTLINE_KAFKA__{name.upper()}" for name in KafkaSettings.model_fields),
    *(f"ROOTLINE_REDIS__{name.upper()}" for name in RedisSettings.model_fields),
    *(f"ROOTLINE_S3__{name.upper()}" for name in S3Settings.model_fields),
    *(f"ROOTLINE_COORDINATOR__{name.upper()}" for name in CoordinatorSettings.model_fields),
    *(f"ROOTLINE_WORKER__{name.upper()}" for name in WorkerSettings.model_fields),
    *(f"ROOTLINE_CATALOG__{name.upper()}" for name in CatalogSettings.model_fields),
    *(f"ROOTLINE_HTTP__{name.upper()}" for name in HttpSettings.model_fields),
}


def compose(house: Path) -> dict[str, Any]:
    loaded = yaml.safe_load((house / "docker-compose.yml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_the_compose_file_is_what_the_specification_allows(house: Path) -> None:
    assert len(_specified(compose(house))) == len(compose(house)["services"])


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (("services", "kafka", "hostnme"), "kafka", "services.kafka: extension key `hostnme`"),
        (("services", "kafka", "profiles"), "stack", "services.kafka.profiles: invalid type"),
        (("services", "kafka", "healthcheck", "interval"), "soon", "services.kafka.healthcheck.interval: duration"),
        (("services", "kafka", "ports"), ["9092:nine"], "services.kafka.ports[0]: error parsing port"),
        (("services", "topics", "depends_on", "kafka", "condition"), "healthy", "unknown variant `healthy`"),
        (("secrets", "rootline_http__token", "fil"), "token", "secrets: extension key `fil`"),
    ],
)
def test_a_mistake_in_the_compose_file_is_named(house: Path, place: tuple[str, ...], value: object, named: str) -> None:
    changed = compose(house)
    within = changed
    for name in place[:-1]:
        within = within[name]
    within[place[-1]] = value
    with pytest.raises(ValueError, match=re.escape(named)):
        _specified(changed)


def _specified(loaded: dict[str, Any]) -> list[str]:
    """The names of the services. Raises `ValueError`: the specification knows no such file."""
    try:
        from compose_spec import PyCompose
    except ImportError:
        pytest.fail("compose-spec is not installed: run `make setup`", pytrace=False)
    return list(PyCompose.from_yaml(yaml.safe_dump(loaded)).service_names())


def test_every_setting_that_is_named_exists(house: Path) -> None:
    pages = [house / "docker-compose.yml", house / "README.md", house / "docs" / "operations.md"]
    pages += sorted(path for path in (house / "deploy").rglob("*") if path.is_file())
    named = {name for page in pages for name in re.findall(r"\bROOTLINE_[A-Z0-9_]+", page.read_text())}
    assert named - KNOWN_SETTINGS == set()
    assert named


def test_every_service_runs_a_command_that_exists_on_a_volume_that_is_declared(house: Path) -> None:
    services = compose(house)["services"]
    commands = set(getattr(command_tree(), "commands", {}))
    ours = [service for service in services.values() if service.get("image") == "rootline"]
    assert [service["command"][0] for service in ours] == [
        *("topics", "coordinator", "coordinator", "worker", "worker", "catalog")
    ]
    assert {"coordinator", "worker", "topics", "up"} <= commands
    mounted = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    folders = {volume for volume in mounted if volume.startswith("./")}
    assert mounted - folders == set(compose(house)["volumes"])
    assert [folder for folder in folders if not (house / folder).is_dir()] == []


def test_coordinators_have_a_name_and_a_port_each(house: Path) -> None:
    both = [service for name, service in compose(house)["services"].items() if name.startswith("coordinator")]
    assert len({service["environment"]["ROOTLINE_KAFKA__GROUP_INSTANCE_ID"] for service in both}) == len(both) == 2
    assert len({tuple(service["ports"]) for service in both}) == 2
    assert len({tuple(sorted(service["environment"])) for service in both}) == 1


def test_every_secret_is_a_file_and_those_of_ours_are_settings(house: Path) -> None:
    loaded = compose(house)
    named = {secret for service in loaded["services"].values() for secret in service.get("secrets", [])}
    assert named == set(loaded["secrets"])
    assert {secret.upper() for secret in named} <= KNOWN_SETTINGS
    assert all(Path(secret["file"]).parent == Path("secrets") for secret in loaded["secrets"].values())
    assert "/secrets/" in (house / ".gitignore").read_text().split()
    written = str([service.get("environment") for service in loaded["services"].values()])
    assert [name for name in ("SECRET_ACCESS_KEY'", "PASSWORD'", "TOKEN'") if name in written] == []


def test_what_is_scraped_is_a_service(house: Path) -> None:
    scraped = yaml.safe_load((house / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {name for job in scraped for group in job["static_configs"] for name in group["targets"]}
    assert {target.partition(":")[0] for target in targets} <= set(compose(house)["services"])


def test_units_run_commands_that_exist_and_are_whole(house: Path, tmp_path: Path) -> None:
    units = [house / "deploy" / "rootline.service", *sorted((house / "deploy" / "systemd").iterdir())]
    assert len(units) == 4
    for unit in units:
        [line] = re.findall(r"^ExecStart=/opt/rootline/bin/rootline (.+)$", unit.read_text(), re.MULTILINE)
        command: Any = command_tree()
        for word in line.split():
            command = command.commands[word]
    verify = shutil.which("systemd-analyze")
    if verify is None:  # not everywhere; the rest is checked above
        return
    for unit in units:  # the program is not installed here
        text = unit.read_text().replace("/opt/rootline/bin/rootline", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run([verify, "verify", *sorted(tmp_path.iterdir())], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "rootline" in line]
    assert (ours, done.returncode) == ([], 0), done.stderr


def test_images_are_named_with_their_versions(house: Path) -> None:
    images = {service["image"] for service in compose(house)["services"].values()} - {"rootline"}
    assert [image for image in images if image.endswith(":latest") or ":" not in image] == []


def test_the_image_copies_what_exists_and_installs_extras_that_exist(house: Path) -> None:
    text = (house / "deploy" / "Dockerfile").read_text()
    copied = {word for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for word in line.split()[:-1]}
    assert {name for name in copied if not (house / name).exists()} == set()
    let_through = {line[1:] for line in (house / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == let_through
    extras = tomllib.loads((house / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = re.findall(r"\.\[([a-z0-9,]+)\]", text)
    assert {extra for group in installed for extra in group.split(",")} <= set(extras)
