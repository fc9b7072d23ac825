"""Every error code, what it means, what to do and what not to do.

Owns: the registry behind `rootline explain`. Does not own: when a code is used.
Invariants: append-only, because codes are on the wire: a code is never renamed, reused or given another meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One code: its category (the name of an error class), meaning, what to do, what not to do."""

    code: str
    category: str
    meaning: str
    do: str
    do_not: str = ""


_ALL: Final = (
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
        "definition-invalid",
        "Invalid",
        "The table definition cannot be read, or uses a type or transform that cannot be stored.",
        "Correct the definition; the message names the field.",
    ),
    ErrorCode(
        "root-full",
        "Invalid",
        "The root would hold more rows or bytes than one root can.",
        "Flush the table (`rootline worker`, or `rootline maintenance run flush`) and publish the intent again.",
    ),
    # stored bytes
    ErrorCode(
        "root-corrupt",
        "Corrupt",
        "A root's bytes are not what was written: digest, counts, blocks or header do not agree.",
        "Restore the object from a copy. Run `rootline check`.",
        "Do not delete anything: other roots may still reference what this one names.",
    ),
    ErrorCode(
        "leaf-corrupt",
        "Corrupt",
        "A leaf's bytes are not what was written: length, footer or page digests do not agree.",
        "Restore the object from a copy. Run `rootline check`.",
        "Do not delete anything.",
    ),
    ErrorCode(
        "vector-corrupt",
        "Corrupt",
        "A deletion vector's bytes are not what was written: length, magic, CRC or cardinality do not agree.",
        "Restore the object from a copy. Run `rootline check`.",
        "Do not drop the vector: deleted rows would come back.",
    ),
    ErrorCode(
        "definition-unreadable",
        "Corrupt",
        "A table definition's bytes are not what was written.",
        "Restore the object from a copy. Run `rootline check`.",
    ),
    ErrorCode(
        "object-missing",
        "Corrupt",
        "An object that a root references does not exist.",
        "Restore the object from a copy. Run `rootline check`.",
    ),
    ErrorCode(
        "profile-unknown",
        "Corrupt",
        "The object is of a format profile that this version does not know.",
        "Update Rootline.",
    ),
    # what `rootline check` finds
    ErrorCode(
        "version-gap",
        "Corrupt",
        "A version between the oldest addressable root and the head is missing.",
        "Restore the root from a copy.",
        "Do not write the number again: its snapshot would be another one.",
    ),
    ErrorCode(
        "parent-mismatch",
        "Corrupt",
        "A root does not follow from the stored one before it: parent digest, parent id or table uuid differ.",
        "Restore the older root from a copy.",
    ),
    ErrorCode(
        "snapshot-wrong",
        "Corrupt",
        "A root's snapshot breaks an order: its id, sequence number, timestamp or row ids do not follow.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "progress-lost",
        "Corrupt",
        "Log offsets, outcomes or the writers' ledger went back from one root to the next.",
        "Stop the writers and report it: intents may be applied twice or lost.",
    ),
    ErrorCode(
        "entry-invalid",
        "Corrupt",
        "An entry of a root or leaf breaks a rule of the format.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "entry-doubled",
        "Corrupt",
        "A file is live in two places at once: its rows would be read twice.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "entry-changed",
        "Corrupt",
        "An entry is not what it was in the root before, although no commit replaced it.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "leaf-mismatch",
        "Corrupt",
        "A leaf does not hold what its root row says: entries, specification, content or the leaf it belongs to.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "aggregate-wrong",
        "Corrupt",
        "A leaf's counts or statistics differ from those of its entries: scans may prune what they should read.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "totals-wrong",
        "Corrupt",
        "The totals in a root's header differ from those of its live entries.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "vector-mismatch",
        "Corrupt",
        "A deletion vector does not agree with its entry or its data file, has none, or is not the only one.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "live-set-wrong",
        "Corrupt",
        "What became live or dead from one root to the next is not what the root shows as added and removed.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "definition-mismatch",
        "Corrupt",
        "A table definition is of another table, or lacks what entries refer to.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "length-wrong",
        "Corrupt",
        "An object has another length than the entry that names it says.",
        "Restore the object from a copy.",
    ),
    # services
    ErrorCode(
        "store-unavailable",
        "Unavailable",
        "The object store does not answer.",
        "Check that it runs and that the warehouse URL is right; the coordinator tries again by itself.",
    ),
    ErrorCode(
        "store-lies",
        "Fenced",
        "The object store lets two writers create the same object: it ignores or races `If-None-Match`.",
        "Use a store that carries out conditional PUTs (docs/stores.md), or update it.",
        "Do not run Rootline on it: commits would be lost in silence.",
    ),
    ErrorCode(
        "log-unavailable",
        "Unavailable",
        "The intent log cannot be reached.",
        "Check that it runs and that the log URL is right.",
    ),
    ErrorCode(
        "log-behind-root",
        "Fenced",
        "The log ends before an offset that a root has already applied: it was restored from a backup or truncated.",
        "Restore the log, or confirm a new log as the table's own.",
        "Do not reset offsets: new intents would be taken for old ones and dropped.",
    ),
    ErrorCode(
        "log-replaced",
        "Fenced",
        "The position or the verdict is of another log: the log was made anew since.",
        "Open the log that the message names, or publish the intent again on this one.",
        "Do not compare offsets of two logs: that skips or repeats intents in silence.",
    ),
    ErrorCode(
        "log-corrupt",
        "Corrupt",
        "The embedded log's file is not a Rootline log, or is damaged.",
        "Move it away and restore it from a copy.",
        "Do not delete it: intents without a verdict are only there.",
    ),
    ErrorCode(
        "publish-unknown",
        "OutcomeUnknown",
        "The log failed while it made a record durable: the record may be on the log or not.",
        "Publish the same intent again: it is committed once.",
        "Do not publish the same files under a new intent.",
    ),
    ErrorCode(
        "verdict-timeout",
        "OutcomeUnknown",
        "No verdict came in time; the intent is on the log and may yet be committed.",
        "Wait longer, or publish the same receipt again: it is committed once.",
        "Do not publish the same files under a new intent.",
    ),
    # use
    ErrorCode(
        "setting-invalid",
        "Invalid",
        "A setting or an option has a value that cannot be used.",
        "Correct it; `rootline config print` shows what is in force.",
    ),
    ErrorCode(
        "filter-invalid",
        "Invalid",
        "A filter cannot be parsed, names an unknown column, or compares with a value of another type.",
        "Write it as in `dep_delay > 60 and carrier = 'UA'`.",
    ),
    ErrorCode(
        "file-unreadable",
        "Invalid",
        "A file cannot be read as what it is said to be, or is encrypted or of a format that is not read.",
        "Check the file; Parquet without encryption is read.",
    ),
    ErrorCode(
        "lake-closed",
        "Invalid",
        "The lake or producer was closed, and is used again.",
        "Call `rootline.connect` again, or open another producer.",
    ),
    ErrorCode(
        "version-unknown",
        "Invalid",
        "The table has no addressable root of this version.",
        "`rootline history` shows the versions there are.",
    ),
    ErrorCode(
        "rows-invalid",
        "Invalid",
        "Rows to write do not fit the table: a column is missing, unknown, of another type, or null where it may not.",
        "Correct the rows; the message names the column. `rootline table describe` shows the schema.",
    ),
    ErrorCode(
        "column-unknown",
        "Invalid",
        "A scan asks for a column that the table does not have.",
        "`rootline table describe` shows the columns.",
    ),
    ErrorCode(
        "equality-delete-unread",
        "Invalid",
        "A live equality delete may remove rows of the files to read, and this version does not carry those out.",
        "Turn equality deletes into deletion vectors with the engine that wrote them, or narrow the scan's filter.",
        "Do not read the files without it: deleted rows would come back.",
    ),
    ErrorCode(
        "data-file-corrupt",
        "Corrupt",
        "A data file's bytes are not what was committed: its length or number of rows differs, or a page is damaged.",
        "Restore the object from a copy. Run `rootline check`.",
        "Do not delete anything.",
    ),
    ErrorCode(
        "invariant-broken",
        "Internal",
        "A rule that every root must keep would be broken by the next one; nothing was written.",
        "Report it, with the table's `rootline check` and the coordinator's log.",
        "Do not restart in a loop.",
    ),
)

CODES: Final = {item.code: item for item in _ALL}
