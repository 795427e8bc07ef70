"""The client's side of TLS and passwords: how a fault handler speaks to agents, in the form that Prometheus takes.

tls_config: {ca_file: ca.pem, cert_file: handler.pem, key_file: handler.key, server_name: asd-agent}
basic_auth: {username: handler, password_file: password}
"""

from __future__ import annotations

import base64
import logging
import ssl
from pathlib import Path

from asd.errors import ConfigError, UnsupportedError
from asd.exporters.http.access.yaml_file import Section, is_text, read_yaml, stamp
from asd.handler.inputs.agent_client import Access

__all__ = ["ClientConfig"]

_LOGGER = logging.getLogger("asd.handler")
_TLS_FILES = ("ca_file", "cert_file", "key_file")
_NAME = "server_name"
_UNSUPPORTED = {
    "insecure_skip_verify": "is not supported; who is not verified may say anything of any device",
}


class ClientConfig:
    """A client configuration file, read again when it or a file that it names has changed.

    Args:
        path: The file. Names of files in it are relative to its folder.

    Raises:
        ConfigError: The file or one it names can't be read, or something in it is not valid; the sentence names it.
        UnsupportedError: PyYAML is not installed, or a key asks for what is not supported.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: tuple[Path, ...] = ()
        self._access = self._read()
        self._seen = self._signature()

    def current(self) -> Access:
        """How to speak to an agent now; a change that is not valid is logged, and the last valid one stays."""
        seen = self._signature()
        if seen != self._seen:
            self._seen = seen
            try:
                self._access = self._read()
            except (ConfigError, UnsupportedError) as error:
                _LOGGER.warning("the changed client configuration is not used: %s", error)
            self._seen = (seen[0], *self._signature()[1:])
        return self._access

    def _signature(self) -> tuple[object, ...]:
        return tuple(stamp(path) for path in (self.path, *self._files))

    def _read(self) -> Access:
        content = Section(read_yaml(self.path, "client configuration"), self.path, "")
        content.check(("tls_config", "basic_auth"), {})
        tls, auth = content.section("tls_config"), content.section("basic_auth")
        tls.check((*_TLS_FILES, _NAME), _UNSUPPORTED)
        auth.check(("username", "password_file"), {"password": "is not supported; valid is password_file"})
        files = {
            key: self.path.parent / name
            for section, keys in ((tls, _TLS_FILES), (auth, ("password_file",)))
            for key in keys
            if (name := section.get(key, "", is_text, "valid is a file's name"))
        }
        context = _context(tls, files) if tls.content else None
        headers = {"Authorization": _password(auth, files)} if auth.content else {}
        self._files = tuple(files.values())
        return Access(context, headers, tls.get(_NAME, "", is_text, "valid is the name that all certificates are for"))


def _context(section: Section, files: dict[str, Path]) -> ssl.SSLContext:
    """Demands a certificate for the right name of the right authority, and shows ours if there is one.

    Without `ca_file` the authorities of the system count.
    """
    if ("cert_file" in files) != ("key_file" in files):
        raise section.wrong("cert_file", str(files.get("cert_file", "")), "it goes together with key_file")
    try:
        context = ssl.create_default_context(cafile=str(files["ca_file"]) if "ca_file" in files else None)
    except (ssl.SSLError, OSError) as error:
        raise section.wrong("ca_file", str(files["ca_file"]), "it must hold certificates in PEM") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if "cert_file" in files:
        try:
            # An encrypted key must not make OpenSSL ask for a password on the terminal.
            context.load_cert_chain(files["cert_file"], files["key_file"], password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise section.wrong(
                "cert_file", f"{files['cert_file']} with {files['key_file']}",
                "they must be a PEM certificate and its key without a password",
            ) from error  # fmt: skip
    return context


def _password(section: Section, files: dict[str, Path]) -> str:
    name = section.get("username", "", is_text, "valid is a text")
    if not name or ":" in name:
        raise section.wrong("username", name, "valid is a text without a colon")
    if "password_file" not in files:
        raise section.wrong("password_file", "", "valid is the name of a file that holds the password alone")
    try:
        password = files["password_file"].read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise section.wrong("password_file", str(files["password_file"]), "it must be a text file") from error
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"
