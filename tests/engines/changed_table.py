"""A table and random steps in its life, and the difference of its versions as clients' checks for conflicts need it.

Owns: the steps, the difference of two versions by their live files and rows. Does not own: the clients.
Invariants: the difference does not use the statuses of entries. Ids of rows are unique.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rootline import Invalid
from rootline.client.data_file_writer import write_files
from rootline.client.lake import Lake
from rootline.schemas.client_commits import CLIENT, ClientCommit
from rootline.schemas.content_entry import ContentType
from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from rootline.schemas.parts.progress import ClientSnapshot
from rootline.schemas.verdict import VerdictKind
from rootline.workers.kinds import BY_HAND, maintain
from tests.catalog.exported_lake import TABLE, ExportedLake, delete_by_id, rows

_REFUSED = ("restore-impossible", "version-unknown", "evolution-illegal", "definition-invalid")


@dataclass(frozen=True)
class Step:
    """From one version to the next: data files, by absolute name. `deleted_in`: those that lost rows, and stayed."""

    added: frozenset[str]
    removed: frozenset[str]
    deleted_in: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.deleted_in)


class ChangedTable(ExportedLake):
    """The table, which random steps change, one version each or several."""

    def __init__(self, folder: Path, lake: Lake, seed: int, **properties: str) -> None:
        super().__init__(folder, lake, **properties)
        self.rng, self.minted = random.Random(seed), 0
        self.client_ids: set[int] = set()
        self.words: dict[str, str] = {}
        """The newest words of each job, by their key."""

    def step(self) -> None:
        """One step. A step that the table refuses is not one."""
        steps = [
            *[self.append] * 5,
            *[self.append_by_clients] * 4,
            *[self.delete] * 3,
            *[self.delete_by_value] * 2,
            *[self.overwrite, self.restore, self.rewrite, self.rewrite, self.flush_or_compact, self.flush_or_compact],
            *[self.convert, self.replace, self.alter, self.tag, self.drop_and_restore, self.reject, self.let_export],
        ]
        try:
            self.rng.choice(steps)()
        except Invalid as error:
            if error.code not in _REFUSED:
                raise
        self.table = self.lake.table(TABLE)

    def append(self) -> None:
        self.table.append(rows(*self._mint(self.rng.randint(1, 6))))

    def append_by_clients(self) -> None:
        """Commits of Iceberg clients, perhaps in one root. Of two by one job, both made on one version, one wins."""
        with self.lake.producer() as producer:
            sent = [
                (made, producer.publish(made)) for made in (self._by_client() for _ in range(self.rng.randint(1, 3)))
            ]
            for made, receipt in sent:
                verdict = receipt.verdict(30)
                if verdict.kind is not VerdictKind.COMMITTED:
                    assert verdict.code == "progress-moved", verdict
                    continue
                client = ClientCommit.of(made.summary)
                assert client is not None
                self.client_ids.update(each.snapshot_id for each in client.snapshots)
                self.words.update({key: word for key, word in made.summary.items() if key != CLIENT})

    def _by_client(self) -> Intent:
        head, definition = self.table.head(), self.table.definition()
        written = write_files(rows(*self._mint(self.rng.randint(1, 3))), definition, iter(lambda: uuid.uuid4(), None))
        files = []
        for each in written:
            place = self.folder / "demo/flights" / each.data_file.location
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(each.body)
            files.append(each.data_file)
        ids = [self.rng.getrandbits(62) + 1 for _ in range(self.rng.randint(1, 2))]
        job = self.rng.choice((None, "one", "two", "three"))
        words = {} if job is None else {f"job.{job}": str(self.minted)}
        snapshots = tuple(ClientSnapshot(each, "append") for each in ids)
        client = ClientCommit(snapshots, f"{ids[0]:064x}", {} if job is None else {job: tuple(words)})
        return Intent(
            intent_id=uuid.uuid4().hex,
            table=TABLE,
            table_uuid=head.table_uuid,
            kind=IntentKind.APPEND,
            schema_id=definition.current_schema_id,
            add_data_files=tuple(files),
            read_sequence_number=head.snapshot.sequence_number,
            writer_id=f"rest/{ids[0]}",
            writer_sequence=0,
            summary={**words, CLIENT: client.to_json()},
        )

    def delete(self) -> None:
        self.table.delete_where(self._some())

    def delete_by_value(self) -> None:
        if self.minted:
            delete_by_id(self, *{self.rng.randrange(self.minted) for _ in range(2)})

    def overwrite(self) -> None:
        self.table.overwrite(rows(*self._mint(2)), where=self._some())

    def restore(self) -> None:
        self.table.restore(version=self.rng.randint(0, self.head))

    def rewrite(self) -> None:
        self.table.rewrite()

    def flush_or_compact(self) -> None:
        self._maintain(self.rng.choice(("flush", "compact")))

    def convert(self) -> None:
        self._maintain(self.rng.choice([name for name in BY_HAND if "delete" in name or "vector" in name] or ["flush"]))

    def replace(self) -> None:
        if self.rng.random() < 0.5:
            self.table.replace(rows(*self._mint(3)))

    def alter(self) -> None:
        with self.table.alter() as change:
            change.add_column(f"c{self.head}", "int")

    def tag(self) -> None:
        self.table.tag(f"t{self.head}", version=self.rng.randint(0, self.head))

    def drop_and_restore(self) -> None:
        self.lake.drop_table(TABLE)
        self.lake.restore_table(TABLE)

    def reject(self) -> None:
        removal = (RemovedFile(location="data/none.parquet"),)
        intent = Intent(
            intent_id=uuid.uuid4().hex,
            table=TABLE,
            table_uuid=self.table.head().table_uuid,
            kind=IntentKind.REMOVE,
            remove_files=removal,
        )
        with self.lake.producer() as producer:
            producer.publish(intent).verdict(30)

    def let_export(self) -> None:
        """Later exports continue from this one."""
        self.table.export(self.rng.choice((2, 3)))

    def _maintain(self, name: str) -> None:
        kind = BY_HAND[name]
        self.lake.holder.run(
            lambda session: maintain(session.store, session.log, session.environment, TABLE, kind, dry_run=False)
        )

    def _mint(self, count: int) -> range:
        first, self.minted = self.minted, self.minted + count
        return range(first, self.minted)

    def _some(self) -> str:
        least = self.rng.randint(0, self.minted)
        return f"id >= {least} and id <= {least + self.rng.randint(0, 4)}"


@dataclass
class Difference:
    """The differences between the versions of a table that is not changed any more."""

    of: ChangedTable
    _rows: dict[int, dict[str, set[int]]] = field(default_factory=dict)

    @cached_property
    def steps(self) -> list[Step]:
        """The step to each version, the first from nothing."""
        return [Step(frozenset(), frozenset(), frozenset()), *(self._step(number) for number in self._numbers())]

    def _numbers(self) -> Iterator[int]:
        return iter(range(1, self.of.head + 1))

    def _step(self, version: int) -> Step:
        before, after = self.rows_of(version - 1), self.rows_of(version)
        stayed = before.keys() & after.keys()
        return Step(
            frozenset(after.keys() - before.keys()),
            frozenset(before.keys() - after.keys()),
            frozenset(name for name in stayed if before[name] - after[name]),
        )

    def rows_of(self, version: int) -> dict[str, set[int]]:
        """Data file → the ids of its rows that are not deleted."""
        known = self._rows.get(version)
        if known is None:
            entries = [live.entry for live in self.of.table.tree(version=version).state.live.entries()]
            names = [entry.location for entry in entries if entry.content_type is ContentType.DATA]
            known = self._rows[version] = {f"{self.of.base_url}/demo/flights/{name}": set() for name in names}
            for row in self.of.table.scan(version=version, columns=["id", "_file"]).to_arrow().to_pylist():
                found = [name for name in known if name.endswith(row["_file"].rpartition("/")[2])]
                known[found[0]].add(row["id"])
        return known
