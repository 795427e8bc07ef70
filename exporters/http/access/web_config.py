"""The web configuration file: TLS, client certificates and passwords of the endpoint.

The file has the form that Prometheus and its own exporters take, so one file serves them all. What can't be done here
is refused by name, never passed over: a protection that somebody relies on must not be missing in silence.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from asd.errors import ConfigError, UnsupportedError
from asd.exporters.http.access.basic_auth import BCRYPT, BasicAuth
from asd.exporters.http.access.tls import TlsSettings
from asd.exporters.http.access.yaml_file import Section, is_flag, is_text, is_texts, read_yaml, stamp

if TYPE_CHECKING:
    import ssl

__all__ = ["WebConfig", "WebSettings"]

_LOGGER = logging.getLogger("asd.exporter")
_HEADERS = (
    "Content-Security-Policy", "X-Frame-Options", "X-Content-Type-Options", "X-XSS-Protection",
    "Strict-Transport-Security",
)  # fmt: skip
_UNSUPPORTED = {"rate_limit": "is not supported; leave it out, scrapes that come together share one answer"}


class WebSettings(NamedTuple):
    """What a web configuration file said when it was read.

    Attributes:
        tls: None for plain HTTP.
        context: Made from `tls`, for new connections.
        auth: None when anybody may come in.
        headers: More headers of every response.
    """

    tls: TlsSettings | None = None
    context: ssl.SSLContext | None = None
    auth: BasicAuth | None = None
    headers: Mapping[str, str] = {}


class WebConfig:
    """A web configuration file, read again when it or a certificate in it has changed.

    Args:
        path: The file. Names of files in it are relative to its folder.

    Raises:
        ConfigError: The file or one it names can't be read, or something in it is not valid; the sentence names it.
        UnsupportedError: PyYAML or bcrypt is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._settings = WebSettings()
        self._seen = self._signature()
        self._settings = _read(path)
        if path.stat().st_mode & stat.S_IROTH:
            _LOGGER.warning("the web configuration %s can be read by every user of this machine; chmod 600 it.", path)

    def current(self) -> WebSettings:
        """The settings for a new connection; a change that is not valid is logged, and the last valid ones stay."""
        seen = self._signature()
        if seen != self._seen:
            # Before it is read, so that no change is missed; also when it fails: it is read again at the next change,
            # as when a key follows its certificate.
            self._seen = seen
            try:
                self._settings = _read(self.path)
            except (ConfigError, UnsupportedError) as error:
                _LOGGER.warning("the changed web configuration is not used: %s", error)
        return self._settings

    @property
    def uses_tls(self) -> bool:
        """Whether the endpoint speaks HTTPS."""
        return self._settings.tls is not None

    def _signature(self) -> tuple[object, ...]:
        tls = self._settings.tls
        return tuple(stamp(path) for path in (self.path, *(tls.files if tls is not None else ())))


def _read(path: Path) -> WebSettings:
    content = Section(read_yaml(path, "web configuration"), path, "")
    content.check(("tls_server_config", "http_server_config", "basic_auth_users"), _UNSUPPORTED)
    tls = _tls(content.section("tls_server_config"))
    users = content.section("basic_auth_users").content
    for name, hashed in users.items():
        if not isinstance(name, str) or ":" in name:
            raise content.wrong("basic_auth_users", name, "valid is a user name, a text without a colon")
        if not isinstance(hashed, str) or BCRYPT.fullmatch(hashed) is None:
            raise content.wrong(
                f"basic_auth_users, user {name!r},", "(not shown)",
                "it must be the bcrypt hash of the password, as `htpasswd -nBC 10 USER` prints it, and never the "
                "password itself",
            )  # fmt: skip
    return WebSettings(
        tls=tls,
        context=tls.context() if tls is not None else None,
        auth=BasicAuth(users) if users else None,
        headers=_headers(content.section("http_server_config")),
    )


def _tls(section: Section) -> TlsSettings | None:
    section.check(TlsSettings.KEYS, TlsSettings.UNSUPPORTED)
    if not section.content:
        return None
    text, texts = "valid is a text", "valid is a list of texts"
    files = {
        key: section.path.parent / name if (name := section.get(key, "", is_text, "valid is a file's name")) else None
        for key in ("cert_file", "key_file", "client_ca_file")
    }
    return TlsSettings(
        where=str(section.path),
        **files,
        client_auth_type=section.get("client_auth_type", "NoClientCert", is_text, text),
        client_allowed_sans=tuple(section.get("client_allowed_sans", (), is_texts, texts)),
        min_version=section.get("min_version", "TLS12", is_text, text),
        max_version=section.get("max_version", "TLS13", is_text, text),
        cipher_suites=tuple(section.get("cipher_suites", (), is_texts, texts)),
        prefer_server_cipher_suites=section.get(
            "prefer_server_cipher_suites", True, is_flag, "valid are true and false"
        ),
    )


def _headers(section: Section) -> dict[str, str]:
    # HTTP/2 may be asked for, and clients are simply not offered it; the file's default asks for it, too.
    section.check(("http2", "headers"), {})
    section.get("http2", True, is_flag, "valid are true and false")
    headers = section.section("headers")
    headers.check(_HEADERS, {})
    return {name: text for name in _HEADERS if (text := headers.get(name, "", is_text, "valid is a text in one line"))}
