"""Avro single-object encoding of the records that cross the log.

Owns: the frame (`C3 01`, CRC-64-AVRO fingerprint, record), and the schemas that ship with the package. Does not own:
what a record means (`intent_codec`, `verdict_codec`).
Invariants: a record is decoded with exactly the schema that it names, to its last byte; schemas of released versions
stay known, and their records read as today's by Avro's rules of evolution.

Source: the Avro specification, "Single-object encoding".
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from rootline.schemas.errors import Invalid

MARKER: Final = b"\xc3\x01"
_FRAME_BYTES: Final = 10
_DECODING_ERRORS: Final = (
    ValueError,  # of which UnicodeDecodeError
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    MemoryError,
    StopIteration,
)


class RecordFraming:
    """Encodes by one schema; decodes by that schema and those of earlier versions."""

    def __init__(self, schema: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]] = ()) -> None:
        self._schema = fastavro.parse_schema(dict(schema))
        self._fingerprint = fingerprint_of(schema)
        self._prefix = MARKER + self._fingerprint
        self._earlier = {fingerprint_of(older): fastavro.parse_schema(dict(older)) for older in earlier}

    @property
    def fingerprint(self) -> bytes:
        """CRC-64-AVRO of the schema's canonical form, little-endian as in the frame."""
        return self._fingerprint

    @property
    def prefix(self) -> bytes:
        """What comes before a record: the marker and the fingerprint."""
        return self._prefix

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """The framed record."""
        sink = io.BytesIO()
        sink.write(self._prefix)
        fastavro.schemaless_writer(sink, self._schema, record, disable_tuple_notation=True)
        return sink.getvalue()

    def decode(self, value: bytes, *, name: str) -> dict[str, Any]:
        """The record in `value`; `name` is what an error calls it.

        Raises:
            Invalid: `undecodable`, the frame, the fingerprint or the record cannot be read.

        """
        if value[:2] != MARKER or len(value) < _FRAME_BYTES:
            raise Invalid("undecodable", f"{name}: does not begin with the marker of single-object Avro, C3 01")
        source = io.BytesIO(value)
        source.seek(_FRAME_BYTES)
        try:
            if value.startswith(self._prefix):
                record = fastavro.schemaless_reader(source, self._schema, None)
            else:
                record = self._decode_earlier(source, value[2:_FRAME_BYTES], name)
        except _DECODING_ERRORS as error:
            raise Invalid("undecodable", f"{name}: not a record of its schema: {_brief(error)}") from error
        if source.tell() != len(value):
            raise Invalid("undecodable", f"{name}: {len(value) - source.tell()} bytes follow the record")
        return record  # type: ignore[return-value]  # the schema is a record's

    def _decode_earlier(self, source: io.BytesIO, named: bytes, name: str) -> Any:
        writer_schema = self._earlier.get(named)
        if writer_schema is None:
            raise Invalid("undecodable", f"{name}: no schema with fingerprint {named.hex()} is known")
        return fastavro.schemaless_reader(source, writer_schema, self._schema)


def fingerprint_of(schema: Mapping[str, Any]) -> bytes:
    """CRC-64-AVRO of the canonical form of `schema`, 8 bytes little-endian."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(dict(schema)), "CRC-64-AVRO"))


@cache
def shipped_schema(name: str) -> Mapping[str, Any]:
    """The schema `avro/<name>.avsc` of this package."""
    text = files("rootline.schemas").joinpath("avro", f"{name}.avsc").read_text("utf-8")
    schema: Mapping[str, Any] = json.loads(text)
    return schema


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__} {error!s:.100}".strip()
