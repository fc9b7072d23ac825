"""The error codes with which changes of definitions and versions are rejected, and what brings back what was given up.

Owns: codes about definitions, names, tags, versions, expiry and sweep, and about rights on the store. Does not own:
codes about other intents (`error_codes_of_intents`), and the registry (`error_codes`).
Invariants: append-only, because codes are on the wire: a code is never renamed, reused or given another meaning.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.codes.error_code import ErrorCode

CODES_OF_DEFINITIONS: Final = (
    ErrorCode(
        "definition-invalid",
        "Invalid",
        "The table definition cannot be read, or has a type, transform, default, sort order or name mapping that "
        "cannot be used.",
        "Correct the definition; the message names the field.",
    ),
    ErrorCode(
        "tag-invalid",
        "Invalid",
        "The tag's name is not 1 to 64 letters, digits, `.`, `_` or `-`; or the table has as many tags as it may.",
        "Choose another name, or delete a tag that is no longer needed (`rootline tag TABLE NAME --delete`).",
    ),
    ErrorCode(
        "tag-conflict",
        "Invalid",
        "The tag is not where the writer saw it: another writer set, moved or deleted it meanwhile.",
        "See where it is now (`rootline tag TABLE`), and decide again.",
    ),
    ErrorCode(
        "definition-changed",
        "Invalid",
        "The table's definition is not the one that the changes were made for: another change came first.",
        "Load the table again and make the change on its present definition; `table.alter()` does so by itself.",
    ),
    ErrorCode(
        "evolution-illegal",
        "Invalid",
        "A table cannot go from its definition to this one: rows that are there could not be read as they were meant.",
        "The message names the column and the rule. Add a column instead of changing one, or rewrite the table.",
    ),
    ErrorCode(
        "tag-unknown",
        "Invalid",
        "The table has no tag of this name.",
        "Correct the name; `rootline tag TABLE` lists the tags.",
    ),
    ErrorCode(
        "restore-impossible",
        "Invalid",
        "The version to restore is addressable, but it or its definition cannot be read, or it differs too much.",
        "See the message for the reason. `rootline scan --version` still reads its rows, unless `rootline check` "
        "finds damage.",
    ),
    ErrorCode(
        "column-untracked",
        "Invalid",
        "A partition spec, a sort order or an expression of the definition reads a column whose id is above "
        "10,000,000. Such a column has no statistics.",
        "Partition, sort or derive by another column, or give the column an id up to 10,000,000.",
    ),
    ErrorCode(
        "expiry-stale",
        "Invalid",
        "The expiry would go back: versions up to a later one have expired already.",
        "Nothing needs to be done: workers plan again from the newest version. By hand, name a later version.",
    ),
    ErrorCode(
        "version-tagged",
        "Invalid",
        "The expiry would give up a version that has a tag.",
        "Name the version in the page of kept ones, or delete the tag (`rootline tag TABLE NAME --delete`).",
    ),
    ErrorCode(
        "page-invalid",
        "Invalid",
        "The page that the intent names is absent, is not what the intent says of it, or contradicts the table.",
        "Store the page first, under the name that its digest gives, then publish the intent. Workers plan again.",
    ),
    ErrorCode(
        "sweep-stale",
        "Invalid",
        "The sweep changes nothing any more: its horizon is there already and what it condemns is live, or the pages "
        "that it replaces are gone.",
        "Nothing needs to be done: the next sweep plans from the newest version.",
    ),
    ErrorCode(
        "sweep-refused",
        "Invalid",
        "Nothing of this table is swept: other software's metadata is in its folder, the log keeps its records for "
        "ever, or this process may not delete. As a worker's count of failures also: something of a table stays, "
        "because a table that adopted files cannot be read, or because no store takes its name.",
        "See the message (`sweep-failed`, `sweep-held-up`) for the object and the reason. Everything else goes on; "
        "only what is not needed stays in the store.",
    ),
    ErrorCode(
        "horizon-wrong",
        "Invalid",
        "The horizon of a sweep is too young. It stays behind the log's time by the log's retention and a day, or by "
        "`rootline.sweep.orphan-age-s` if that is longer, so that no file expires before its intent is read.",
        "Propose an older horizon. Workers plan again; if it happens often, compare their clocks with the log's.",
    ),
    ErrorCode(
        "file-removed",
        "Invalid",
        "The intent brings a file that the table has condemned: it was removed and its history expired, or it was "
        "never committed in time. It may be deleted at any moment. Or the file was rewritten, and then a restore undid "
        "that, or the intent brings something else too.",
        "Write the rows again, under a new name. If the intent is an old one that was sent again, do nothing.",
        "Do not copy the file back under its old name: the name stays condemned until the horizon has passed it.",
    ),
    ErrorCode(
        "expired",
        "Invalid",
        "The oldest file of the intent was uploaded before the table's horizon, so that a sweep may have deleted it.",
        "Write the rows again and publish a new intent. Publish within a day of the upload.",
    ),
    ErrorCode(
        "oldest-file-missing",
        "Invalid",
        "The table has a horizon, and the intent brings more than 1,000 files without saying when the oldest was "
        "uploaded.",
        "Send `rootline-oldest-file-ms` with the record: the store's date of the first upload, in milliseconds.",
    ),
    ErrorCode(
        "oldest-file-wrong",
        "Invalid",
        "The date that the intent gives for its oldest file is more than an hour after its own append time, or is no "
        "number.",
        "Send the store's date of the first upload (the `Date` of its answer); compare the clocks of store and log.",
    ),
    ErrorCode(
        "file-missing",
        "Invalid",
        "The table has a horizon, the intent does not say when its files were uploaded, and one of them does not exist "
        "or may not be read by the coordinator.",
        "Upload every file first, then publish the intent.",
    ),
    # names
    ErrorCode(
        "table-dropped",
        "Invalid",
        "The table was dropped, and no other table has its name now.",
        "Bring it back (`rootline table restore`) while its files are there, or create a new one of this name.",
    ),
    ErrorCode(
        "table-uuid-missing",
        "Invalid",
        "A table of this name was dropped once, so an intent must say which table it is made for, and does not.",
        "Load the table, and name its uuid as `table_uuid` in every intent.",
        "Do not fill in the newest uuid for intents that were made before: their rows may be of the dropped table.",
    ),
    ErrorCode(
        "view-invalid",
        "Invalid",
        "The view's metadata is not JSON, or has a field that is missing, of a wrong type, or does not fit the others.",
        "Correct the view; the message names the field.",
    ),
    ErrorCode(
        "view-format-unsupported",
        "Invalid",
        "The view is of a later format version than this software reads.",
        "Use newer software, or have the view written in format-version 1.",
        "Do not change the number by hand: what a later format means is not known here.",
    ),
    ErrorCode(
        "view-dialect-twice",
        "Invalid",
        "One version of the view has several SQL texts in the same dialect.",
        "Keep one text for each dialect; upper and lower case do not make a dialect another one.",
    ),
    ErrorCode(
        "view-too-large",
        "Invalid",
        "The view's metadata, with all of its versions, has more bytes than are kept.",
        "Shorten its SQL, or keep fewer versions (`version.history.num-entries`).",
    ),
    ErrorCode(
        "view-version-unknown",
        "Invalid",
        "The view does not have this version, or it was cut from its history.",
        "Choose one of the versions that the message names.",
    ),
    ErrorCode(
        "namespace-invalid",
        "Invalid",
        "The namespace's name is not of parts with letters, digits, `_` and `-` between dots, is longer than 255 "
        "bytes, or its properties are more than 1 MB.",
        "Choose a name of that form, or shorter properties.",
    ),
    ErrorCode(
        "namespace-exists",
        "Invalid",
        "A namespace of this name exists: it was created, or a table or view is in it.",
        "Use it (`if_not_exists=True`, `--if-not-exists`), or choose another name.",
    ),
    ErrorCode(
        "namespace-unknown",
        "Invalid",
        "No namespace has this name in this warehouse.",
        "Create it (`rootline namespace create`), or correct the name; `rootline namespace list` lists them.",
    ),
    ErrorCode(
        "namespace-not-empty",
        "Invalid",
        "The namespace to drop has a table, a view or a namespace in it.",
        "Drop what is in it first; the message names one.",
    ),
    ErrorCode(
        "namespace-unreadable",
        "Corrupt",
        "An object with a namespace's properties is not what was written.",
        "Restore the object from a copy.",
        "Do not delete it: the properties before it would be those of the namespace again.",
    ),
    ErrorCode(
        "namespace-unconfirmed",
        "OutcomeUnknown",
        "The change of the namespace was not confirmed in time: others changed it again and again, or the store was "
        "slow. Perhaps it was made.",
        "See what is there (`rootline namespace describe`), and repeat what is missing.",
    ),
    ErrorCode(
        "name-is-view",
        "Invalid",
        "The name is a view's, and what was asked for is for tables only.",
        "Read the view's SQL (`rootline view show`), or choose another name.",
    ),
    ErrorCode(
        "name-is-table",
        "Invalid",
        "The name is a table's, and what was asked for is for views only.",
        "Use the table (`lake.table`), or choose another name; `rootline view list` lists the views.",
    ),
    ErrorCode(
        "view-unknown",
        "Invalid",
        "No view has this name in this warehouse.",
        "Create it (`rootline view create`), or correct the name; `rootline view list` lists the views.",
    ),
    ErrorCode(
        "view-exists",
        "Invalid",
        "A view has this name already.",
        "Replace it (`rootline view replace`), drop it first, or choose another name.",
    ),
    ErrorCode(
        "view-changed",
        "Invalid",
        "The view's current version is not the one that the change was made for: another change came first.",
        "Load the view again, and decide again.",
    ),
    ErrorCode(
        "table-replaced",
        "Invalid",
        "The table was replaced since the change was made: the change names a schema of before, so it was meant for "
        "what the table held then. Nothing of it was committed.",
        "Open the table again, look at what it holds now, and write to that if you still want to.",
        "Do not send the same files again under a newer schema id: their rows may not belong to what is there now.",
    ),
    ErrorCode(
        "schema-id-missing",
        "Invalid",
        "A table of this name was replaced before, and the intent brings rows or equality deletes without saying which "
        "schema they were made for: it may have been meant for what the table held before.",
        "Send `schema_id` with the intent: the id of the table's current schema when its files were written.",
    ),
    ErrorCode(
        "purge-stale",
        "Invalid",
        "A worker would purge a dropped table, and it came back, was dropped again, or is kept for longer.",
        "Nothing needs to be done: workers look again. To purge it at once: `rootline table drop --purge --yes`.",
    ),
    ErrorCode(
        "upgrade-needed",
        "Invalid",
        "Retired: this version never answers with it, but older verdicts and dead letters may contain it. The first "
        "release did not know what was asked for, and its coordinators could still read the log then.",
        "Send it again: a log that this version opens is closed to the first release.",
        "Do not change the intent: nothing is wrong with it.",
    ),
    ErrorCode(
        "store-denied",
        "Unavailable",
        "The object store knows the access key, and does not let it do this.",
        "Give the key the right that the message names, for that place (`deploy/policies` has the rights of each "
        "role), or use the key of another role. Services try again by themselves; keys that changed need a restart.",
        "Do not give every process all rights: a worker that expires and sweeps is the only one that has to delete.",
    ),
    ErrorCode(
        "stream-version-expired",
        "Invalid",
        "A stream of a table's commits has not read a version that is gone: it stood still for longer than versions "
        "are kept, or was to start before the oldest one.",
        "Start a new query with a checkpoint of its own; without `startingVersion` it begins with all rows there are. "
        "Keep versions for longer than a stream may stand still.",
        "Do not edit the checkpoint to go on at a later version: what the versions in between changed would be missing "
        "from what the stream writes.",
    ),
    ErrorCode(
        "stream-rows-deleted",
        "Invalid",
        "A stream shows the rows that come, and a commit deleted or changed rows.",
        "Read with option `changes=true` and handle `_change_type`, or leave deleted rows out with "
        "`onDeletedRows=skip`.",
    ),
    ErrorCode(
        "spark-unavailable",
        "Unavailable",
        "A worker gave a compaction to Spark (`ROOTLINE_WORKER__SPARK_MASTER`), and it ended without a result.",
        "The message has the last lines that Spark wrote: mend what they name (the master's address, the Python and "
        "the settings of its executors, their memory). The worker tries again by itself.",
        "Do not delete what such a compaction stored: files that no version names go with the sweep.",
    ),
    ErrorCode(
        "property-invalid",
        "Invalid",
        "A table property that Rootline reads has a value that cannot be used, or a name below `rootline.` does not "
        "exist.",
        "Correct the value or the name; the message says what is allowed, and which name is nearest.",
    ),
)
