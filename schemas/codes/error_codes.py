"""Every error code, what it means, what to do and what not to do.

Owns: the registry behind `rootline explain`; codes about stored bytes, services and use. Does not own: codes with which
intents are rejected (`error_codes_of_intents`, `error_codes_of_definitions`), when a code is used.
Invariants: append-only, because codes are on the wire: a code is never renamed, reused or given another meaning.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.codes.error_code import ErrorCode
from rootline.schemas.codes.error_codes_of_definitions import CODES_OF_DEFINITIONS
from rootline.schemas.codes.error_codes_of_intents import CODES_OF_INTENTS

_MEND: Final = (
    "Restore the object from a copy. Run `rootline check`. If the table is quarantined, lift it (`rootline quarantine "
    "lift`)."
)
_WAY_OUT: Final = (
    "If no copy of a data file is left: `rootline check` prints an intent that takes it out of the table; publish that "
    "line with `rootline publish`."
)

_CODES_OF_THE_REST: Final = (
    # stored bytes
    ErrorCode(
        "root-corrupt",
        "Corrupt",
        "A root's bytes are not what was written: its digest, counts, blocks or header do not match.",
        _MEND,
        "Do not delete anything: other roots may still reference what this one names.",
    ),
    ErrorCode(
        "leaf-corrupt",
        "Corrupt",
        "A leaf's bytes are not what was written: its length, footer or page digest does not match.",
        _MEND,
        "Do not delete anything.",
    ),
    ErrorCode(
        "vector-corrupt",
        "Corrupt",
        "A deletion vector's bytes are not what was written: its length, magic, CRC or cardinality does not match.",
        _MEND,
        "Do not drop the vector: deleted rows would come back.",
    ),
    ErrorCode(
        "definition-unreadable",
        "Corrupt",
        "A table definition's bytes are not what was written.",
        _MEND,
    ),
    ErrorCode(
        "page-corrupt",
        "Corrupt",
        "A page of the ledger or of outcomes is not what was written, or not what its root says about it.",
        _MEND,
        "Do not drop the page: intents that were committed before would be committed again.",
    ),
    ErrorCode(
        "object-missing",
        "Corrupt",
        "An object that a root references does not exist.",
        f"{_MEND} {_WAY_OUT}",
    ),
    ErrorCode(
        "profile-unknown",
        "Corrupt",
        "The object has a format profile that this version does not know.",
        "Update Rootline.",
    ),
    # what `rootline check` finds
    ErrorCode(
        "version-gap",
        "Corrupt",
        "A version between the oldest addressable root and the head is missing.",
        "Restore the root from a copy.",
        "Do not write a new root under this number: it would be another snapshot.",
    ),
    ErrorCode(
        "parent-mismatch",
        "Corrupt",
        "A root does not follow from the one stored before it: the parent digest, parent id or table uuid differs.",
        "Restore the older root from a copy.",
    ),
    ErrorCode(
        "snapshot-wrong",
        "Corrupt",
        "A root's snapshot is out of order: its id, sequence number, timestamp or row ids do not follow from its "
        "parent.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "tags-wrong",
        "Corrupt",
        "A tag changed although no intent changed it, or it names a version that was not addressable.",
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
        "A root's header holds more of the ledger or of outcomes than is allowed; the rest belongs in pages.",
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
        "A leaf does not match its root row: its entries, partition spec, content or the leaf it belongs to.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "aggregate-wrong",
        "Corrupt",
        "A leaf's counts or statistics differ from those of its entries: scans may skip files that they should read.",
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
        "A deletion vector does not match its entry or its data file, has no data file, or is not its only vector.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "live-set-wrong",
        "Corrupt",
        "What was added and removed between two roots is not what the newer root shows as added and removed.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "definition-mismatch",
        "Corrupt",
        "A table definition belongs to another table, or lacks something that entries refer to.",
        "Report it, with the output of `rootline check`.",
    ),
    ErrorCode(
        "length-wrong",
        "Corrupt",
        "An object's length differs from what the entry that names it says.",
        f"Restore the object from a copy. {_WAY_OUT}",
    ),
    # services
    ErrorCode(
        "store-unavailable",
        "Unavailable",
        "The object store does not answer.",
        "Check that it is running and that the warehouse URL is right; the coordinator keeps trying.",
    ),
    ErrorCode(
        "store-lies",
        "Fenced",
        "The object store lets two writers create the same object: it ignores `If-None-Match`, or checks it too late.",
        "Use a store that supports conditional PUTs (docs/stores.md), or update this one.",
        "Do not run Rootline on it: commits would be lost silently.",
    ),
    ErrorCode(
        "log-unavailable",
        "Unavailable",
        "The intent log cannot be reached.",
        "Check that it is running and that the log URL is right.",
    ),
    ErrorCode(
        "log-behind-root",
        "Fenced",
        "The log ends before an offset that a root has already applied, or has another record there than the one that "
        "the root decided: it was restored from a backup or truncated, and may have grown since. Nothing of the table "
        "is decided meanwhile.",
        "Restore the log. If an embedded log cannot be restored: close all programs that have the lake open and run "
        "`rootline table accept TABLE --yes`. What was published since is decided then; tables keep what they have. If "
        "a topic cannot be restored, make it again under the same name, go on as for `log-replaced`, and let writers "
        "publish again what has no verdict.",
        "Do not reset offsets: new intents would be taken for old ones and dropped.",
    ),
    ErrorCode(
        "log-replaced",
        "Fenced",
        "The position or the verdict belongs to another log: the log has been replaced since.",
        "Open the log that the message names, or publish the intent again on this one.",
        "Do not compare offsets of two logs: that silently skips or repeats intents.",
    ),
    ErrorCode(
        "offset-out-of-range",
        "Fenced",
        "Retention removed records from the intents topic before they were decided, or nothing says that they were; "
        "the message names the partitions.",
        "Ask the writers of the named offsets to publish again. On Kafka stop the coordinators, run `rootline topics "
        "accept`, start them, and keep intents longer (`rootline topics check`). Open an embedded lake again.",
        "Do not reset the group to the latest offset: undecided intents would be skipped.",
    ),
    ErrorCode(
        "group-active",
        "Invalid",
        "The coordinators' consumer group has members, so its offsets cannot be set.",
        "Stop every coordinator of the group, wait until their sessions end, and try again.",
        "Do not give the coordinators another group id: the log would be read from its beginning.",
    ),
    ErrorCode(
        "log-corrupt",
        "Corrupt",
        "The embedded log's file is not a Rootline log, it is damaged, or it has a layout that this version does not "
        "read.",
        "If the message names a layout or another version, do what it says. Else move the file away and restore it "
        "from a copy.",
        "Do not delete it: intents without a verdict exist nowhere else.",
    ),
    ErrorCode(
        "publish-unknown",
        "OutcomeUnknown",
        "The log failed while it stored a record: the record may or may not be on the log. Or the log was restored or "
        "truncated since, and another record is in its place.",
        "Publish the same intent again: it is committed once.",
        "Do not publish the same files under a new intent.",
    ),
    ErrorCode(
        "verdict-timeout",
        "OutcomeUnknown",
        "No verdict came in time; the intent is on the log and may yet be committed. The message names the log, and "
        "says whether a coordinator was seen on it.",
        "If none runs, start one as the message says. Then wait longer, or publish the same receipt again: it is "
        "committed once.",
        "Do not publish the same files under a new intent.",
    ),
    ErrorCode(
        "export-unfinished",
        "Unavailable",
        "The export that an engine asked for is still being made: the first export of a large table takes a while.",
        "Ask again: the export continues meanwhile. Or raise ROOTLINE_CATALOG__REQUEST_TIMEOUT_S.",
    ),
    # use
    ErrorCode(
        "setting-invalid",
        "Invalid",
        "A setting or an option has a value that cannot be used.",
        "Correct it; `rootline config print` shows the settings in force.",
    ),
    ErrorCode(
        "filter-invalid",
        "Invalid",
        "A filter cannot be parsed, names an unknown column, or compares a column with a value of another type.",
        "Correct the filter. An example: `dep_delay > 60 and carrier = 'UA'`.",
    ),
    ErrorCode(
        "file-unreadable",
        "Invalid",
        "A file cannot be read in its stated format, is encrypted, or is stored where the warehouse's store cannot "
        "read; or one of its columns cannot be read reliably.",
        "Check the file. Unencrypted Parquet, ORC (no timestamps) and Avro can be read (docs/reading.md). An "
        "absolute location needs a warehouse in a store that can read it, and ROOTLINE_ABSOLUTE_READS must not "
        "exclude it.",
    ),
    ErrorCode(
        "lake-closed",
        "Invalid",
        "The lake or producer was used after it had been closed.",
        "Call `rootline.connect` again, or open another producer.",
    ),
    ErrorCode(
        "version-unknown",
        "Invalid",
        "The table has no addressable root of this version.",
        "Choose another version; `rootline history` lists them.",
    ),
    ErrorCode(
        "rows-invalid",
        "Invalid",
        "Rows to write do not fit the table: a column is missing, unknown, of another type, or null where it is "
        "required.",
        "Correct the rows; the message names the column. `rootline table describe` shows the schema.",
    ),
    ErrorCode(
        "column-unknown",
        "Invalid",
        "A scan asks for a column that the table does not have.",
        "Correct the name; `rootline table describe` lists the columns.",
    ),
    ErrorCode(
        "equality-delete-unread",
        "Invalid",
        "A live delete file applies to one partition, and a file's statistics do not say which partition it is in.",
        "Rewrite the file that the message names with its partition values, or narrow the scan's filter.",
        "Do not read the files without the delete: deleted rows would come back.",
    ),
    ErrorCode(
        "data-file-corrupt",
        "Corrupt",
        "A data file is not what was committed: its length or number of rows differs, or a page is damaged.",
        f"Restore the object from a copy. Run `rootline check`. {_WAY_OUT}",
        "Do not delete anything.",
    ),
    ErrorCode(
        "export-unsupported",
        "Invalid",
        "The table, or one of its files, cannot be expressed in the Iceberg format version that was asked for.",
        "Export the other format version (property `rootline.export.format`), or change what the message names.",
    ),
    ErrorCode(
        "export-corrupt",
        "Corrupt",
        "An object under a table's `export/` is not what was written there: its bytes differ, or it is another "
        "table's.",
        "Delete the object that the message names, and restart the exporting process if an engine saw the error: the "
        "next export makes it again.",
        "Do not delete anything outside `export/`: data, roots and leaves cannot be made again.",
    ),
    ErrorCode(
        "adoption-unsupported",
        "Invalid",
        "The Iceberg table uses something that Rootline does not support, or its metadata contradicts itself.",
        "Nothing was written. Change the table with the engine that wrote it, if possible, and adopt its newest "
        "metadata.",
    ),
    ErrorCode(
        "metadata-unreadable",
        "Invalid",
        "The object is not the metadata JSON of an Iceberg table.",
        "Give the location of the metadata.json that the table's catalog names as its current one.",
    ),
    ErrorCode(
        "invariant-broken",
        "Internal",
        "The next root would break a rule that every root must keep; nothing was written.",
        "Report it, with the output of `rootline check` and the coordinator's log.",
        "Do not restart the coordinator in a loop.",
    ),
    ErrorCode(
        "head-lost",
        "Fenced",
        "The store's newest root of a table is older than one that was confirmed, or there is none: the store has lost "
        "roots, or was restored from a backup.",
        "Bring the missing roots back and run `rootline quarantine lift`. If they are gone: on an embedded log stop "
        "the coordinator, let `rootline table accept` show and accept the loss, and start it. On Kafka start the "
        "coordinators again.",
        "Do not publish again before that: what was committed in the lost versions would be taken for new.",
    ),
    ErrorCode(
        "name-differs-in-case",
        "Invalid",
        "A table or namespace is there whose name differs only in case, and the warehouse's file system cannot tell "
        "the two apart.",
        "Use the name that is there, or a name that differs in more than case.",
    ),
    ErrorCode(
        "data-file-mismatch",
        "Invalid",
        "A data file's columns are not the table's: one has a type that the table's column cannot take in, or a field "
        "id that no schema of the table has, so that a column to come would read it.",
        f"Write the rows again, through Rootline or with the table's field ids. {_WAY_OUT}",
    ),
    ErrorCode(
        "statistics-wrong",
        "Corrupt",
        "A data file has other counts of nulls than its entry says, or values outside its bounds: filters miss rows.",
        "Read the file's rows without a filter and write them again with `overwrite`.",
        "Do not trust scans with filters until then.",
    ),
    ErrorCode(
        "table-parked",
        "Invalid",
        "The table cannot go on, and as many of its intents are parked as may be.",
        "See `rootline quarantine list`, mend the table, run `rootline quarantine lift` on it, and publish again.",
        "Do not publish to this table before that.",
    ),
    ErrorCode(
        "parked-missing",
        "Corrupt",
        "Parked records of the table are not in the topic of parked records any more; the table stopped there.",
        "Bring the topic back. If they are gone, `rootline quarantine lift --without-missing` goes on without them; "
        "ask writers without a verdict to publish again.",
    ),
    ErrorCode(
        "redis-unavailable",
        "Unavailable",
        "Redis does not answer in time, or refuses. Every process works for itself meanwhile; commits do not need it.",
        "Check the server and `ROOTLINE_REDIS__URL`.",
    ),
)

CODES: Final = {item.code: item for item in (*CODES_OF_INTENTS, *CODES_OF_DEFINITIONS, *_CODES_OF_THE_REST)}
