"""The data files of an intent, compared with what is stored, where the table asks for it.

Owns: which files are to be looked at, and that none is accepted before. Does not own: looking at them
(`rootline.storage.rows.file_footers`), files in leaves, which are looked at when their leaf is proven, the property
(`file_verification`).
Invariants: an intent is not judged before all its data files were looked at; no place is looked at where a writer may
not put a file; equality deletes are not looked at: no
row ids are handed out by their counts.

Source: decision 0010.
"""

from __future__ import annotations

from rootline.schemas.intent import DataFile, Intent
from rootline.schemas.intent_rules import is_plain
from rootline.schemas.object_keys import RESERVED_PREFIXES
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.draft import Draft
from rootline.tree.proof.file_verification import StatedFile, verifies_files
from rootline.tree.rules.file_rules import check_own_location


def stated(file: DataFile) -> StatedFile:
    """What an intent says of a file."""
    return StatedFile(
        file.location, file.file_format, file.record_count, file.file_size_in_bytes, file.key_metadata is not None
    )


def is_in_place(file: StatedFile) -> bool:
    """Whether it is where a writer may put a file, for certain; elsewhere the general rules decide first."""
    return is_plain(file.location) and not file.location.startswith(RESERVED_PREFIXES)


def files_to_verify(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Needs | None:
    """Files that no one has looked at yet; `None`: there are none. Raises `Invalid`, what was found wrong with one."""
    if not intent.add_data_files or not verifies_files(draft.definition):
        return None
    for file in intent.add_data_files:
        check_own_location(draft, file.location)
    files = [stated(file) for file in intent.add_data_files]
    unknown = frozenset(file for file in files if file not in fetched.files)
    if unknown:
        return Needs(files=unknown)
    for found in files:
        fault = fetched.files[found]
        if fault is not None:
            raise fault
    return None
