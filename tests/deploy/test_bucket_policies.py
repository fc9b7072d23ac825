"""Each role's key does its work on a server that enforces deploy/policies, and is refused everything else by name.

Owns: what a role may and may not. Does not own: the server (`policed_s3`).
Invariants: one server for the file; what is refused is named by its right, and nothing is changed by it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from rootline.cli.app import app
from rootline.client.data_file_writer import write_rewritten_files
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.connect import connect
from rootline.ports.intent_log import LogKeeps
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.workers.jobs.job import JobOutcome
from rootline.workers.kinds import BY_HAND, Rights, maintain
from tests.deploy.policed_s3 import OTHER, PREFIX, ROLES, PolicedS3, RolesLake, filled, running_policed_s3
from tests.documents.blocks import blocks_of

pytestmark = pytest.mark.services
HOUSE = Path(__file__).parents[2]
TABLE = TableName("sales.orders")
EXPIRES_AT_ONCE = {
    "rootline.expire": "true",
    "rootline.sweep": "true",
    **{
        f"rootline.expire.{name}": "1"
        for name in ("all-versions", "all-seconds", "by-minute-seconds", "by-hour-seconds")
    },
}
PLACES = {
    "root": "sales/orders/metadata/roots/7ffffffffffffff0-15.avro",
    "leaf": "sales/orders/metadata/leaves/x.parquet",
    "vector": "sales/orders/metadata/vectors/x.puffin",
    "page": "sales/orders/metadata/pages/x.avro",
    "definition": "sales/orders/metadata/definitions/x.json",
    "adopted": "sales/orders/metadata/adopted/x.avro",
    "data": "sales/orders/data/day=1/x.parquet",
    "namespace": "sales/.namespace/x.json",
    "export": "sales/orders/export/v2/x/metadata/x.metadata.json",
    "of a client": "sales/orders/rest/metadata/x-m0.avro",
    "probe": "0-rootline-probe/x",
    "lake": "0-rootline-lake/x.json",
    "among the roots": "sales/orders/metadata/roots/x/data/0.parquet",
    "beside these": "sales/orders/x",
}
PUTS = {
    "coordinator": {"root", "leaf", "vector", "page", "definition", "probe", "lake", "among the roots"},
    "worker": {"leaf", "vector", "page", "data", "among the roots"},
    "expiry": {"page"},
    "writer": {"leaf", "adopted", "data", "namespace", "of a client"},
    "reader": set[str](),
    "catalog": {"export"},
}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicedS3]:
    with running_policed_s3(tmp_path_factory.mktemp("policed-s3"), HOUSE) as server:
        yield server


@pytest.fixture(scope="module")
def lake(s3: PolicedS3) -> Iterator[Lake]:
    """A lake with a table of some versions, which writer and coordinator have made, each with its own key."""
    with Lake(RolesLake(s3)) as opened:
        opened.create_namespace("sales")
        orders = opened.create_table(TABLE, {"id": "long", "day": "string"}, properties=EXPIRES_AT_ONCE)
        for number in range(4):
            orders.append(pa.table({"id": list(range(number, number + 5)), "day": [f"{number}"] * 5}))
        orders.delete_where("id = 4")
        yield opened


def by_hand(lake: Lake, s3: PolicedS3, role: str, kind: str) -> JobOutcome:
    """As `rootline maintenance run KIND` with the key of `role`."""

    async def keeps() -> LogKeeps:
        return LogKeeps(0, 0)

    async def operation(session: Session) -> JobOutcome:
        both = s3.remover(role)
        try:
            rights = Rights(both, keeps, write_rewritten_files)
            job = BY_HAND[kind]
            done = await maintain(both, session.log, session.environment, TABLE, job, dry_run=False, rights=rights)
            return done.outcome
        finally:
            await both.close()

    return lake.holder.run(operation)


def use_key(monkeypatch: pytest.MonkeyPatch, s3: PolicedS3, role: str) -> None:
    for name, value in s3.environment(role).items():
        monkeypatch.setenv(name, value)


def command(monkeypatch: pytest.MonkeyPatch, s3: PolicedS3, role: str, *words: str) -> Any:
    """The command line with the key of `role`; it needs no log."""
    use_key(monkeypatch, s3, role)
    return CliRunner().invoke(app, list(words))


def test_a_reader_sees_what_writer_and_coordinator_have_made(
    lake: Lake, s3: PolicedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lake.table(TABLE).scan().to_arrow().num_rows == 16
    for words in (("namespace", "list"), ("scan", TABLE)):
        shown = command(monkeypatch, s3, "reader", *words)
        assert (words, shown.exit_code) == (words, 0), shown.output


def test_the_catalog_exports_and_a_reader_is_told_which_right_that_needs(
    lake: Lake, s3: PolicedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = command(monkeypatch, s3, "reader", "export", TABLE).exception
    assert isinstance(refused, Unavailable)
    assert (refused.code, "right s3:PutObject" in refused.message) == ("store-denied", True)
    assert command(monkeypatch, s3, "catalog", "export", TABLE).exit_code == 0


def test_a_worker_does_the_upkeep_and_leaves_deleting_to_expiry(
    lake: Lake, s3: PolicedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_hand(lake, s3, "worker", "compact-data") is JobOutcome.COMMITTED
    assert by_hand(lake, s3, "worker", "flush") is JobOutcome.COMMITTED
    lake.table(TABLE).append(pa.table({"id": [1], "day": ["0"]}))
    assert by_hand(lake, s3, "worker", "flush") is JobOutcome.COMMITTED
    assert by_hand(lake, s3, "worker", "compact") is JobOutcome.COMMITTED
    assert by_hand(lake, s3, "expiry", "expire") is JobOutcome.COMMITTED
    assert by_hand(lake, s3, "expiry", "sweep") in (JobOutcome.COMMITTED, JobOutcome.NOTHING_DUE)
    assert s3.service.folder is not None
    roots = s3.service.folder / PREFIX / "sales" / "orders" / "metadata" / "roots"
    for root in roots.iterdir():
        os.utime(root, (root.stat().st_mtime - 10_000,) * 2)
    there = len(list(roots.iterdir()))
    with pytest.raises(Unavailable, match=r"DELETE of .* right s3:DeleteObject") as caught:
        by_hand(lake, s3, "worker", "expire")
    assert caught.value.code == "store-denied"
    assert len(list(roots.iterdir())) >= there
    by_hand(lake, s3, "expiry", "expire")
    assert len(list(roots.iterdir())) < there
    assert command(monkeypatch, s3, "reader", "check", TABLE).exit_code == 0


def test_a_writer_without_the_right_to_put_files_is_told_so_and_publishes_nothing(
    lake: Lake, s3: PolicedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_key(monkeypatch, s3, "reader")
    with (
        connect(log="memory://", coordinator="elsewhere") as reader,
        pytest.raises(Unavailable, match=r"PUT sales/orders/data/.* right s3:PutObject") as caught,
    ):
        reader.table(TABLE).append(pa.table({"id": [1], "day": ["0"]}))
    assert caught.value.code == "store-denied"


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_puts_deletes_and_sees_what_is_its_own_and_nothing_else(s3: PolicedS3, role: str) -> None:
    everything, store = s3.service.store(PREFIX), s3.of(role).remover("")

    async def denied(right: str, attempt: Awaitable[object]) -> bool:
        try:
            await attempt
        except Unavailable as error:
            if error.code != "store-denied" or right not in error.message:
                raise
            return True
        return False

    put, deleted = set[str](), set[str]()
    for place, key in PLACES.items():
        made, kept = (ObjectKey(f"{key}.{what}.{role}") for what in ("made", "kept"))
        if not await denied("right s3:PutObject", store.put_if_absent(ObjectKey(f"{PREFIX}/{made}"), b"")):
            put.add(place)
        assert (await everything.get(made) is not None) == (place in put)
        await everything.put_if_absent(kept, b"")
        if not await denied("right s3:DeleteObject", store.remove([ObjectKey(f"{PREFIX}/{kept}")])):
            deleted.add(place)
        assert (await everything.get(kept) is None) == (place in deleted)
    assert put == PUTS[role]
    assert deleted == (set(PLACES) - {"namespace", "probe", "lake", "beside these"} if role == "expiry" else set())
    assert await denied("right s3:GetObject", store.get(ObjectKey(OTHER)))
    assert await denied("right s3:GetObject", store.length_of(ObjectKey(OTHER)))
    assert await denied("right s3:ListBucket", store.list("other/"))
    assert await denied("right s3:PutObject", store.put_if_absent(ObjectKey(f"{OTHER}.{role}"), b""))
    await store.close()
    await everything.close()


def test_a_policy_to_attach_names_no_principal_and_a_lake_may_be_a_whole_bucket() -> None:
    policy = filled(HOUSE, "s3://lake", "reader", "--demand-if-none-match")
    assert [statement.get("Principal") for statement in policy["Statement"]] == [None, None]
    assert policy["Statement"][0]["Condition"] == {"StringLikeIfExists": {"s3:prefix": "*"}}
    assert policy["Statement"][1]["Resource"] == "arn:aws:s3:::lake/*"
    [_, _, put, _] = filled(HOUSE, "s3://lake/a/b/", "catalog", "--demand-if-none-match")["Statement"]
    assert put["Resource"] == ["arn:aws:s3:::lake/a/b/*/export/*"]
    assert put["Condition"] == {"Null": {"s3:if-none-match": "false"}}


def test_the_commands_of_the_page_print_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deploy").symlink_to(HOUSE / "deploy")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    [block] = blocks_of("docs/deploy.md", "console")
    shown = subprocess.run(["sh", "-ec", block.text], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert {"Effect", "Action", "Resource"} <= set(json.loads(shown.stdout)["Statement"][0])
    policy = json.loads((tmp_path / "bucket-policy.json").read_text())
    principals = {key for statement in policy["Statement"] for key in statement["Principal"]["AWS"]}
    assert principals == {"KEY1", "KEY2", "KEY3"}
    sids = [statement["Sid"] for statement in policy["Statement"]]
    assert len({*sids}) == len(sids)


@pytest.mark.parametrize(
    "words", [[], ["s3://lake"], ["/lake", "reader"], ["s3://lake/a*", "reader"], ["s3://lake", "root"]]
)
def test_what_is_no_lake_or_no_role_prints_no_policy(words: list[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        filled(HOUSE, *words)


def test_two_roles_without_principals_are_no_policy() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        filled(HOUSE, "s3://lake", "reader=KEY", "writer")
