"""A view, as a program sees it.

Owns: the public methods of a view. Does not own: the intents (`views`), a view's metadata (`rootline.schemas.views`).
Invariants: holds no connection, only names one, so it may be pickled and shared between threads; every change waits for
its verdict; what `metadata` returns never changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rootline.client import checks
from rootline.client.session.commit import Commit
from rootline.client.session.open_lake import OpenLake
from rootline.client.views import SqlGiven, change_view, drop_view
from rootline.client.write.producer import DEFAULT_TIMEOUT_S
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.view_changes import ViewChange
from rootline.schemas.view_metadata import VersionLogEntry, ViewMetadata
from rootline.storage.metadata.root_reader import view_of, view_root

_VERSION_MAX = 2**31 - 1


class ViewHandle:
    """A view: made by `lake.view` and `lake.create_view`.

    May be shared between threads and pickled. Changes wait for their verdict. Each method raises `Invalid`
    (`view-unknown`) once the view was dropped, and `name-is-table` if a table has its name by then.
    """

    def __init__(self, lake: OpenLake, name: TableName) -> None:
        self._lake = lake
        self.name = name

    def metadata(self) -> ViewMetadata:
        """The view as it is now: its versions, schemas, properties and version log."""
        return view_of(self._lake.holder.run(lambda session: view_root(session.store, self.name)).header)

    def sql(self, dialect: str | None = None) -> str:
        """The SQL of the current version in a dialect; None: the only one that it has, or else the first.

        Raises:
            Invalid: `view-invalid`, the version has no SQL in this dialect.

        """
        wanted = None if dialect is None else checks.text(dialect, "dialect").lower()
        texts = self.metadata().current_version.sql_texts
        found = [text.sql for text in texts if wanted in (None, text.dialect.lower())]
        if not found:
            known = ", ".join(text.dialect for text in texts) or "none"
            raise Invalid("view-invalid", f"{self.name}: it has no SQL in dialect {dialect!r:.80}; it has {known}")
        return found[0]

    def history(self) -> list[VersionLogEntry]:
        """Which version was current from when on, the newest last."""
        return list(self.metadata().version_log)

    def replace(
        self,
        sql: str | Mapping[str, str],
        *,
        dialect: str = "spark",
        schema: Any = None,
        default_catalog: str | None = None,
        default_namespace: str | None = None,
        replaces_version: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Commit:
        """Give the view another version; one that it has with the same content becomes current again.

        Args:
            sql: as of `lake.create_view`, and so the arguments after it. What is not given, the version does not have.
            dialect: of `sql`, if it is one text.
            schema: of the view's rows.
            default_catalog: where names without a catalog are.
            default_namespace: where names without a namespace are.
            replaces_version: the version that must be current; None: whichever is.
            timeout_s: how many seconds to wait for the verdict.

        Raises:
            Invalid: `view-changed`, another version is current; `view-invalid`, `view-dialect-twice`,
                `view-too-large`, `intent-too-large`, `definition-invalid`.
            OutcomeUnknown: `verdict-timeout`.

        """
        given = SqlGiven.of(sql, dialect, schema, default_catalog, default_namespace)
        seen = _version(replaces_version, "replaces_version")
        version = given.version(self.name)
        if seen is None:
            return self._change(ViewChange(version=version), timeout_s)
        return self._change(ViewChange(version=version, replaces_version_id=seen), timeout_s)

    def rollback(self, version: int, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
        """Make an earlier version current again. Raises `Invalid`: `view-version-unknown`."""
        return self._change(
            ViewChange(current_version_id=checks.whole(_version(version, "version"), "version")), timeout_s
        )

    def set_properties(self, properties: Mapping[str, str], *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
        """Set these properties; the others stay. Raises `Invalid`: `view-invalid`, `view-too-large`."""
        return self._change(ViewChange(set_properties=checks.text_map(properties, "properties")), timeout_s)

    def remove_properties(self, keys: Sequence[str], *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
        """Remove these properties, if the view has them."""
        return self._change(ViewChange(remove_properties=checks.texts(keys, "keys")), timeout_s)

    def drop(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
        """Drop the view: its name is free. It does not come back."""
        wait_s = checks.seconds(timeout_s)
        return self._lake.holder.run(lambda session: drop_view(session, self._lake.stamp, self.name, timeout_s=wait_s))

    def _change(self, change: ViewChange, timeout_s: float) -> Commit:
        wait_s = checks.seconds(timeout_s)
        return self._lake.holder.run(
            lambda session: change_view(session, self._lake.stamp, self.name, change, timeout_s=wait_s)
        )

    def __repr__(self) -> str:
        return f"<ViewHandle {self.name}>"


def _version(given: object, name: str) -> int | None:
    found = checks.whole_or_none(given, name, least=1)
    if found is not None and found > _VERSION_MAX:
        raise Invalid("setting-invalid", f"{name} is {found}: no view has so many versions; give one that it has")
    return found
