"""A certificate authority and a broker's certificate that live as long as a test session.

Owns: the files. Does not own: who trusts them.
Invariants: valid for 127.0.0.1 and localhost only.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificates:
    """`key_store`: key and certificate of the broker; `authority`: what a client must trust."""

    key_store: Path
    authority: Path


def make_certificates(folder: Path) -> Certificates:
    """Write both files into `folder`."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("rootline tests", authority_key.public_key(), "rootline tests", authority_key, ca=True)
    own = _certificate("localhost", key.public_key(), "rootline tests", authority_key, ca=False)
    key_store, trusted = folder / "broker.pem", folder / "authority.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key_store.write_bytes(secret + own.public_bytes(serialization.Encoding.PEM))
    trusted.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    return Certificates(key_store, trusted)


def _certificate(
    name: str, key: ec.EllipticCurvePublicKey, issuer: str, signer: ec.EllipticCurvePrivateKey, *, ca: bool
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer, hashes.SHA256())
    )
