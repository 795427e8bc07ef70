"""Guessing passwords keeps nobody waiting who may come in."""

import asyncio
import base64
import threading
from email.message import Message

import pytest

bcrypt = pytest.importorskip("bcrypt")

from asd.exporters.http.access.basic_auth import BasicAuth  # noqa: E402
from asd.exporters.http.access.door import Door  # noqa: E402
from asd.exporters.http.http_message import HttpRequest  # noqa: E402


class Slow(BasicAuth):
    """Real checks, each of which begins when it is let; their passwords in the order in which they began."""

    def __init__(self):
        super().__init__({"prometheus": bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()})
        self.begun = []
        self.let = threading.Semaphore(0)

    def _matches(self, password, hashed):
        self.begun.append(password.decode())
        assert self.let.acquire(timeout=60)
        return super()._matches(password, hashed)


def request(client, password):
    headers = Message()
    headers["Authorization"] = "Basic " + base64.b64encode(f"prometheus:{password}".encode()).decode()
    return HttpRequest("GET", "/metrics", {}, headers, has_body=False, client=client)


async def status(door, auth, client, password):
    refusal = await door.refusal(request(client, password), auth)
    return 200 if refusal is None else refusal.status


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def run(story):
    async def whole():
        door, auth = Door(), Slow()
        try:
            await asyncio.wait_for(story(door, auth), 60)
        finally:
            for _ in range(1000):
                auth.let.release()
            door.stop()

    asyncio.run(whole())


def test_who_has_never_guessed_wrong_waits_for_one_check_only_however_many_addresses_guess():
    async def story(door, auth):
        for number in range(30):  # each guesses once
            auth.let.release()
            assert await status(door, auth, f"10.0.0.{number}", f"guess {number}") == 401
        guesses = [asyncio.create_task(status(door, auth, f"10.0.0.{n}", f"more {n}")) for n in range(30)]
        await until(lambda: len(auth.begun) == 31)
        scraper = asyncio.create_task(status(door, auth, "10.0.1.1", "right"))
        await asyncio.sleep(0)
        auth.let.release()
        auth.let.release()
        assert await scraper == 200
        assert auth.begun[30:32] == ["more 0", "right"]
        assert not any(guess.done() for guess in guesses[1:])
        for _ in guesses:
            auth.let.release()
        assert await asyncio.gather(*guesses) == [401] * 30

    run(story)


def test_an_address_has_one_check_at_a_time_and_the_others_are_refused_at_once():
    async def story(door, auth):
        first = asyncio.create_task(status(door, auth, "10.0.0.1", "guess"))
        await until(lambda: auth.begun == ["guess"])
        assert [await status(door, auth, "10.0.0.1", f"{n}") for n in range(100)] == [429] * 100
        same = asyncio.create_task(status(door, auth, "10.0.0.1", "guess"))  # as a browser asks for several pages
        await asyncio.sleep(0)
        auth.let.release()
        assert [await first, await same] == [401, 401]
        assert auth.begun == ["guess"]

    run(story)


def test_who_is_known_waits_for_no_check():
    async def story(door, auth):
        auth.let.release()
        assert await status(door, auth, "10.0.0.1", "right") == 200
        guess = asyncio.create_task(status(door, auth, "10.0.0.1", "guess"))
        await until(lambda: auth.begun == ["right", "guess"])
        assert await status(door, auth, "10.0.0.1", "right") == 200
        assert not guess.done()
        auth.let.release()
        assert await guess == 401

    run(story)


def test_a_check_that_fails_is_one_failed_request(monkeypatch):
    async def story(door, auth):
        def fail(password, hashed):
            raise RuntimeError("no memory")

        monkeypatch.setattr(auth, "_matches", fail)
        with pytest.raises(RuntimeError, match="no memory"):
            await status(door, auth, "10.0.0.1", "guess")
        monkeypatch.undo()
        auth.let.release()
        assert await status(door, auth, "10.0.0.1", "right") == 200

    run(story)
