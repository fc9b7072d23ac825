"""Headers of a record on the log: its lake, its signature, the digest of its content, its trace context.

Owns: names and values of these headers, the object that identifies a lake and the refusal of a record for another
lake, the signed bytes and their comparison, a writer's digest of its intent, `traceparent`. Does not own: the keys and
their rights (`rootline.coordinator`), the creation of the lake's object (`warehouse`), the roots that store a digest
(`rootline.tree`), the transport of headers (the adapters of a log).
Invariants: a record may lack each of these headers. The coordinator then does not make the check that needs it. Of
lakes only ids are compared, because one warehouse has many URLs. The value (so the intent's id, table, writer and
sequence) and all of Rootline's headers are signed in order. No two records have the same signed bytes, and the time of
a comparison reveals nothing about the secret. The same content has the same digest in every version, and only its
equality is used. A malformed trace context is ignored and never causes a rejection.

Source: decisions 0012, 0089, 0107, and https://www.w3.org/TR/trace-context/, section 3.2.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import Headers, ObjectKey
from rootline.schemas.intent_rules import CARGO

if TYPE_CHECKING:
    from rootline.schemas.intent import Intent

LAKE_KEY: Final = ObjectKey("0-rootline-lake/lake.json")
"""The key of the lake's object. It is outside every namespace, because no namespace begins with a digit."""
LAKE_HEADER: Final = "rootline.lake"
LAKE_MISMATCH: Final = "lake-mismatch"
_PLACE_CHARS_MAX: Final = 500
_ID: Final = re.compile(r"[0-9a-f]{32}")


class Lake(NamedTuple):
    """A lake's id, and the URL by which a process knows its warehouse."""

    lake_id: str
    place: str

    def __str__(self) -> str:
        """The lake's name in messages."""
        return f"{self.place} (lake {self.lake_id})"


def encode_lake(lake: Lake) -> bytes:
    """The bytes of the lake's object in the warehouse."""
    return json.dumps({"lake": lake.lake_id, "made-as": lake.place[:_PLACE_CHARS_MAX]}).encode()


def decode_lake(body: bytes) -> Lake | None:
    """The lake that such an object names, or `None` if it is not one."""
    try:
        found = json.loads(body)
        lake_id, place = found["lake"], found["made-as"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_lake = isinstance(lake_id, str) and isinstance(place, str) and _ID.fullmatch(lake_id) is not None
    return Lake(lake_id, place[:_PLACE_CHARS_MAX]) if is_lake else None


def lake_header(lake: Lake | None) -> Headers:
    """The header that states a record's lake. No header for `None`."""
    return () if lake is None else ((LAKE_HEADER, encode_lake(lake)),)


def refusal_of_lake(headers: Headers, own: Lake) -> tuple[str, str] | None:
    """(code, reason) for a record of another lake than the coordinator's `own`, else `None`."""
    said = next((value for name, value in headers if name == LAKE_HEADER), None)
    if said is None or (claimed := decode_lake(said)) is None or claimed.lake_id == own.lake_id:
        return None
    return LAKE_MISMATCH, mismatch(claimed, own)


def mismatch(claimed: Lake, own: Lake) -> str:
    """The message for a client that uses the warehouse of one lake with the log of another."""
    return (
        f"the intent is for the lake {claimed}, but the coordinators of this log own the lake {own}: name that "
        "warehouse, or the log of yours"
    )


SIGNATURE_HEADER: Final = "rootline-signature"
SIGNED_AT_HEADER: Final = "rootline-signed-ms"
"""The header with the time of the signature, by the signer's clock, in milliseconds. The signature covers it."""
KEY_ID: Final = r"^[A-Za-z0-9._-]{1,64}$"
SECRET_BYTES_MIN: Final = 32
_OURS: Final = "rootline"
_FORM: Final = re.compile(rb"hmac-sha256 ([A-Za-z0-9._-]{1,64}) ([0-9a-f]{64})")
_TIME: Final = re.compile(rb"[0-9]{1,15}")
_HOW: Final = "sign it with a key that the coordinators know (docs/operations.md, Who may write what)"


def signature_header(key_id: str, secret: bytes, value: bytes, headers: Headers) -> Headers:
    """The header that signs a record with this `value` and these `headers`. Append it to `headers`."""
    proof = hmac.digest(secret, _signed(value, headers), "sha256").hex()
    return ((SIGNATURE_HEADER, f"hmac-sha256 {key_id} {proof}".encode()),)


def signed_at_header(now_ms: int) -> Headers:
    """The header with the time of the signature. The signature covers it, so put it before the signature."""
    return ((SIGNED_AT_HEADER, str(now_ms).encode()),)


def signed_at(headers: Headers) -> int | None:
    """The time of a record's signature in ms, or `None` in records of older clients. Raises `signature-wrong`."""
    said = [given or b"" for name, given in headers if name == SIGNED_AT_HEADER]
    if len(said) > 1 or (said and _TIME.fullmatch(said[0]) is None):
        raise Invalid("signature-wrong", f"the header {SIGNED_AT_HEADER} must occur once, as milliseconds")
    return int(said[0]) if said else None


def signer_of(value: bytes, headers: Headers, secrets: Mapping[str, bytes]) -> str:
    """The id of the key that signed a record. `secrets`: the known secrets, by id.

    Raises:
        Invalid: `signature-missing`, or `signature-wrong`.
    """
    said = [given or b"" for name, given in headers if name == SIGNATURE_HEADER]
    if not said:
        raise Invalid("signature-missing", f"the record has no header {SIGNATURE_HEADER}: {_HOW}")
    form = _FORM.fullmatch(said[0]) if len(said) == 1 else None
    if form is None:
        raise Invalid("signature-wrong", f"the header {SIGNATURE_HEADER} must occur once, as hmac-sha256 KEY HEX")
    key_id = form[1].decode()
    secret = secrets.get(key_id)
    if secret is None:
        raise Invalid("signature-wrong", f"no coordinator knows the key {key_id}: {_HOW}")
    if not hmac.compare_digest(hmac.digest(secret, _signed(value, headers), "sha256").hex().encode(), form[2]):
        raise Invalid(
            "signature-wrong",
            f"the signature is not that of the key {key_id} over this record: another secret, or a changed record",
        )
    return key_id


def _signed(value: bytes, headers: Headers) -> bytes:
    """The signed bytes: a version line, a line for each of Rootline's headers (name and value in hex), an empty
    line, the value.
    """
    lines = [b"rootline-signature-1"]
    for name, given in headers:
        if name.startswith(_OURS) and name != SIGNATURE_HEADER:
            held = name.encode(errors="surrogateescape").hex()
            lines.append((held if given is None else f"{held}={given.hex()}").encode())
    return b"\n".join((*lines, b"", value))


CONTENT_HEADER: Final = "rootline.content"
_VALUE_BYTES: Final = 16
_KEPT_BYTES: Final = 8
_WHAT_IT_DOES: Final = {"kind", *CARGO}


def content_of_intent(intent: Intent) -> str:
    """The content of `intent` as text: its kind and its changes, without ids, read versions and summary."""
    return intent.model_dump_json(include=_WHAT_IT_DOES, exclude_defaults=True)


def stated(content: str) -> bytes | None:
    """The header value for the `content` that a writer states, or `None` for the empty text."""
    return sha256(content.encode()).digest()[:_VALUE_BYTES].hex().encode() if content else None


def content_headers(value: bytes | None = None) -> Headers:
    """The headers with this content digest, or no headers for `None`."""
    return ((CONTENT_HEADER, value),) if value else ()


def said_in(headers: Headers) -> bytes | None:
    """The content digest in a record's headers, or `None`."""
    return next((value for name, value in reversed(headers) if name == CONTENT_HEADER), None) or None


def kept_of(writer: str, sequence: int, value: bytes) -> tuple[bytes, bytes]:
    """(digest of writer and sequence, digest of the content `value`), 8 bytes each, as a root stores them."""
    pair = sha256(f"{sequence}/{writer}".encode(errors="surrogatepass")).digest()
    return pair[:_KEPT_BYTES], sha256(value).digest()[:_KEPT_BYTES]


TRACE_HEADER: Final = "traceparent"
_LONGEST: Final = 512
_VALUE: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """One span of one trace, both in hexadecimal. `is_sampled`: the writer records its own spans."""

    trace_id: str
    span_id: str
    is_sampled: bool

    @property
    def header(self) -> bytes:
        """The value of the header."""
        return f"00-{self.trace_id}-{self.span_id}-{self.is_sampled:02x}".encode()


def trace_headers(value: bytes | None) -> Headers:
    """The headers of a record in this trace, or no headers without one."""
    return ((TRACE_HEADER, value),) if value else ()


def trace_of(headers: Headers) -> TraceContext | None:
    """The trace context in a record's headers. Of several, the last valid one is used."""
    if not any(name == TRACE_HEADER for name, _ in headers):
        return None  # the common case
    values = [value or b"" for name, value in headers if name == TRACE_HEADER]
    return next((found for value in reversed(values) if (found := _read(value)) is not None), None)


def distinct_traces(contexts: Iterable[TraceContext | None], at_most: int) -> tuple[str, ...]:
    """The ids of the first `at_most` distinct traces."""
    found: dict[str, None] = {}
    for context in contexts:
        if context is not None:
            found[context.trace_id] = None
            if len(found) == at_most:
                break
    return tuple(found)


def _read(value: bytes) -> TraceContext | None:
    match = _VALUE.fullmatch(value) if len(value) <= _LONGEST else None
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == b"ff" or (version == b"00" and more) or not trace.strip(b"0") or not span.strip(b"0"):
        return None
    return TraceContext(trace.decode(), span.decode(), bool(int(flags, 16) & _SAMPLED))
