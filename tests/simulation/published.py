"""What simulated writers have published and uploaded: the reference is made of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.record_headers import content_headers, content_of_intent, stated
from rootline.schemas.identifiers import Headers, TableName
from rootline.schemas.intent import Intent
from rootline.schemas.table_definition import TableDefinition
from tests.simulation.names import SeenVersions


@dataclass(slots=True)
class Published:
    """What all writers published: intents by id, vectors by place, the files of leaves by the leaves' locations.

    `records`: intent → its bytes and headers, made once however often it is published. `by_value`: the other way.
    `views`: the versions that they went back to. `files`: what was uploaded, by table; nothing is uploaded twice.
    `first`: what each table was created with. `seen`: the version that the writer of each intent had loaded.
    """

    intents: dict[str, Intent] = field(default_factory=dict)
    records: dict[str, tuple[bytes, Headers]] = field(default_factory=dict)
    by_value: dict[bytes, Intent] = field(default_factory=dict)
    vectors: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    leaves: dict[str, tuple[str, ...]] = field(default_factory=dict)
    views: SeenVersions = field(default_factory=dict)
    files: dict[TableName, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    first: dict[TableName, TableDefinition] = field(default_factory=dict)
    seen: dict[str, int | None] = field(default_factory=dict)
    bases: dict[tuple[str, int], int] = field(default_factory=dict)
    """Table and sequence number → the version that engines have seen with it."""

    def record_of(self, intent: Intent) -> tuple[bytes, Headers]:
        """Value and headers of the record of an intent, which is published now."""
        if intent.intent_id not in self.records:
            value = encode_intent(intent)
            self.records[intent.intent_id] = value, content_headers(stated(content_of_intent(intent)))
            self.by_value[value] = self.intents[intent.intent_id] = intent
        assert self.intents[intent.intent_id] is intent, f"{intent.intent_id} is two intents"
        return self.records[intent.intent_id]
