"""Every error code, what it means, what to do and what not to do.

Owns: the registry behind `rootline explain`; codes about stored bytes, services and use. Does not own: codes with which
intents are rejected (`error_codes_of_intents`), when a code is used.
Invariants: append-only, because codes are on the wire: a code is never renamed, reused or given another meaning.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.error_code import ErrorCode
from rootline.schemas.error_codes_of_intents import CODES_OF_INTENTS

_CODES_OF_THE_REST: Final = (
    # stored bytes
    ErrorCode(
        "root-corrupt",
        "Corrupt",
        "A root's bytes are not what was written: digest, counts, blocks or header do not agree.",
        "Restore the object from a copy. Run `rootline check`. Restart the coordinator if it quarantined the table.",
        "Do not delete anything: other roots may still reference what this one names.",
    ),
    ErrorCode(
        "leaf-corrupt",
        "Corrupt",
        "A leaf's bytes are not what was written: length, footer or page digests do not agree.",
        "Restore the object from a copy. Run `rootline check`. Restart the coordinator if it quarantined the table.",
        "Do not delete anything.",
    ),
    ErrorCode(
        "vector-corrupt",
        "Corrupt",
        "A deletion vector's bytes are not what was written: length, magic, CRC or cardinality do not agree.",
        "Restore the object from a copy. Run `rootline check`. Restart the coordinator if it quarantined the table.",
        "Do not drop the vector: deleted rows would come back.",
    ),
    ErrorCode(
        "definition-unreadable",
        "Corrupt",
        "A table definition's bytes are not what was written.",
        "Restore the object from a copy. Run `rootline check`. Restart the coordinator if it quarantined the table.",
    ),
    ErrorCode(
        "page-corrupt",
        "Corrupt",
        "The bytes of a page of ledger or outcomes are not what was written, or not what its root says of it.",
        "Restore the object from a copy. Run `rootline check`. Restart the coordinator if it quarantined the table.",
        "Do not drop the page: intents that were committed before would be committed again.",
    ),
    ErrorCode(
        "object-missing",
        "Corrupt",
        "An object that a root references does not exist.",
        "Restore the object from a copy. Run `rootline check`. Restart the coordinator if it quarantined the table.",
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
        "tags-wrong",
        "Corrupt",
        "A tag changed without an intent that says so, or names a version that was not addressable.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "progress-lost",
        "Corrupt",
        "Log offsets, outcomes or the writers' ledger went back from one root to the next.",
        "Stop the writers and report it: intents may be applied twice or lost.",
    ),
    ErrorCode(
        "header-too-large",
        "Corrupt",
        "A root's header holds more ledger or outcomes than a header may; what exceeds belongs into pages.",
        "Report it, with the output of `rootline check`.",
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
        "offset-out-of-range",
        "Fenced",
        "Retention removed records from the intents topic before they were decided; the message names them.",
        "Ask the writers of the named offsets to publish again. Stop the coordinators, run `rootline topics accept`, "
        "start them, and keep intents longer (`rootline topics check`).",
        "Do not reset the group to the latest offset: undecided intents would be skipped.",
    ),
    ErrorCode(
        "group-active",
        "Invalid",
        "The coordinators' consumer group has members, so its offsets cannot be set.",
        "Stop every coordinator of the group, wait until their session ends, and try again.",
        "Do not give the coordinators another group id: the log would be read from its beginning.",
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
    ErrorCode(
        "export-unfinished",
        "Unavailable",
        "What an engine asked for is still being made: the first export of a large table takes a while.",
        "Ask again: what is made until then is kept. Or raise ROOTLINE_CATALOG__REQUEST_TIMEOUT_S.",
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
        "A file cannot be read as what it is said to be, is encrypted, rests where the warehouse's store does not "
        "read, or a column of it cannot be read for certain.",
        "Check the file; Parquet, ORC (no timestamps) and Avro without encryption are read (docs/reading.md). An "
        "absolute location needs a warehouse in a store that reads it, and ROOTLINE_ABSOLUTE_READS may not exclude it.",
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
        "A live delete file goes by partition, and the statistics of a file do not tell which partition it is in.",
        "Rewrite the file that the message names with its partition values, or narrow the scan's filter.",
        "Do not read the files without the delete: deleted rows would come back.",
    ),
    ErrorCode(
        "data-file-corrupt",
        "Corrupt",
        "A data file's bytes are not what was committed: its length or number of rows differs, or a page is damaged.",
        "Restore the object from a copy. Run `rootline check`.",
        "Do not delete anything.",
    ),
    ErrorCode(
        "export-unsupported",
        "Invalid",
        "The table, or one of its files, cannot be said in the format version that other engines asked for.",
        "Export another version (property `rootline.export.format`), or change what the message names.",
    ),
    ErrorCode(
        "export-corrupt",
        "Corrupt",
        "An object under a table's `export/` is not what was written there: other bytes, or another table's.",
        "Delete what the message says, and restart what exports if an engine saw it: the next export makes it anew.",
        "Do not delete what is outside `export/`: data, roots and leaves cannot be made anew.",
    ),
    ErrorCode(
        "adoption-unsupported",
        "Invalid",
        "The Iceberg table uses something that a table of this version cannot have, or its metadata contradicts "
        "itself.",
        "Change it with the engine that wrote it, if that can be done, and adopt the newest metadata. Nothing was "
        "written.",
    ),
    ErrorCode(
        "metadata-unreadable",
        "Invalid",
        "The object is no metadata JSON of an Iceberg table.",
        "Give the location of the metadata.json that the table's catalog names as its current one.",
    ),
    ErrorCode(
        "invariant-broken",
        "Internal",
        "A rule that every root must keep would be broken by the next one; nothing was written.",
        "Report it, with the table's `rootline check` and the coordinator's log.",
        "Do not restart in a loop.",
    ),
)

CODES: Final = {item.code: item for item in (*CODES_OF_INTENTS, *_CODES_OF_THE_REST)}
