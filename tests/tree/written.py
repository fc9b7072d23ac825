"""Leaves as writers write them, and intents that name them."""

from __future__ import annotations

import dataclasses

from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.schemas.intent import AddedManifest, Intent, IntentKind
from tests.tree.tables import Lake, data_file, intent, new_entry

LEAVES = (ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST)


def adding(intent_id: str, *leaves: AddedManifest, kind: IntentKind = IntentKind.APPEND, **more: object) -> Intent:
    return intent(kind, intent_id, add_manifests=leaves, **more)


def leaf_of(lake: Lake, *names: str) -> AddedManifest:
    return lake.written_leaf(*(new_entry(data_file(name)) for name in names))


def entry(name: str = "a", **more: object) -> ContentEntry:
    return dataclasses.replace(new_entry(data_file(name)), **more)  # type: ignore[arg-type]


def shown_leaves(lake: Lake) -> list[ContentEntry]:
    return [row.entry for row in lake.head.root.rows if row.entry.content_type in LEAVES]


def rejection(lake: Lake, *intents: Intent) -> tuple[str | None, str]:
    verdict = lake.put(*intents)[-1]
    return verdict.code, verdict.message or ""
