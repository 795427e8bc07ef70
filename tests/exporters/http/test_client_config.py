"""How a handler speaks to agents: certificates and passwords, in the form that Prometheus takes."""

import base64

import pytest
import trustme

from asd import ConfigError, UnsupportedError
from asd.exporters.http.access.client_config import ClientConfig
from asd.handler.inputs.agent_client import Access

TLS = "tls_config: {ca_file: ca.pem, cert_file: us.pem, key_file: us.key}\n"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def configured(tmp_path, authority):
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate = authority.issue_cert("handler")
    certificate.private_key_pem.write_to_path(str(tmp_path / "us.key"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "us.pem"))
    (tmp_path / "password").write_text("open sesame\n")

    def write(text):
        path = tmp_path / "client.yml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_an_empty_file_asks_for_nothing(configured):
    assert ClientConfig(configured("")).current() == Access()


def test_tls_demands_a_certificate_for_the_right_name(configured):
    context = ClientConfig(configured(TLS)).current().context
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert context.minimum_version.name == "TLSv1_2"
    assert len(context.get_ca_certs()) == 1


def test_a_password_comes_from_its_file(configured):
    access = ClientConfig(configured("basic_auth: {username: handler, password_file: password}")).current()
    word = base64.b64encode(b"handler:open sesame").decode()
    assert access == Access(headers={"Authorization": f"Basic {word}"})


def test_a_new_certificate_or_password_is_used_without_a_restart(configured, authority, tmp_path, caplog):
    config = ClientConfig(configured(f"{TLS}basic_auth: {{username: handler, password_file: password}}"))
    first = config.current()
    assert config.current() is first
    (tmp_path / "password").write_text("another")
    second = config.current()
    assert second.headers != first.headers
    (tmp_path / "us.key").write_text("half written")
    assert config.current() is second
    assert "the changed client configuration is not used: tls_config.cert_file in " in caplog.text
    authority.issue_cert("handler").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "us.key"))
    (tmp_path / "us.pem").write_bytes((tmp_path / "us.key").read_bytes())
    assert config.current().context is not second.context


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        ("tls_config: {ca_file: no.pem}", ConfigError, "tls_config.ca_file in .* it must hold certificates in PEM"),
        ("tls_config: {cert_file: us.pem}", ConfigError, "tls_config.cert_file in .* it goes together with key_file"),
        (
            "tls_config: {cert_file: us.pem, key_file: ca.pem}", ConfigError,
            "they must be a PEM certificate and its key without a password",
        ),
        (
            "tls_config: {insecure_skip_verify: true}", UnsupportedError,
            "tls_config.insecure_skip_verify in .* is not supported; who is not verified may say anything",
        ),
        ("tls_config: {ca: x}", ConfigError, "valid are ca_file, cert_file, key_file"),
        ("basic_auth: {username: x, password: y}", UnsupportedError, "valid is password_file"),
        ("basic_auth: {username: 'a:b', password_file: password}", ConfigError, "valid is a text without a colon"),
        ("basic_auth: {username: x}", ConfigError, "valid is the name of a file that holds the password alone"),
        ("basic_auth: {username: x, password_file: nowhere}", ConfigError, "it must be a text file"),
        ("bearer_token: x", ConfigError, "valid are tls_config, basic_auth"),
        ("[]", ConfigError, "it must be a mapping of keys to values"),
        ("{", ConfigError, "the client configuration has the value .* it must be YAML"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_in_one_sentence(configured, text, error, sentence):
    with pytest.raises(error, match=sentence):
        ClientConfig(configured(text))
