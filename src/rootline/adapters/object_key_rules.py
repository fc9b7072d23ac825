"""The keys, prefixes and absolute locations that an object store accepts, the same for every adapter.

Owns: the rules for keys, the forms of `file:` and `s3:` locations, the operator's limits on them. Does not own: the
locations that an intent may name (`rootline.schemas.intent_rules`), reading.
Invariants: An accepted key stays inside the warehouse when it is read as a path. Path segments that begin with
`.rootline` belong to the adapters (temporary files, locks, the embedded log) and are never part of a key. Absolute
locations are read, never written or listed, and used exactly as written: without percent-decoding, and with `?` and
`#` as part of the name. With a limit, nothing outside it is read, however its location is spelled.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.intent_rules import check_location
from rootline.schemas.object_keys import RESERVED_PREFIX, key_fault, scheme_of

__all__ = ["RESERVED_PREFIX", "check_key", "check_prefix"]


def check_key(key: str) -> None:
    """Check that `key` is a valid name of an object.

    Raises:
        Invalid: `location-invalid`, naming the key and the rule.
    """
    reason = key_fault(key)
    if reason is not None:
        raise Invalid("location-invalid", f"object key {key[:200]!r} {reason}")


def check_prefix(prefix: str) -> None:
    """Check that `prefix` is empty, or a folder's key with `/` at its end.

    Raises:
        Invalid: `location-invalid`.
    """
    if not prefix:
        return
    reason = key_fault(prefix[:-1]) if prefix.endswith("/") else "is a prefix that does not end in '/'"
    if reason is not None:
        raise Invalid("location-invalid", f"prefix {prefix[:200]!r} {reason}")


FILE_SCHEMES: Final = ("file",)
S3_SCHEMES: Final = ("s3", "s3a", "s3n")
_BUCKET: Final = re.compile(r"[A-Za-z0-9._\-]{1,255}\Z")


@dataclass(frozen=True, slots=True)
class AbsoluteKeys:
    """The absolute locations that a store reads besides its own keys.

    Args:
        store: the name of the store in errors.
        schemes: the schemes that it reads.
        within: the absolute locations below which it reads. Empty: no limit.
    """

    store: str
    schemes: tuple[str, ...]
    within: tuple[str, ...] = ()

    @staticmethod
    def limited(store: str, schemes: tuple[str, ...], within: Sequence[str]) -> AbsoluteKeys:
        """Create the rules, and check the locations in `within`. Those of other schemes limit other stores.

        Raises:
            Invalid: `setting-invalid`, a prefix is not an absolute location.
        """
        for prefix in within:
            try:
                _folder_of(prefix)
            except Invalid as error:
                reason = f"ROOTLINE_ABSOLUTE_READS names {prefix!r}. Write file:///dir or s3://bucket/prefix"
                raise Invalid("setting-invalid", reason) from error
        return AbsoluteKeys(store, schemes, tuple(within))

    def place_of(self, key: str) -> str:
        """The place of `key`: a path of this machine, or `bucket/key`.

        Raises:
            Invalid: `file-unreadable`.
        """
        scheme = scheme_of(key)
        if scheme not in self.schemes:
            known = ", ".join(f"{name}:" for name in self.schemes)
            raise Invalid(
                "file-unreadable",
                f"{key}: {self.store} reads absolute locations of {known} and not of the scheme {scheme}. Open the "
                "warehouse in a store that reads them, or copy the table's files there before you adopt it",
            )
        found, place = _place_of(key)
        if place.endswith("/"):
            raise Invalid("file-unreadable", f"{key}: this is a folder. Name a file in it")
        if self.within and not any(_is_below(place, prefix, found) for prefix in self.within):
            allowed = ", ".join(self.within)
            raise Invalid("file-unreadable", f"{key}: ROOTLINE_ABSOLUTE_READS allows only files below {allowed}")
        return place


def _place_of(key: str) -> tuple[str, str]:
    """Return (`file` or `s3`, path or `bucket/key`)."""
    scheme = scheme_of(key)
    if "\x00" in key:
        raise Invalid("file-unreadable", f"{key!r} contains a NUL character, which no file name contains")
    if scheme in S3_SCHEMES:
        _, mark, place = key.partition("://")
        bucket, slash, _ = place.partition("/")
        if not mark or not slash or not _BUCKET.match(bucket):
            raise Invalid("file-unreadable", f"{key}: write an object in a bucket as s3://bucket/key")
        return "s3", place
    if scheme != "file":
        raise Invalid("file-unreadable", f"{key}: the scheme {scheme}: is not known. Use file: or s3:")
    path = key if key.startswith("/") else key.partition(":")[2]
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        if host not in ("", "localhost"):
            raise Invalid(
                "file-unreadable", f"{key}: the file is on machine {host}. Write files of this machine as file:///path"
            )
        path = slash + path
    if not path.startswith("/") or ".." in path.split("/"):
        raise Invalid("file-unreadable", f"{key}: write a file as file:///path, without '..'")
    return "file", path


def _folder_of(prefix: str) -> tuple[str, str]:
    return _place_of(f"{prefix.rstrip('/')}/" if prefix else "")


def check_file_prefixes(prefixes: Sequence[str], warehouse: str) -> None:
    """Check the locations below which intents may add data files.

    They are outside the warehouse, whose files only their own table may name, and apart from each other, because one
    file under two names would be added twice. Paths of this machine are compared without links, and all of them
    regardless of case, because some file systems ignore it.

    Args:
        prefixes: absolute locations, each with a slash at its end.
        warehouse: the warehouse as an absolute location.

    Raises:
        Invalid: `setting-invalid`.
    """
    taken = [(_compared(warehouse), "the warehouse")]
    for prefix in prefixes:
        if not prefix.endswith("/"):
            raise _of_prefixes(prefix, "needs a slash at its end")
        try:
            place, path = _compared(prefix), _place_of(prefix)[1].partition("/")[2]
            if path:
                check_location(path.removesuffix("/"))
        except Invalid as error:
            raise _of_prefixes(prefix, f"cannot be used: {error.message}") from error
        for other, name in taken:
            if other[0] == place[0] and (other[1].startswith(place[1]) or place[1].startswith(other[1])):
                raise _of_prefixes(prefix, f"and {name} contain the same files: name a folder apart from it")
        taken.append((place, prefix))


def _of_prefixes(prefix: str, fault: str) -> Invalid:
    return Invalid("setting-invalid", f"ROOTLINE_COORDINATOR__FILE_PREFIXES: {prefix!r:.200} {fault}")


def _compared(location: str) -> tuple[str, str]:
    """The kind of the place, and the place with a slash at its end, in one form for all spellings."""
    kind, place = _folder_of(location)
    if kind == "file":
        place = os.path.realpath(place)
    return kind, f"{unicodedata.normalize('NFC', place).casefold().rstrip('/')}/"


def _is_below(place: str, prefix: str, found: str) -> bool:
    kind, folder = _folder_of(prefix)
    return kind == found and place.startswith(folder)
