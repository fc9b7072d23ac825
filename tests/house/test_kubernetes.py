"""The manifests of deploy/kubernetes fit the schemas of Kubernetes, and what they name exists.

Owns: what can be checked without a cluster. Does not own: settings that exist (`test_deploy` looks through these files
too), the rights in the bucket (tests/deploy).
Invariants: the network is not needed: the schemas come with a package.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rootline.adapters.open import check_warehouse, kafka_settings, store_settings
from rootline.cli.app import command_tree
from rootline.schemas.distribution import VERSION

OLDEST, NEWEST = "1.30", "1.37"
WORKLOADS = ("StatefulSet", "Deployment", "Job")


def manifests(house: Path) -> list[dict[str, Any]]:
    folder = house / "deploy" / "kubernetes"
    files = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert {*files, "kustomization.yaml"} == {path.name for path in folder.iterdir()}
    return [item for name in files for item in yaml.safe_load_all((folder / name).read_text())]


def of_kind(house: Path, *kinds: str) -> list[dict[str, Any]]:
    found = [item for item in manifests(house) if item["kind"] in kinds]
    assert found
    return found


def names(house: Path, kind: str) -> set[str]:
    return {item["metadata"]["name"] for item in of_kind(house, kind)}


def faults(manifest: dict[str, Any], version: str) -> str:
    """What is wrong with it in this version of Kubernetes; unknown fields are."""
    try:
        import kubernetes_validate
    except ModuleNotFoundError:
        pytest.fail("kubernetes-validate is not installed: run `make setup`", pytrace=False)
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return f"{manifest['kind']} {manifest['metadata']['name']}: {error.message}"
    return ""


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_manifest_fits_its_schema(house: Path, version: str) -> None:
    assert [found for item in manifests(house) if (found := faults(item, version))] == []
    comment = (house / "deploy" / "kubernetes" / "kustomization.yaml").read_text()
    assert f"{OLDEST} to {NEWEST}" in comment


def test_a_field_that_is_misspelled_would_be_found(house: Path) -> None:
    [budget, *_] = of_kind(house, "PodDisruptionBudget")
    budget["spec"]["maxUnavailble"] = budget["spec"].pop("maxUnavailable")
    assert "maxUnavailble" in faults(budget, NEWEST)


def test_every_container_runs_a_command_that_exists_from_an_image_that_is_renamed_in_one_place(house: Path) -> None:
    run: list[str] = []
    for item in of_kind(house, *WORKLOADS):
        [container] = item["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "rootline"
        command: Any = command_tree()
        words = list(container["args"])
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in container["args"] if word.startswith("--")} <= options
        run.append(container["args"][0])
    assert sorted(run) == ["catalog", "coordinator", "topics", "worker"]
    kustomization = yaml.safe_load((house / "deploy" / "kubernetes" / "kustomization.yaml").read_text())
    assert [(image["name"], image["newTag"]) for image in kustomization["images"]] == [("rootline", VERSION)]


def test_no_container_has_more_rights_than_it_needs(house: Path) -> None:
    user = re.search(r"--uid (\d+)", (house / "deploy" / "Dockerfile").read_text())
    assert user
    for item in of_kind(house, *WORKLOADS):
        pod = item["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == int(user[1])
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


def test_services_are_probed_at_paths_that_are_served_and_have_a_minute_to_stop(house: Path) -> None:
    for item in of_kind(house, "StatefulSet", "Deployment"):
        pod = item["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert pod["terminationGracePeriodSeconds"] == 60
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert container["ports"] == [{"name": "http", "containerPort": 8080}]


def test_secrets_are_files_in_the_folder_that_the_processes_look_in(house: Path) -> None:
    [lake] = of_kind(house, "ConfigMap")
    assert [name for name in lake["data"] if re.search("PASSWORD|SECRET_ACCESS|TOKEN|KEY_ID", name)] == []
    for item in of_kind(house, *WORKLOADS):
        pod = item["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert container["envFrom"] == [{"configMapRef": {"name": lake["metadata"]["name"]}}]
        assert [one["name"] for one in container.get("env", ()) if "value" in one] == []
        places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert places == {"secrets": lake["data"]["ROOTLINE_SECRETS_DIR"], "tmp": "/tmp"}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["secrets"]["secret"]["defaultMode"] == 0o440
        assert volumes["secrets"]["secret"]["secretName"] in names(house, "ServiceAccount")


def test_a_folder_of_secrets_as_kubernetes_mounts_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamped = tmp_path / "..2026_01_01"
    stamped.mkdir()
    (tmp_path / "..data").symlink_to(stamped.name)
    for name, value in (("rootline_s3__access_key_id", "k"), ("rootline_s3__secret_access_key", "s\n")):
        (stamped / name).write_text(value)
        (tmp_path / name).symlink_to(f"..data/{name}")
    monkeypatch.setenv("ROOTLINE_SECRETS_DIR", str(tmp_path))
    read = store_settings().s3
    assert (read.access_key_id, read.secret()) == ("k", "s")


def test_the_settings_of_the_lake_can_be_used_with_their_secrets(
    house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [lake] = of_kind(house, "ConfigMap")
    for name, value in lake["data"].items():
        monkeypatch.setenv(name, value)
    for name in ("rootline_s3__access_key_id", "rootline_s3__secret_access_key", "rootline_kafka__sasl_password"):
        (tmp_path / name).write_text("x")
    monkeypatch.setenv("ROOTLINE_SECRETS_DIR", str(tmp_path))
    assert kafka_settings(lake["data"]["ROOTLINE_LOG"]).logs_in
    assert check_warehouse(lake["data"]["ROOTLINE_WAREHOUSE"])


def test_a_coordinator_keeps_its_name_and_its_partitions_wait_for_it(house: Path) -> None:
    [group] = of_kind(house, "StatefulSet")
    [container] = group["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [
        {
            "name": "ROOTLINE_KAFKA__GROUP_INSTANCE_ID",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
        }
    ]
    assert group["spec"]["serviceName"] in names(house, "Service")


def test_what_points_at_something_points_at_what_is_there(house: Path) -> None:
    pods = {
        item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"] for item in of_kind(house, *WORKLOADS)
    }
    for item in of_kind(house, "StatefulSet", "Deployment"):
        assert item["spec"]["selector"]["matchLabels"] == pods[item["metadata"]["name"]]
        assert item["spec"]["template"]["spec"]["serviceAccountName"] in names(house, "ServiceAccount")
        assert item["metadata"]["name"] in names(house, "PodDisruptionBudget")
        scaled = item["metadata"]["name"] in names(house, "HorizontalPodAutoscaler")
        assert ("replicas" in item["spec"]) != scaled, "an apply would undo what the autoscaler did"
    selectors = [item["spec"]["selector"] for item in of_kind(house, "Service")]
    selectors += [item["spec"]["selector"]["matchLabels"] for item in of_kind(house, "PodDisruptionBudget")]
    selectors += [item["spec"]["podSelector"]["matchLabels"] for item in of_kind(house, "NetworkPolicy")]
    for selector in selectors:
        assert [name for name, labels in pods.items() if selector.items() <= labels.items()], selector


def test_autoscalers_follow_metrics_that_exist_and_stop_at_the_partitions(house: Path) -> None:
    known = (house / "docs" / "metrics.md").read_text()
    page = (house / "docs" / "deploy.md").read_text()
    kinds = {item["metadata"]["name"]: item["kind"] for item in of_kind(house, *WORKLOADS)}
    for item in of_kind(house, "HorizontalPodAutoscaler"):
        target = item["spec"]["scaleTargetRef"]
        assert kinds[target["name"]] == target["kind"]
        [metric] = item["spec"]["metrics"]
        name = metric["external"]["metric"]["name"]
        assert f"| `{name}` | gauge |" in known
        assert name in page
        assert item["spec"]["minReplicas"] == 2
    [topics] = of_kind(house, "Job")
    [*_, partitions] = topics["spec"]["template"]["spec"]["containers"][0]["args"]
    assert all(item["spec"]["maxReplicas"] <= int(partitions) for item in of_kind(house, "HorizontalPodAutoscaler"))


def test_pods_say_which_lake_they_are_of_by_the_name_that_the_scrape_configuration_uses(house: Path) -> None:
    [labels] = yaml.safe_load((house / "deploy" / "kubernetes" / "kustomization.yaml").read_text())["labels"]
    scrapes = yaml.safe_load((house / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    targets = [target for scrape in scrapes for target in scrape["static_configs"]]
    assert labels["includeTemplates"] is True
    assert {target["labels"]["lake"] for target in targets} == {labels["pairs"]["rootline-lake"]}
