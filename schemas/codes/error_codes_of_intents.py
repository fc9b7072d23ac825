"""The error codes with which intents are rejected.

Owns: codes about a record, its names and locations, and what it needs to find. Does not own: codes about definitions,
versions and what is no longer needed (`error_codes_of_definitions`), about stored bytes, services and use, and the
registry (`error_codes`).
Invariants: append-only, because codes are on the wire: a code is never renamed, reused or given another meaning.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.codes.error_code import ErrorCode

CODES_OF_INTENTS: Final = (
    # the record itself
    ErrorCode(
        "undecodable",
        "Invalid",
        "The record cannot be decoded: it is neither JSON nor single-object Avro of a known intent schema.",
        "Look at the bytes (`rootline dlq show RECORD --raw`), fix the producer and publish the intent again.",
    ),
    ErrorCode(
        "intent-malformed",
        "Invalid",
        "A field of the intent is missing, has the wrong type, is negative, or does not belong to this kind of intent.",
        "Compare the intent with docs/intents.md; the message names the field.",
    ),
    ErrorCode(
        "kind-unknown",
        "Invalid",
        "The intent's kind does not exist, or this version does not support it.",
        "Use a kind that docs/intents.md lists, or update the coordinator.",
    ),
    ErrorCode(
        "intent-too-large",
        "Invalid",
        "The intent exceeds a limit: bytes, files, nesting or decompressed size; the message says which.",
        "Split the intent, or put the files into a leaf manifest and name that (docs/intents.md).",
    ),
    # names and places
    ErrorCode(
        "table-name-invalid",
        "Invalid",
        "The table's name is not `namespace.table` with letters, digits, `_` and `-`; the namespace may have several "
        "levels, `a.b.table`, and 255 bytes.",
        "Choose a name of that form.",
    ),
    ErrorCode(
        "table-unknown",
        "Invalid",
        "No table has this name in this warehouse.",
        "Create it (`rootline table create`), or correct the name; `rootline table list` lists the tables.",
    ),
    ErrorCode(
        "table-exists",
        "Invalid",
        "A table of this name already exists.",
        "Use it, or choose another name.",
    ),
    ErrorCode(
        "table-uuid-mismatch",
        "Invalid",
        "The intent was made for another table of the same name.",
        "Load the table again and make a new intent.",
        "Do not remove the uuid to force it through: the files may belong to the old table.",
    ),
    ErrorCode(
        "location-invalid",
        "Invalid",
        "A location is empty, too long, outside the table's folder, has a scheme, or contains `..`, control "
        "characters, a backslash or an encoded form of these.",
        "Give locations relative to the table's folder, such as `data/part-0.parquet`.",
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
        "A file to add is already part of the table.",
        "If this is a retry, nothing is lost: the file is there once. Otherwise choose a new location.",
    ),
    ErrorCode(
        "file-not-live",
        "Invalid",
        "A file to remove, or to delete rows from, is not part of the table.",
        "Read the table again and plan the change again; another writer removed or rewrote the file.",
    ),
    ErrorCode(
        "stale-source",
        "Invalid",
        "A file to remove has changed since the writer read it: rows of it were deleted, or it was replaced.",
        "Read the table again and plan the change again.",
        "Do not publish the same files again: rows deleted meanwhile would come back.",
    ),
    ErrorCode(
        "row-count-mismatch",
        "Invalid",
        "The new files of a rewrite hold more rows than those they replace, or fewer than deletes can explain.",
        "Read the files again, with their deletes applied, and write every remaining row once.",
        "Do not publish it as an overwrite: rows would be lost or doubled.",
    ),
    ErrorCode(
        "row-conflict",
        "Invalid",
        "Rows that this intent deletes or updates were meanwhile changed by another intent.",
        "Read the table again and plan the change again.",
    ),
    ErrorCode(
        "isolation-conflict",
        "Invalid",
        "Data or deletes that may match the intent's filter came after the snapshot that the writer read.",
        "Read the table again and plan the change again.",
    ),
    ErrorCode(
        "schema-unknown",
        "Invalid",
        "The table never had this schema id.",
        "Load the table again; `rootline table describe` lists its schemas.",
    ),
    ErrorCode(
        "spec-unknown",
        "Invalid",
        "The table never had this partition spec id.",
        "Load the table again; `rootline table describe` lists its specs.",
    ),
    ErrorCode(
        "statistics-missing",
        "Invalid",
        "A file lacks partition values: the lower bound of every id of its partition spec (null bounds for null).",
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
        "A deletion vector cannot be read, lacks positions of the one it replaces, or does not match its data file.",
        "Write the vector again; its positions are row numbers of the data file, from 0.",
    ),
    ErrorCode(
        "leaf-invalid",
        "Invalid",
        "A leaf manifest that the intent names cannot be read, or does not contain what the intent says.",
        "Write the leaf again, as docs/format.md says; the message names the entry and the rule.",
    ),
    ErrorCode(
        "flush-stale",
        "Invalid",
        "None of the entries that a flush would move is still live in the place it came from.",
        "Do nothing: the leaf is an orphan, and the next flush starts from the new root.",
    ),
    ErrorCode(
        "compaction-stale",
        "Invalid",
        "None of the entries that a compaction would move is still live in the place it came from.",
        "Do nothing: what it wrote is an orphan, and the next compaction starts from the new root.",
    ),
    ErrorCode(
        "root-full",
        "Invalid",
        "The root would hold more rows or bytes than one root can.",
        "Let a worker flush the table (`rootline worker`), or flush it by hand (`rootline maintenance run flush "
        "TABLE`); then publish the intent again.",
    ),
    ErrorCode(
        "leaf-missing",
        "Invalid",
        "A leaf manifest that the intent names does not exist.",
        "Store the leaf first, under the name that contains its digest, then publish the intent again.",
    ),
    ErrorCode(
        "adoption-invalid",
        "Invalid",
        "What the intent adopts is not what it says, or breaks a rule: a manifest is missing, was changed, or cannot "
        "be read; a file is listed twice; a vector has no data file.",
        "Look at the object that the message names. `rootline adopt METADATA_JSON TABLE --dry-run` checks again and "
        "changes nothing.",
    ),
    ErrorCode(
        "row-count-implausible",
        "Invalid",
        "A data file says that it has more rows than its bytes can hold, or a file or an intent has more than the "
        "table allows. Row ids are handed out by these counts and never come back.",
        "Correct `record_count` or `file_size_in_bytes` and publish the intent again. If the count is true, split the "
        "intent, or make the table with larger `rootline.rows.file-max` and `rootline.rows.intent-max`.",
    ),
    ErrorCode(
        "data-file-missing",
        "Invalid",
        "The table looks at new data files (`rootline.verify.files`), and this one is not in its store.",
        "Store the file, then publish the intent again; or correct the location.",
    ),
    ErrorCode(
        "data-file-misstated",
        "Invalid",
        "The table looks at new data files (`rootline.verify.files`), and this one has another length, or by its "
        "footer another number of rows, than the intent or its leaf says.",
        "Correct `file_size_in_bytes` or `record_count` and publish the intent again.",
    ),
    ErrorCode(
        "batch-unreadable",
        "Invalid",
        "The record came in a batch that decompresses to more than 32 MiB, or that cannot be read. None of the batch's "
        "records was decoded, so neither their tables nor their intents are known.",
        "Find the producer by partition, offsets and time, and publish its intents again in smaller batches "
        "(`batch.size`, `linger.ms`), each record below 1 MB.",
    ),
    ErrorCode(
        "sequence-reused",
        "Invalid",
        "The table has committed this sequence of this writer already, and the writer said then that it held something "
        "else. The new data is not in the table.",
        "New data: publish it under a sequence that the writer has not used, or under another `writer_id`. The same "
        "data in files of other names: it is in the table; let replays give `content` words that they repeat.",
        "Do not publish it under a new sequence before you know that it is new data: the rows would be there twice.",
    ),
    ErrorCode(
        "signature-missing",
        "Invalid",
        "The coordinators ask for a signature on every record (`ROOTLINE_COORDINATOR__PRINCIPALS_FILE`), and this one "
        "has none.",
        "Give the writer a key (`ROOTLINE_KAFKA__SIGNING_KEY_ID`, `ROOTLINE_KAFKA__SIGNING_KEY_FILE`), or let it set "
        "the header `rootline-signature` itself (docs/foreign-clients.md); then publish the intent again.",
    ),
    ErrorCode(
        "signature-wrong",
        "Invalid",
        "The record's signature is of a key that the coordinators do not know, or is not that key's over this record.",
        "Compare the writer's key id and secret with the policy file of the coordinators, and that these were started "
        "again after it changed; then publish the intent again.",
        "Do not publish such dead letters with a key of your own before you know who wrote them.",
    ),
    ErrorCode(
        "not-permitted",
        "Invalid",
        "The key that signed the record may not write this table, or not with this kind of intent; or the intent names "
        "no writer and sequence, which a signed one must.",
        "Use a key that may, or add the table and the kind to the key's entry in the policy file of the coordinators "
        "and start them again; then publish the intent again.",
    ),
    ErrorCode(
        "signature-expired",
        "Invalid",
        "The record came to the log too long after it was signed, or long before by its writer's clock; or it does not "
        "say when it was signed, and the policy of the coordinators asks for that. Someone may have sent an old record "
        "again. The times are the signed one and the log's own.",
        "If the writer sent it: set its clock right, and publish the intent again, which signs it again. If your "
        "producers hold records for longer, raise `signed_hours_max` in the policy file.",
        "Do not publish such dead letters with a key of your own before you know who sent them.",
    ),
    ErrorCode(
        "merge-ambiguous",
        "Invalid",
        "More than one row of a merge's source matches the same row of the table, so what becomes of it is not said. "
        "Nothing was changed.",
        "Leave one source row for each row of the table: group or deduplicate the source by the columns of the "
        "condition.",
    ),
    ErrorCode(
        "lake-mismatch",
        "Invalid",
        "A client or a coordinator uses the log of one lake with the warehouse of another. Each lake has an id, the "
        "object `0-rootline-lake/lake.json` in its warehouse. The message names both, and nothing was changed.",
        "Name the warehouse that belongs to the log, or the log that belongs to the warehouse. If the warehouse was "
        "moved without that object, copy it from the old place.",
        "Do not delete the object: the next coordinator would take the warehouse for another lake.",
    ),
)
