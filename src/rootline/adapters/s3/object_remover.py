"""Removes objects of an S3 bucket, many with one request.

Owns: the requests, and what each answer means. Does not own: the client and its errors (`object_store`), which objects
may go (workers).
Invariants: only keys of the warehouse's own prefix are named; a key that the store did not remove is reported, with the
store's reason; removing what is gone already is no error; every request has a deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from botocore.exceptions import ClientError

from rootline.adapters.object_key_rules import check_key, check_prefix
from rootline.adapters.s3.object_store import S3ObjectStore, is_denied
from rootline.ports.object_remover import DatedObject
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey

_BATCH_KEYS_MAX: Final = 1_000


class S3ObjectRemover(S3ObjectStore):
    """For one warehouse; a client of its own, so that a worker may have other rights than everyone else."""

    async def inventory(self, prefix: str) -> AsyncIterator[Sequence[DatedObject]]:
        """All objects under `prefix`, ascending by key, a page at a time, with the store's own dates."""
        check_prefix(prefix)
        request = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        async for page in self._pages(f"LIST {prefix}", request, lambda: _BATCH_KEYS_MAX):
            yield [
                DatedObject(
                    ObjectKey(item["Key"][len(self._prefix) :]),
                    item["Size"],
                    int(item["LastModified"].timestamp() * 1000),
                )
                for item in page.get("Contents", ())
                if not item["Key"].endswith("/")
            ]

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        """Remove these; keys that are not there are passed over."""
        for key in keys:
            check_key(key)
        for start in range(0, len(keys), _BATCH_KEYS_MAX):
            await self._remove(keys[start : start + _BATCH_KEYS_MAX])

    async def _remove(self, keys: Sequence[ObjectKey]) -> None:
        what = f"DELETE of {len(keys)} objects, the first of them {keys[0]}"
        named = {"Objects": [{"Key": self._prefix + key} for key in keys], "Quiet": True}
        client = await self._opened()
        try:
            async with self._reading(what):  # it may be sent again: what is gone stays gone
                answer = await client.delete_objects(Bucket=self._bucket, Delete=named)
        except ClientError as error:
            raise self._refused_removal(what, str(error.response.get("Error", {}).get("Code", ""))) from error
        failed = [item for item in answer.get("Errors", ()) if item.get("Code") != "NoSuchKey"]
        if failed:
            first = str(failed[0].get("Key", ""))[len(self._prefix) :]
            what = f"DELETE of {len(keys)} objects left {len(failed)} of them, the first {first}"
            raise self._refused_removal(what, str(failed[0].get("Code", "")))

    def _refused_removal(self, what: str, code: str) -> Unavailable:
        if is_denied(code):
            return self.denied(what, code)
        return Unavailable("store-unavailable", f"{self!r}: {what} was answered {code}")
