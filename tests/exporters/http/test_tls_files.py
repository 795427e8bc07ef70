"""Certificates on both sides: real ones over real sockets, and each mistake named in one sentence."""

import asyncio
import contextlib
import http.client
import os
import shutil
import socket
import ssl
import sys

import pytest
import trustme
from prometheus_client import CollectorRegistry

from asd import ConfigError, UnsupportedError
from asd.exporters.http import server as server_module
from asd.exporters.http.routes import start_server
from asd.exporters.http.tls_files import ClientConfig, WebConfig
from asd.handler.inputs import agent_client
from asd.handler.inputs.agent_client import Access, AgentError, AgentLink
from asd.handler.inputs.targets import Target

TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
MUTUAL = TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
CLIENT = "tls_config: {ca_file: ca.pem, cert_file: server.pem, key_file: server.key}\n"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def stranger():
    return trustme.CA()


@pytest.fixture
def folder(tmp_path, authority):
    issue(authority, tmp_path)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return tmp_path


def issue(authority, folder, name="server"):
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(str(folder / f"{name}.key"))
    for number, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(str(folder / f"{name}.pem"), append=number > 0)


def configured(folder, text, kind=WebConfig):
    path = folder / "web.yml"
    path.write_text(text, encoding="utf-8")
    return kind(path)


def client_context(authority, certificate=None):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def ask(server, context=None, path="/healthz", headers=None):
    if context is None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=20, context=context)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response, response.read()


@pytest.fixture
def serve(folder):
    with contextlib.ExitStack() as running:

        def start(text):
            server = start_server(
                registry=CollectorRegistry(), ledger_events=list, ready=str, port=0, web_config=configured(folder, text)
            )
            running.callback(server.close)
            return server

        yield start


def refused(server, context):
    """Whether the server ends the connection instead of answering."""
    try:
        ask(server, context)
    except (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected):
        return True
    return False


@pytest.mark.parametrize(
    ("text", "speaks_tls", "said"), [("", True, "may serve plain HTTP"), (TLS, False, "may require TLS")]
)
def test_a_handler_says_which_protocol_its_agent_speaks(serve, authority, monkeypatch, text, speaks_tls, said):
    monkeypatch.setattr(agent_client, "_CONNECT_SECONDS", 0.5)
    server, access = serve(text), Access(client_context(authority) if speaks_tls else None)
    link = AgentLink(Target("127.0.0.1", server.port, "node7", "127.0.0.1"), asyncio.Semaphore(1))
    with pytest.raises(AgentError, match=said):
        asyncio.run(link.fetch(access, [], limit=1))


@pytest.mark.parametrize(
    ("names", "comes_in"),
    [
        (["prometheus.example"], True),
        (["other.example", "10.1.2.3"], True),
        (["prometheus.example.evil"], False),
        (["evil.prometheus.example"], False),
    ],
)
def test_only_clients_with_an_allowed_name_come_in(serve, authority, names, comes_in):
    allowed = '["prometheus.example", "10.1.2.3"]'
    server = serve(MUTUAL + f"  client_allowed_sans: {allowed}\n")
    response, body = ask(server, client_context(authority, authority.issue_cert(*names)), "/metrics")
    assert response.status == (200 if comes_in else 403)
    assert comes_in or body == b"The certificate has no name that is allowed here.\n"


def test_tls_1_2_is_the_least(serve, folder, authority):
    context = client_context(authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert ask(serve(TLS), context)[0].status == 200
    assert configured(folder, TLS).current().context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_new_certificate_is_used_at_once_and_a_broken_one_is_not(serve, folder, authority, stranger, caplog):
    server = serve(TLS)
    assert ask(server, client_context(authority))[0].status == 200
    new = folder / "new"
    new.mkdir()
    issue(stranger, new)
    os.replace(new / "server.pem", folder / "server.pem")
    assert ask(server, client_context(authority))[0].status == 200  # the new key is not there yet
    os.replace(new / "server.key", folder / "server.key")
    assert ask(server, client_context(stranger))[0].status == 200
    assert refused(server, client_context(authority))
    for text in ("tls_server_config: {}", ""):
        (folder / "web.yml").write_text(text)
        assert ask(server, client_context(stranger))[0].status == 200
    (folder / "web.yml").unlink()
    assert ask(server, client_context(stranger))[0].status == 200
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4  # a key that is not the certificate's, a part without a certificate, nothing, no file


def test_a_new_authority_of_clients_is_used_and_the_old_one_forgotten(serve, folder, authority, stranger):
    server = serve(MUTUAL)
    ours, theirs = (client_context(authority, each.issue_cert("p.example")) for each in (authority, stranger))
    assert (refused(server, ours), refused(server, theirs)) == (False, True)
    stranger.cert_pem.write_to_path(str(folder / "ca.pem"))
    assert (refused(server, ours), refused(server, theirs)) == (True, False)


def test_clients_that_never_shake_hands_hold_up_nobody(serve, authority, monkeypatch):
    monkeypatch.setattr(server_module, "PATIENCE_SECONDS", 0.5)
    server = serve(MUTUAL)
    context = client_context(authority, authority.issue_cert("p.example"))
    with contextlib.ExitStack() as silent:
        clients = [silent.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(20)]
        assert ask(server, context)[0].status == 200
        clients[0].settimeout(20)
        assert clients[0].recv(1) == b""


MISTAKES = [
    ("tls_server_confg: {}", "unknown field `tls_server_confg`"),
    ("basic_auth_users: {alice: x}", "unknown field `basic_auth_users`"),
    ("tls_server_config: {key_file: server.key}", "missing required field `cert_file`"),
    (TLS.replace("server.pem", "nothing.pem"), "nothing.pem"),
    (TLS.replace("server.key", "other.key"), "server.pem with other.key"),
    (TLS.replace("server.key", "locked.key"), "server.pem with locked.key"),
    (MUTUAL.replace("ca.pem", "web.yml"), "web.yml must hold"),
    (TLS + "  client_auth_type: RequestClientCert\n", "Invalid enum value 'RequestClientCert'"),
    (TLS + "  client_auth_type: RequireAndVerifyClientCert\n", "go together"),
    (TLS + "  client_ca_file: ca.pem\n", "client_ca_file"),
    (TLS + "  client_allowed_sans: [a]\n", "client_allowed_sans needs both"),
    ("just text", "Expected `object`, got `str`"),
    ("a: [\n", "line 2, column 1"),
    ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES)
def test_a_mistake_is_named_in_one_sentence(folder, authority, text, said):
    shutil.copy(folder / "server.pem", folder / "other.pem")
    issue(authority, folder, "other")
    from cryptography.hazmat.primitives import serialization as form

    key = form.load_pem_private_key((folder / "server.key").read_bytes(), None)
    locked = key.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.TraditionalOpenSSL, form.BestAvailableEncryption(b"x")
    )
    (folder / "locked.key").write_bytes(locked)
    with pytest.raises(ConfigError) as caught:
        configured(folder, text)
    sentence = str(caught.value)
    assert str(folder / "web.yml") in sentence
    assert said in sentence
    assert "\n" not in sentence


def test_without_pyyaml_it_names_the_extra(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UnsupportedError, match=r"PyYAML, .*mindspore-asd\[web\]"):
        configured(folder, TLS)


def test_a_client_demands_a_certificate_for_the_right_name(folder):
    access = configured(folder, CLIENT[:-2] + ", server_name: asd-agent}", ClientConfig).current()
    assert access.context.check_hostname
    assert access.context.verify_mode.name == "CERT_REQUIRED"
    assert access.context.minimum_version.name == "TLSv1_2"
    assert len(access.context.get_ca_certs()) == 1
    assert access.server_name == "asd-agent"


def test_a_new_certificate_of_a_client_is_used_without_a_restart(folder, authority, caplog):
    config = configured(folder, CLIENT, ClientConfig)
    first = config.current()
    assert config.current() is first
    (folder / "server.key").write_text("half written")
    assert config.current() is first
    assert "client configuration" in caplog.text
    issue(authority, folder)
    assert config.current().context is not first.context


def test_a_client_can_not_be_told_to_check_no_certificate(folder):
    with pytest.raises(ConfigError, match="unknown field `insecure_skip_verify`"):
        configured(folder, "tls_config: {insecure_skip_verify: true}", ClientConfig)
