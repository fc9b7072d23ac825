"""A record's signature: a header that says which key signed it, and proves it.

Owns: the header's form, which bytes are signed, comparing. Does not own: the keys and what they may do
(`rootline.coordinator.runtime.records.principals`), when a record is signed (`rootline.adapters.kafka.intent_sink`).
Invariants: the value (so the intent's id, table, writer and sequence) and all headers of ours are signed, in their
order; no two records have the same signed bytes; a comparison takes a time that says nothing about the secret.

Source: decisions 0089 and 0098.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.log_position import Headers

SIGNATURE_HEADER: Final = "rootline-signature"
SIGNED_AT_HEADER: Final = "rootline-signed-ms"
"""When a record was signed, by the clock of the one who signed it, milliseconds; the signature covers it."""
KEY_ID: Final = r"^[A-Za-z0-9._-]{1,64}$"
SECRET_BYTES_MIN: Final = 32
_OURS: Final = "rootline"
_FORM: Final = re.compile(rb"hmac-sha256 ([A-Za-z0-9._-]{1,64}) ([0-9a-f]{64})")
_TIME: Final = re.compile(rb"[0-9]{1,15}")
_HOW: Final = "sign it with a key that the coordinators know (docs/operations.md, Who may write what)"


def signature_header(key_id: str, secret: bytes, value: bytes, headers: Headers) -> Headers:
    """The header that signs a record with this `value` and these `headers`, to be put after them."""
    proof = hmac.digest(secret, _signed(value, headers), "sha256").hex()
    return ((SIGNATURE_HEADER, f"hmac-sha256 {key_id} {proof}".encode()),)


def signed_at_header(now_ms: int) -> Headers:
    """The header that says when a record was signed; it is signed with the others, so put it before the signature."""
    return ((SIGNED_AT_HEADER, str(now_ms).encode()),)


def signed_at(headers: Headers) -> int | None:
    """When a record was signed, ms; `None`: it does not say so, as those of older clients. Raises `signature-wrong`."""
    said = [given or b"" for name, given in headers if name == SIGNED_AT_HEADER]
    if len(said) > 1 or (said and _TIME.fullmatch(said[0]) is None):
        raise Invalid("signature-wrong", f"the header {SIGNED_AT_HEADER} must be there once, as milliseconds")
    return int(said[0]) if said else None


def signer_of(value: bytes, headers: Headers, secrets: Mapping[str, bytes]) -> str:
    """The id of the key that signed a record; `secrets`: the known ones, by id.

    Raises:
        Invalid: `signature-missing`, or `signature-wrong`.

    """
    said = [given or b"" for name, given in headers if name == SIGNATURE_HEADER]
    if not said:
        raise Invalid("signature-missing", f"the record has no header {SIGNATURE_HEADER}: {_HOW}")
    form = _FORM.fullmatch(said[0]) if len(said) == 1 else None
    if form is None:
        raise Invalid("signature-wrong", f"the header {SIGNATURE_HEADER} must be there once, as hmac-sha256 KEY HEX")
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
    """A line, a line for each header of ours (name and value in hexadecimal), an empty line, the value."""
    lines = [b"rootline-signature-1"]
    for name, given in headers:
        if name.startswith(_OURS) and name != SIGNATURE_HEADER:
            held = name.encode(errors="surrogateescape").hex()
            lines.append((held if given is None else f"{held}={given.hex()}").encode())
    return b"\n".join((*lines, b"", value))
