"""The web configuration: with real certificates over real sockets, and each mistake named in one sentence."""

import base64
import contextlib
import http.client
import os
import shutil
import socket
import ssl
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import bcrypt
import pytest
import trustme
from prometheus_client import CollectorRegistry

from asd import ConfigError, UnsupportedError
from asd.exporters.http import server as server_module
from asd.exporters.http.access.web_config import WebConfig
from asd.exporters.http.server import start_server

TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
MUTUAL = TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
HASH = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()


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


def configured(folder, text):
    path = folder / "web.yml"
    path.write_text(text, encoding="utf-8")
    return WebConfig(path)


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


def test_an_empty_file_asks_for_nothing(serve):
    server = serve("")
    assert server.url.startswith("http://")
    assert ask(server)[0].status == 200


def test_tls_is_spoken_when_there_is_a_certificate(serve, authority, stranger):
    server = serve(TLS)
    assert server.url == f"https://127.0.0.1:{server.port}"
    assert ask(server, client_context(authority))[1] == b"ok\n"
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(server, client_context(stranger))


def test_plain_http_gets_no_answer_from_a_tls_port(serve):
    with pytest.raises((ConnectionError, http.client.BadStatusLine)):
        ask(serve(TLS))


def test_a_client_certificate_of_our_authority_comes_in(serve, authority):
    server = serve(MUTUAL)
    context = client_context(authority, authority.issue_cert("prometheus.example"))
    assert ask(server, context)[0].status == 200


def test_none_or_one_of_another_authority_is_refused(serve, authority, stranger):
    server = serve(MUTUAL)
    assert refused(server, client_context(authority))
    assert refused(server, client_context(authority, stranger.issue_cert("prometheus.example")))


def test_a_certificate_that_is_only_verified_if_given_may_be_missing_but_not_wrong(serve, authority, stranger):
    server = serve(MUTUAL.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"))
    assert ask(server, client_context(authority))[0].status == 200
    assert refused(server, client_context(authority, stranger.issue_cert("prometheus.example")))


@pytest.mark.parametrize(
    ("names", "comes_in"),
    [
        (["prometheus.example"], True),
        (["other.example", "10.1.2.3"], True),
        (["2001:db8::1"], True),
        (["me@prometheus.example"], True),
        (["prometheus.example.evil"], False),
        (["evil.prometheus.example"], False),
    ],
)
def test_only_clients_with_an_allowed_name_come_in(serve, authority, names, comes_in):
    allowed = '["prometheus.example", "10.1.2.3", "2001:db8::1", "me@prometheus.example"]'
    server = serve(MUTUAL + f"  client_allowed_sans: {allowed}\n")
    assert refused(server, client_context(authority, authority.issue_cert(*names))) is not comes_in


def test_versions_are_bounded(serve, authority):
    server = serve(TLS + "  min_version: TLS13\n")
    context = client_context(authority)
    assert ask(server, context)[0].status == 200
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert refused(server, context)


@pytest.mark.parametrize("prefer", ["true", "false"])
def test_cipher_suites_are_chosen_by_their_names_in_go(serve, authority, prefer):
    server = serve(
        TLS + "  max_version: TLS12\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "
        f"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]\n  prefer_server_cipher_suites: {prefer}\n"
    )
    context = client_context(authority)
    with (
        socket.create_connection(("127.0.0.1", server.port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        assert client.version() == "TLSv1.2"
        assert client.cipher()[0].endswith("AES256-GCM-SHA384")
    context.set_ciphers("ECDHE+AES128")
    assert refused(server, context)


def test_suites_of_tls_1_3_alone_mean_tls_1_3(serve, authority):
    server = serve(TLS + "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n")
    context = client_context(authority)
    assert ask(server, context)[0].status == 200
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert refused(server, context)


def basic(name, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def test_a_password_is_asked_for_on_every_path(serve):
    server = serve(f"basic_auth_users:\n  alice: {HASH}\n")
    for path in ("/metrics", "/healthz", "/readyz", "/events", "/nope"):
        response, body = ask(server, path=path)
        assert (response.status, body) == (401, b"This needs a user name and its password.\n")
        assert response.headers["WWW-Authenticate"] == 'Basic realm="asd", charset="UTF-8"'
    assert ask(server, headers=basic("alice", "wrong"))[0].status == 401
    assert ask(server, headers=basic("bob", "open sesame"))[0].status == 401
    assert ask(server, headers=basic("alice", "open sesame"))[0].status == 200


def test_many_scrapes_with_one_password_check_it_once(serve, monkeypatch):
    checked, check = [], bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", lambda *words: checked.append(words) or check(*words))
    costly = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()
    server = serve(f"basic_auth_users:\n  alice: {costly}\n")
    for _ in range(50):
        assert ask(server, headers=basic("alice", "open sesame"))[0].status == 200
    assert len(checked) == 1


def test_headers_of_the_file_are_sent_and_http2_may_be_named(serve):
    server = serve(
        "http_server_config:\n  http2: true\n  headers:\n    X-Frame-Options: deny\n"
        "    Strict-Transport-Security: max-age=60\n"
    )
    response, _ = ask(server)
    assert (response.headers["X-Frame-Options"], response.headers["Strict-Transport-Security"]) == (
        "deny",
        "max-age=60",
    )


def test_a_new_certificate_is_used_without_a_restart(serve, folder, authority, stranger):
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


def test_a_new_authority_of_clients_is_used_and_the_old_one_forgotten(serve, folder, authority, stranger):
    server = serve(MUTUAL)
    ours, theirs = (client_context(authority, each.issue_cert("p.example")) for each in (authority, stranger))
    assert (refused(server, ours), refused(server, theirs)) == (False, True)
    stranger.cert_pem.write_to_path(str(folder / "ca.pem"))
    assert (refused(server, ours), refused(server, theirs)) == (True, False)


def test_a_new_password_is_used_and_a_broken_file_leaves_the_last_one(serve, folder, caplog):
    server = serve(f"basic_auth_users:\n  alice: {HASH}\n")
    assert ask(server, headers=basic("alice", "open sesame"))[0].status == 200
    (folder / "web.yml").write_text("basic_auth_users:\n  alice: open sesame\n")
    assert ask(server, headers=basic("alice", "open sesame"))[0].status == 200
    assert ask(server)[0].status == 401
    said = [record.getMessage() for record in caplog.records if "can be read by" not in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("the changed web configuration is not used: basic_auth_users, user 'alice', in ")
    assert "open sesame" not in said[0]
    changed = bcrypt.hashpw(b"changed", bcrypt.gensalt(4)).decode()
    (folder / "web.yml").write_text(f"basic_auth_users:\n  alice: {changed}\n")
    assert ask(server, headers=basic("alice", "open sesame"))[0].status == 401
    assert ask(server, headers=basic("alice", "changed"))[0].status == 200


def test_a_file_that_is_gone_leaves_the_last_settings(serve, folder):
    server = serve(f"basic_auth_users:\n  alice: {HASH}\n")
    (folder / "web.yml").unlink()
    assert ask(server)[0].status == 401


def test_clients_that_never_shake_hands_hold_up_nobody(serve, authority, monkeypatch):
    monkeypatch.setattr(server_module, "_PATIENCE_SECONDS", 0.5)
    server = serve(MUTUAL)
    context = client_context(authority, authority.issue_cert("p.example"))
    with contextlib.ExitStack() as silent:
        clients = [silent.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(20)]
        assert ask(server, context)[0].status == 200
        clients[0].settimeout(20)
        assert clients[0].recv(1) == b""


def test_a_hundred_mutual_scrapes_at_once_all_succeed(serve, authority):
    server = serve(MUTUAL)
    context = client_context(authority, authority.issue_cert("p.example"))
    gate = threading.Barrier(100)

    def scrape(_):
        gate.wait(30)
        return ask(server, context, "/metrics")[0].status

    with ThreadPoolExecutor(100) as pool:
        assert list(pool.map(scrape, range(100))) == [200] * 100


MISTAKES = [
    ("tls_server_confg: {}", "has the value 'tls_server_confg', which is not valid: valid are tls_server_config, "),
    (TLS + "  certfile: x\n", "has the value 'tls_server_config.certfile', which is not valid: valid are cert_file, "),
    ("http_server_config: {http3: true}", "'http_server_config.http3', which is not valid: valid are http2, headers"),
    ("http_server_config: {headers: {X-Foo: a}}", "'headers.X-Foo', which is not valid: valid are Content-Security-"),
    ('http_server_config: {headers: {X-Frame-Options: "a\\nb"}}', "valid is a text in one line"),
    ("http_server_config: {http2: maybe}", "http_server_config.http2 in"),
    ("tls_server_config: {key_file: server.key}", "tls_server_config.cert_file in"),
    ("tls_server_config: {cert_file: server.pem}", "tls_server_config.key_file in"),
    ("tls_server_config: [a]", "tls_server_config in"),
    (TLS.replace("server.pem", "nothing.pem"), "it can't be read: No such file or directory"),
    (TLS.replace("server.pem", "[]"), "valid is a file's name"),
    (TLS.replace("server.pem", "web.yml"), "they must be a PEM certificate and its key without a password"),
    (TLS.replace("server.key", "other.key"), "they must be a PEM certificate and its key without a password"),
    (TLS.replace("server.key", "locked.key"), "they must be a PEM certificate and its key without a password"),
    (MUTUAL.replace("ca.pem", "web.yml"), "it must hold certificates in PEM"),
    (MUTUAL.replace("ca.pem", "nothing.pem"), "it can't be read: No such file or directory"),
    (TLS + "  min_version: TLS11\n", "tls_server_config.min_version in"),
    (TLS + "  max_version: 13\n", "tls_server_config.max_version in"),
    (TLS + "  min_version: TLS13\n  max_version: TLS12\n", "valid is at most max_version, which is TLS12"),
    (TLS + "  client_auth_type: Yes please\n", "valid are NoClientCert, VerifyClientCertIfGiven, RequireAndVerify"),
    (TLS + "  client_auth_type: RequireAndVerifyClientCert\n", "go together"),
    (TLS + "  client_ca_file: ca.pem\n", "one without the other protects nothing"),
    (TLS + "  client_allowed_sans: [a]\n", "it needs client_auth_type RequireAndVerifyClientCert"),
    (MUTUAL + "  client_allowed_sans: a\n", "valid is a list of texts"),
    (TLS + "  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n", "has the value 'TLS_RSA_WITH_RC4_128_SHA'"),
    (TLS + "  max_version: TLS12\n  cipher_suites: [TLS_AES_128_GCM_SHA256]\n", "at least one must be of TLS 1.2"),
    ("basic_auth_users: {'a:b': x}", "valid is a user name, a text without a colon"),
    ("basic_auth_users: {7: x}", "valid is a user name"),
    ("- a\n- b\n", "it must be a mapping of keys to values"),
    ("just text", "it must be a mapping of keys to values"),
    ("a: [\n", "it must be YAML; line 2, column 1 is not"),
    ("a: !!python/object/apply:os.system [true]", "it must be YAML"),
    ("\x00", "it must be YAML"),
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
    assert said in sentence
    assert "web.yml" in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TLS + "  client_auth_type: RequireAnyClientCert\n", "takes any certificate without verifying it"),
        (TLS + "  client_auth_type: RequestClientCert\n", "takes any certificate without verifying it"),
        (TLS + "  curve_preferences: [X25519]\n", "tls_server_config.curve_preferences in"),
        (TLS + "  key: secret\n", "valid is a file, named by key_file"),
        ("rate_limit: {burst: 1}", "rate_limit in"),
    ],
)
def test_what_other_exporters_can_do_and_this_one_cannot_is_named(folder, text, said):
    with pytest.raises(UnsupportedError) as caught:
        configured(folder, text)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "basic_auth_users: {alice: hunter2}",
        "basic_auth_users: {alice: 42424242}",
        "basic_auth_users: {alice: $2b$10$hunter2}",
        "basic_auth_users: {alice: hunter2",
        "basic_auth_users:\n  alice: hunter2\n bob: hunter2\n",
        "basic_auth_users: {alice: @hunter2}",
        "basic_auth_users: {alice: !hunter2 x}",
        "basic_auth_users: {alice: *hunter2}",
    ],
)
def test_a_plain_password_is_refused_and_never_printed(folder, text):
    with pytest.raises(ConfigError) as caught:
        configured(folder, text)
    everything = "".join(map(str, [caught.value, caught.value.__cause__, caught.value.value]))
    assert "hunter2" not in everything
    assert "42424242" not in everything


def test_a_file_that_is_not_there_or_no_text_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="it can't be read: No such file or directory"):
        WebConfig(tmp_path / "nothing.yml")
    with pytest.raises(ConfigError, match="it can't be read: Is a directory"):
        WebConfig(tmp_path)
    (tmp_path / "web.yml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="it must be text in UTF-8"):
        WebConfig(tmp_path / "web.yml")


def test_without_pyyaml_the_sentence_names_what_brings_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(
        UnsupportedError, match=r"needs PyYAML, which is not installed; pip install 'mindspore-asd\[web\]'"
    ):
        WebConfig(tmp_path / "web.yml")


@pytest.mark.parametrize(("mode", "warnings"), [(0o644, 1), (0o640, 0), (0o600, 0)])
def test_a_configuration_that_every_user_can_read_gets_a_warning(tmp_path, caplog, mode, warnings):
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users:\n  prometheus: {HASH}\n")
    path.chmod(mode)
    WebConfig(path)
    assert caplog.text.count("web.yml can be read by every user of this machine; chmod 600 it.") == warnings
