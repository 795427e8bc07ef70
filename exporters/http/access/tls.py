"""TLS of the endpoint: from the names in a web configuration file to what OpenSSL is told."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from asd.errors import ConfigError, UnsupportedError

__all__ = ["TlsSettings"]

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_UNVERIFIED = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
_SUITES_OF_TLS12 = {
    f"TLS_ECDHE_{kind}_WITH_{suite}": f"ECDHE-{kind}-{openssl}"
    for kind in ("ECDSA", "RSA")
    for suite, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
    )
}
_SUITES_OF_TLS13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_INLINE = "is not supported; valid is a file, named by {}"


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """The section `tls_server_config`; every attribute but `where` is a key of it.

    Attributes:
        where: The file it stands in, for error messages.

    Raises:
        ConfigError: A value is not valid, or two do not go together.
        UnsupportedError: A way to treat client certificates that this server does not have.
    """

    KEYS: ClassVar[tuple[str, ...]] = (
        "cert_file", "key_file", "client_auth_type", "client_ca_file", "client_allowed_sans", "min_version",
        "max_version", "cipher_suites", "prefer_server_cipher_suites",
    )  # fmt: skip
    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        "cert": _INLINE.format("cert_file"),
        "key": _INLINE.format("key_file"),
        "client_ca": _INLINE.format("client_ca_file"),
        "curve_preferences": "is not supported; leave it out, OpenSSL's order is used",
    }

    where: str
    cert_file: Path | None
    key_file: Path | None
    client_auth_type: str
    client_ca_file: Path | None
    client_allowed_sans: tuple[str, ...]
    min_version: str
    max_version: str
    cipher_suites: tuple[str, ...]
    prefer_server_cipher_suites: bool

    def __post_init__(self) -> None:
        for key in ("cert_file", "key_file"):
            if getattr(self, key) is None:
                self._wrong(key, "", "valid is the name of a PEM file")
        for key in ("min_version", "max_version"):
            if getattr(self, key) not in _VERSIONS:
                self._wrong(key, getattr(self, key), f"valid are {', '.join(_VERSIONS)}")
        if _VERSIONS[self.min_version] > _VERSIONS[self.max_version]:
            self._wrong("min_version", self.min_version, f"valid is at most max_version, which is {self.max_version}")
        self._check_client_auth()
        self._check_suites()

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that `context` reads."""
        return tuple(path for path in (self.cert_file, self.key_file, self.client_ca_file) if path is not None)

    def context(self) -> ssl.SSLContext:
        """What new connections use.

        Raises:
            ConfigError: A file can't be read, holds no certificate, or the key is not the certificate's.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.min_version]
        context.maximum_version = _VERSIONS[self.max_version]
        if self.cipher_suites:
            suites = [_SUITES_OF_TLS12[name] for name in self.cipher_suites if name in _SUITES_OF_TLS12]
            if suites:
                context.set_ciphers(":".join(suites))
            else:
                context.minimum_version = ssl.TLSVersion.TLSv1_3
        if not self.prefer_server_cipher_suites:
            context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        self._load_certificate(context)
        self._load_client_ca(context)
        context.verify_mode = _CLIENT_AUTH[self.client_auth_type]
        return context

    def allows(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client may come in.

        Args:
            certificate: Its certificate, as `SSLSocket.getpeercert` returns it.
        """
        if not self.client_allowed_sans:
            return True
        names = certificate.get("subjectAltName", ()) if certificate else ()
        return any(_plain(kind, name) in self.client_allowed_sans for kind, name in names)

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        for key, path in (("cert_file", self.cert_file), ("key_file", self.key_file)):
            self._check_readable(key, path)
        try:
            # An encrypted key must not make OpenSSL ask for a password on the terminal.
            context.load_cert_chain(str(self.cert_file), str(self.key_file), password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error)
            raise ConfigError(
                f"cert_file with key_file in {self.where}", f"{self.cert_file} with {self.key_file}",
                f"they must be a PEM certificate and its key without a password ({reason})",
            ) from error  # fmt: skip

    def _load_client_ca(self, context: ssl.SSLContext) -> None:
        if self.client_ca_file is None:
            return
        self._check_readable("client_ca_file", self.client_ca_file)
        try:
            context.load_verify_locations(str(self.client_ca_file))
        except (ssl.SSLError, OSError) as error:
            self._wrong("client_ca_file", str(self.client_ca_file), "it must hold certificates in PEM", error)

    def _check_readable(self, key: str, path: Path | None) -> None:
        try:
            with open(str(path), "rb"):
                pass
        except OSError as error:
            self._wrong(key, str(path), f"it can't be read: {error.strerror or error}", error)

    def _check_client_auth(self) -> None:
        if self.client_auth_type in _UNVERIFIED:
            raise UnsupportedError(
                f"tls_server_config.client_auth_type in {self.where} is {self.client_auth_type}, which takes any "
                f"certificate without verifying it and is not supported; valid are {', '.join(_CLIENT_AUTH)}."
            )
        if self.client_auth_type not in _CLIENT_AUTH:
            self._wrong("client_auth_type", self.client_auth_type, f"valid are {', '.join(_CLIENT_AUTH)}")
        verifies = self.client_auth_type != "NoClientCert"
        if verifies != (self.client_ca_file is not None):
            raise ConfigError(
                f"tls_server_config.client_ca_file in {self.where}", str(self.client_ca_file or ""),
                "client_ca_file and a client_auth_type other than NoClientCert go together, one without the other "
                "protects nothing",
            )  # fmt: skip
        if self.client_allowed_sans and self.client_auth_type != "RequireAndVerifyClientCert":
            self._wrong(
                "client_allowed_sans", list(self.client_allowed_sans),
                "it needs client_auth_type RequireAndVerifyClientCert",
            )  # fmt: skip

    def _check_suites(self) -> None:
        for name in self.cipher_suites:
            if name not in _SUITES_OF_TLS12 and name not in _SUITES_OF_TLS13:
                self._wrong("cipher_suites", name, f"valid are {', '.join((*_SUITES_OF_TLS13, *_SUITES_OF_TLS12))}")
        if self.cipher_suites and self.max_version == "TLS12" and not set(self.cipher_suites) & set(_SUITES_OF_TLS12):
            self._wrong("cipher_suites", list(self.cipher_suites), "at least one must be of TLS 1.2, see max_version")

    def _wrong(self, key: str, value: object, valid: str, error: Exception | None = None) -> NoReturn:
        raise ConfigError(f"tls_server_config.{key} in {self.where}", value, valid) from error


def _plain(kind: str, name: str) -> str:
    """A subject alternative name as people write it; OpenSSL prints addresses of IPv6 in its own way."""
    if kind != "IP Address":
        return name
    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return name
