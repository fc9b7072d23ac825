"""Parts of a session that tests open on stores and logs of their own."""

from __future__ import annotations

from rootline.schemas.identifiers import TableName


async def nothing_known(_: TableName) -> str | None:
    """The `trouble` of a session that knows nothing of its coordinator."""
    return None
