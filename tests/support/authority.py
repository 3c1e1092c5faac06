"""A certificate authority for tests."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Authority:
    """An authority whose certificates are valid for an hour.

    Args:
        folder: where NAME.pem, the authority's certificate, is written, and the certificates that it issues, with their keys.
        name: the authority's name.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, _name(name)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.path = folder / f"{name}.pem"
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        self._write(
            self.path, self._built(self.name, self.key.public_key()).add_extension(constraints, critical=True)
        )

    def issue(self, name: str, host: str = "127.0.0.1") -> tuple[Path, Path]:
        """Issue a certificate for an address; return its path and its key's path."""
        key, path = ec.generate_private_key(ec.SECP256R1()), self.folder / f"{name}.pem"
        address = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(host))])
        self._write(path, self._built(_name(name), key.public_key()).add_extension(address, critical=False))
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        secret_path = path.with_suffix(".key")
        secret_path.touch(0o600)
        secret_path.write_bytes(secret)
        return path, secret_path

    def _built(self, subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now, hour = datetime.now(UTC), timedelta(hours=1)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(public)
        dated = builder.not_valid_before(now - hour).not_valid_after(now + hour)
        return dated.serial_number(x509.random_serial_number())

    def _write(self, path: Path, builder: x509.CertificateBuilder) -> None:
        path.write_bytes(builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
