"""Certificates of the endpoint and of its clients: files in the forms of Prometheus.

web.yml     tls_server_config: {cert_file: node7.pem, key_file: node7.key, client_ca_file: ca.pem, ...}
client.yml  tls_config: {ca_file: ca.pem, cert_file: handler.pem, key_file: handler.key, server_name: asd-agent}

Each is re-read when it or a file that it names has changed. Use a proxy for passwords.
"""

import logging
import ssl
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from asd.errors import ConfigError, UnsupportedError
from asd.handler.inputs.agent_client import Access
from asd.handler.inputs.targets import WatchedFile

_LOGGER = logging.getLogger("asd.exporter")
_Settings = TypeVar("_Settings")


class _ServerTls(msgspec.Struct, forbid_unknown_fields=True):
    cert_file: str
    key_file: str
    client_ca_file: str = ""
    client_auth_type: Literal["NoClientCert", "RequireAndVerifyClientCert"] = "NoClientCert"
    client_allowed_sans: list[str] = []


class _WebFile(msgspec.Struct, forbid_unknown_fields=True):
    tls_server_config: _ServerTls | None = None


class _ClientTls(msgspec.Struct, forbid_unknown_fields=True):
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""


class _ClientFile(msgspec.Struct, forbid_unknown_fields=True):
    tls_config: _ClientTls | None = None


class WebSettings(NamedTuple):
    """TLS settings for clients."""

    context: ssl.SSLContext | None = None  # context of new connections; None for plain HTTP
    allowed_names: frozenset[str] = frozenset()  # alternative names of clients that may ask; empty for all


class _TlsFile(WatchedFile[_Settings]):
    """File of settings; names of files in it are relative to its folder. Raises UnsupportedError without PyYAML."""

    name = ""
    kept = "the changed file is not used"

    def current(self) -> _Settings:
        """Returns the settings for a new connection; a change that is not valid is logged, and not used."""
        before = self.problem
        self.refresh()
        if self.problem not in ("", before):
            _LOGGER.warning("%s: %s", self.name, self.problem)
        return self.content

    def _content(self, kind: type[Any]) -> Any:
        try:
            import yaml
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                f"a {self.name} needs PyYAML, which is not installed; install it with the extra: mindspore-asd[web]."
            ) from error
        try:
            content = yaml.safe_load(self.path.read_text(encoding="utf-8"))
            # An empty file that had certificates is being written.
            return msgspec.convert({} if content is None and not self.files else content, kind)
        except OSError as error:
            raise self._wrong(f"it can't be read: {error.strerror or error}") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            hint = "; use a proxy for passwords" if "basic_auth" in str(error) else ""
            raise self._wrong(" ".join(str(error).split()) + hint) from error

    def _load(self, context: ssl.SSLContext, certificate: str, key: str, authority: str) -> None:
        """Loads the certificates that the file names into a context."""
        folder = self.path.parent
        self.files = tuple(folder / name for name in (certificate, key, authority) if name)
        for file in self.files:
            try:
                file.read_bytes()
            except OSError as error:
                raise self._wrong(f"{file} can't be read: {error.strerror or error}") from error
        if bool(certificate) != bool(key):
            raise self._wrong("cert_file and key_file go together")
        try:
            if certificate:
                # OpenSSL must not ask for the password of an encrypted key on the terminal.
                context.load_cert_chain(folder / certificate, folder / key, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise self._wrong(
                f"{certificate} with {key} must be a PEM certificate and its key without a password"
            ) from error
        try:
            if authority:
                context.load_verify_locations(folder / authority)
        except (ssl.SSLError, OSError) as error:
            raise self._wrong(f"{authority} must hold certificates in PEM") from error

    def _wrong(self, valid: str) -> ConfigError:
        return ConfigError(f"the {self.name}", str(self.path), valid)


class WebConfig(_TlsFile[WebSettings]):
    """`web.yml`: the server's certificate, and the authority of its clients."""

    name = "web configuration"

    def _read(self) -> WebSettings:
        tls: _ServerTls | None = self._content(_WebFile).tls_server_config
        if tls is None:
            return WebSettings()
        verifies = tls.client_auth_type == "RequireAndVerifyClientCert"
        if verifies != bool(tls.client_ca_file) or (tls.client_allowed_sans and not verifies):
            raise self._wrong(
                "client_ca_file and client_auth_type RequireAndVerifyClientCert go together, and client_allowed_sans "
                "needs both; one without the other protects nothing"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
        self._load(context, tls.cert_file, tls.key_file, tls.client_ca_file)
        return WebSettings(context, frozenset(tls.client_allowed_sans))


class ClientConfig(_TlsFile[Access]):
    """`client.yml`: authority of the agents, and our certificate; without `ca_file` the system's authorities count."""

    name = "client configuration"

    def _read(self) -> Access:
        tls: _ClientTls | None = self._content(_ClientFile).tls_config
        if tls is None:
            return Access()
        context = ssl.create_default_context() if not tls.ca_file else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context, tls.cert_file, tls.key_file, tls.ca_file)
        return Access(context, server_name=tls.server_name)
