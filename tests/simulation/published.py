"""What simulated writers have published and uploaded: the reference is made of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent
from rootline.schemas.table_definition import TableDefinition
from tests.simulation.names import SeenVersions


@dataclass(slots=True)
class Published:
    """What all writers published: intents by id, vectors by place, the files of leaves by the leaves' locations.

    `views`: the versions that they went back to. `files`: what was uploaded, by table; nothing is uploaded twice.
    `first`: what each table was created with. `seen`: the version that the writer of each intent had loaded.
    """

    intents: dict[str, Intent] = field(default_factory=dict)
    vectors: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    leaves: dict[str, tuple[str, ...]] = field(default_factory=dict)
    views: SeenVersions = field(default_factory=dict)
    files: dict[TableName, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    first: dict[TableName, TableDefinition] = field(default_factory=dict)
    seen: dict[str, int | None] = field(default_factory=dict)
