"""The error codes with which intents are rejected.

Owns: codes about a record, its names and locations, and what it needs to find. Does not own: codes about stored bytes,
services and use, and the registry (`error_codes`).
Invariants: append-only, because codes are on the wire: a code is never renamed, reused or given another meaning.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.error_code import ErrorCode

CODES_OF_INTENTS: Final = (
    # the record itself
    ErrorCode(
        "undecodable",
        "Invalid",
        "The record is neither single-object Avro of a known intent schema nor JSON with its content-type header.",
        "Look at the bytes in the dead letters, mend the producer and publish the intent again.",
    ),
    ErrorCode(
        "intent-malformed",
        "Invalid",
        "A field of the intent is absent, of the wrong type, negative, or does not go with the intent's kind.",
        "Compare the intent with docs/intents.md; the message names the field.",
    ),
    ErrorCode(
        "kind-unknown",
        "Invalid",
        "The intent's kind does not exist, or this version does not carry it out.",
        "Use a kind that docs/intents.md lists, or update the coordinator.",
    ),
    ErrorCode(
        "intent-too-large",
        "Invalid",
        "The intent is over a limit: bytes, files, nesting or decompressed size; the message says which.",
        "Split it, or write a leaf manifest and publish a reference to it.",
    ),
    # names and places
    ErrorCode(
        "table-name-invalid",
        "Invalid",
        "A table's name is not `namespace.table` with letters, digits, `_` and `-`.",
        "Choose a name of that form.",
    ),
    ErrorCode(
        "table-unknown",
        "Invalid",
        "No table has this name in this warehouse.",
        "Create it (`rootline table create`), or correct the name; `rootline table list` shows what there is.",
    ),
    ErrorCode(
        "table-exists",
        "Invalid",
        "A table of this name exists already.",
        "Use it, or choose another name.",
    ),
    ErrorCode(
        "table-uuid-mismatch",
        "Invalid",
        "The intent was made for another table of the same name.",
        "Load the table again and make the intent anew.",
        "Do not remove the uuid to force it through: the files may belong to the old table.",
    ),
    ErrorCode(
        "location-invalid",
        "Invalid",
        "A location is empty, too long, outside the table's prefix, of a foreign scheme, or holds `..`, control "
        "characters, a backslash or an encoded form of these.",
        "Give locations relative to the table's own prefix, such as `data/part-0.parquet`.",
    ),
    ErrorCode(
        "file-named-twice",
        "Invalid",
        "One intent names the same file twice.",
        "Name each file once.",
    ),
    # what the intent needs to find
    ErrorCode(
        "file-already-live",
        "Invalid",
        "A file to add is part of the table already.",
        "If this is a retry, nothing is lost: the file is there once. Else choose a fresh location.",
    ),
    ErrorCode(
        "file-not-live",
        "Invalid",
        "A file to remove, or to delete rows of, is not part of the table.",
        "Read the table again and plan the change anew; somebody removed or rewrote the file.",
    ),
    ErrorCode(
        "stale-source",
        "Invalid",
        "A file to remove has other deleted rows now than the writer saw.",
        "Read the table again and make the change anew.",
        "Do not publish the same files again: rows deleted meanwhile would come back.",
    ),
    ErrorCode(
        "row-count-mismatch",
        "Invalid",
        "The files of a rewrite hold more rows than those that they replace, or fewer than deletes can explain.",
        "Read the files again, with their deletes applied, and write every row that is left, once.",
        "Do not publish it as an overwrite: rows would be lost, or double.",
    ),
    ErrorCode(
        "row-conflict",
        "Invalid",
        "Rows that this intent deletes or updates were deleted by another intent meanwhile.",
        "Read the table again and make the change anew.",
    ),
    ErrorCode(
        "isolation-conflict",
        "Invalid",
        "A file that may match the intent's filter was added after the snapshot that the writer read.",
        "Read the table again and make the change anew.",
    ),
    ErrorCode(
        "schema-unknown",
        "Invalid",
        "The table never had this schema id.",
        "Load the table again; `rootline table describe` shows its schemas.",
    ),
    ErrorCode(
        "spec-unknown",
        "Invalid",
        "The table never had this partition spec id.",
        "Load the table again; `rootline table describe` shows its specs.",
    ),
    ErrorCode(
        "statistics-missing",
        "Invalid",
        "A file lacks the partition values: the lower bound of every id of its spec (or null bounds for null).",
        "Send statistics for every column or expression of the spec.",
    ),
    ErrorCode(
        "statistics-invalid",
        "Invalid",
        "Statistics cannot be read with the table's types, contradict each other, or name an unknown column.",
        "Encode them with the schema that `rootline table describe --json` prints.",
    ),
    ErrorCode(
        "vector-invalid",
        "Invalid",
        "A deletion vector cannot be read, or its cardinality, length or positions do not agree with its data file.",
        "Write the vector again; its positions are row numbers of the data file, from 0.",
    ),
    ErrorCode(
        "leaf-invalid",
        "Invalid",
        "A leaf manifest that the intent names cannot be read, or does not hold what the intent says.",
        "Write the leaf again.",
    ),
    ErrorCode(
        "flush-stale",
        "Invalid",
        "Nothing of the flushed leaf is live in the place it came from any more.",
        "Nothing is to be done: the leaf is an orphan, the next flush starts from the new root.",
    ),
    ErrorCode(
        "compaction-stale",
        "Invalid",
        "Nothing of what a compaction would move is live in the place it came from any more.",
        "Nothing is to be done: what it wrote is an orphan, the next compaction starts from the new root.",
    ),
    ErrorCode(
        "definition-invalid",
        "Invalid",
        "The table definition cannot be read, or uses a type or transform that cannot be stored.",
        "Correct the definition; the message names the field.",
    ),
    ErrorCode(
        "root-full",
        "Invalid",
        "The root would hold more rows or bytes than one root can.",
        "Let a worker flush the table (`rootline worker`), then publish the intent again.",
    ),
    ErrorCode(
        "tag-invalid",
        "Invalid",
        "A tag's name is not 1 to 64 letters, digits, `.`, `_` or `-`; or the table has as many tags as it can.",
        "Choose another name, or delete a tag that nobody needs (`rootline tag TABLE NAME --delete`).",
    ),
    ErrorCode(
        "tag-conflict",
        "Invalid",
        "The tag is not where the writer saw it: somebody set, moved or deleted it meanwhile.",
        "Look where it is now (`rootline tag TABLE`), and decide again.",
    ),
    ErrorCode(
        "tag-unknown",
        "Invalid",
        "The table has no tag of this name.",
        "`rootline tag TABLE` lists the tags there are.",
    ),
    ErrorCode(
        "leaf-missing",
        "Invalid",
        "A leaf manifest that the intent names does not exist.",
        "Store the leaf first, under the name that its digest gives it, then publish the intent again.",
    ),
    ErrorCode(
        "restore-impossible",
        "Invalid",
        "The version to restore is addressable, but it cannot be read, has another definition, or differs in too much.",
        "The message says why. `rootline scan --version` still reads its rows, unless `rootline check` finds damage.",
    ),
    ErrorCode(
        "adoption-invalid",
        "Invalid",
        "What an intent adopts is not what it says, or breaks a rule: a manifest is absent, was changed, or cannot be "
        "read; a file is listed twice; a vector has no data file.",
        "The message names the object. `rootline adopt METADATA_JSON TABLE --dry-run` looks again without a change.",
    ),
)
