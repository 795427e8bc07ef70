"""Passwords: the right one comes in, quickly the second time, and nothing is told of the others."""

import base64
import gc
import sys
import time

import bcrypt
import pytest

from asd import UnsupportedError
from asd.exporters.http.access.basic_auth import BCRYPT, BasicAuth


def hashed(password, cost=4):
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


def header(name, password):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def auth():
    return BasicAuth({"alice": hashed("open: sesame"), "王": hashed("密码"), "empty": hashed("")})


@pytest.mark.parametrize(("name", "password"), [("alice", "open: sesame"), ("王", "密码"), ("empty", "")])
def test_a_right_password_comes_in_and_is_known_from_then_on(auth, name, password):
    fresh = BasicAuth({name: auth._users[name].decode()})
    assert fresh.known(header(name, password)) is None
    assert fresh.allows(header(name, password)) is True
    assert fresh.known(header(name, password)) is True


@pytest.mark.parametrize(
    "value",
    [
        header("alice", "open"), header("alice", ""), header("alice", "密码"), header("bob", "open: sesame"),
        header("", ""), header("alice", "open: sesame\0"), header("alice", "a\0b"), "Basic", "Basic ", "Basic ====",
        "Basic YWxpY2U=", "Basic é", "Bearer " + header("alice", "open: sesame").split()[1], "", None,
    ],
)  # fmt: skip
def test_a_wrong_one_does_not(auth, value):
    assert auth.allows(value) is False
    assert auth.known(value) is False


def test_the_scheme_is_found_in_any_case(auth):
    assert auth.allows(header("alice", "open: sesame").replace("Basic", "bASIC"))


def test_a_hash_as_htpasswd_writes_it_is_taken():
    written = hashed("open").replace("$2b$", "$2y$")
    assert BCRYPT.fullmatch(written)
    assert BasicAuth({"alice": written}).allows(header("alice", "open"))


@pytest.mark.parametrize(
    "text", ["$2x$04$" + "a" * 53, "$2b$03$" + "a" * 53, "$2b$32$" + "a" * 53, "$2b$04$" + "a" * 52]
)
def test_what_is_no_bcrypt_hash_is_seen(text):
    assert BCRYPT.fullmatch(text) is None


def test_a_long_password_is_cut_as_htpasswd_cuts_it():
    auth = BasicAuth({"alice": bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()})
    assert auth.allows(header("alice", "x" * 100))
    assert not auth.allows(header("alice", "x" * 71))


def test_a_name_that_is_not_known_costs_as_much_as_one_that_is():
    auth = BasicAuth({"alice": hashed("open", 11), "bob": hashed("open", 4)})
    seconds = {}
    for name in ("alice", "nobody"):
        begin = time.thread_time()
        auth.allows(header(name, "wrong"))
        seconds[name] = time.thread_time() - begin
    assert 0.5 < seconds["nobody"] / seconds["alice"] < 2


def test_a_known_password_costs_next_to_nothing():
    auth = BasicAuth({"alice": hashed("open", 11)})
    value = header("alice", "open")
    begin = time.thread_time()
    auth.allows(value)
    first = time.thread_time() - begin
    begin = time.thread_time()
    for _ in range(100):
        auth.allows(value)
    assert (time.thread_time() - begin) / 100 < first / 100


def test_guessing_does_not_crowd_out_who_may_come_in(auth):
    assert auth.allows(header("alice", "open: sesame"))
    for number in range(150):
        auth.allows(header("alice", f"guess {number}"))
    assert auth.known(header("alice", "open: sesame")) is True
    assert len(auth._wrong) == 100


def test_no_password_is_kept():
    auth = BasicAuth({"alice": hashed("open")})
    auth.allows(header("alice", "open"))
    gc.collect()
    kept = repr(vars(auth))
    assert "open" not in kept
    assert header("alice", "open").split()[1] not in kept


def test_without_bcrypt_the_sentence_names_what_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "bcrypt", None)
    with pytest.raises(
        UnsupportedError, match=r"needs bcrypt, which is not installed; pip install 'mindspore-asd\[web\]'"
    ):
        BasicAuth({"alice": "x"})
