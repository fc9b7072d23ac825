"""Verification of an intent's data files against the store, for tables that require it.

Owns: which files must be verified, and rejecting an intent with a faulty one. Does not own: reading them
(`rootline.storage.rows.file_footers`), files in leaves, which are verified when their leaf is proven, the property
(`file_proof`).
Invariants: An intent is not decided before all its data files are verified. Only locations where a writer may store a
file are read. Equality deletes are not verified, because their record counts assign no row ids.

Source: decision 0010.
"""

from __future__ import annotations

from dataclasses import dataclass

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile, Intent
from rootline.schemas.intent_rules import is_plain
from rootline.schemas.object_keys import RESERVED_PREFIXES
from rootline.tree.draft.batch import FetchedObjects, Need, Needs
from rootline.tree.draft.draft import Draft
from rootline.tree.proof.file_proof import StatedFile, verifies_files
from rootline.tree.rules.file_rules import check_own_location


@dataclass(frozen=True, slots=True)
class FileNeed(Need[Invalid | None]):
    """The comparison of a data file with the store: its fault, or `None` for a file without fault."""

    file: StatedFile


def stated(file: DataFile) -> StatedFile:
    """A data file as the intent describes it."""
    return StatedFile(
        file.location, file.file_format, file.record_count, file.file_size_in_bytes, file.key_metadata is not None
    )


def is_in_place(file: StatedFile) -> bool:
    """Whether a writer may certainly store a file there. Other locations are decided by the general rules first."""
    return is_plain(file.location) and not file.location.startswith(RESERVED_PREFIXES)


def files_to_verify(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Needs | None:
    """The files that are not verified yet, or `None`. Raises `Invalid` with the fault of a verified file."""
    if not intent.add_data_files or not verifies_files(draft.definition):
        return None
    for file in intent.add_data_files:
        check_own_location(draft, file.location)
    needs = [FileNeed(stated(file)) for file in intent.add_data_files]
    missing = fetched.missing(needs)
    if missing:
        return missing
    for need in needs:
        fault = fetched.of(need)
        if isinstance(fault, Invalid):
            raise fault
    return None
