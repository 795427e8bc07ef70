"""Checks the user name and password of a request against bcrypt hashes."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping

from asd.errors import UnsupportedError

__all__ = ["BCRYPT", "BasicAuth"]

BCRYPT = re.compile(r"\$2[aby]\$(?:0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}", re.ASCII)
_LONGEST = 72  # bytes; bcrypt looks at no more, and some releases refuse a longer password instead of cutting it
_REMEMBERED = 100


class BasicAuth:
    """Knows who may come in.

    A bcrypt check takes a tenth of a second on purpose, and a scraper comes every second. So the answer to a header is
    remembered, under a digest with a key that never leaves the process; no password is kept. Right and wrong ones are
    remembered apart, so that guessing can't crowd out who may come in.

    Args:
        users: The bcrypt hash of each user's password; at least one.

    Raises:
        UnsupportedError: The package bcrypt is not installed.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        try:
            import bcrypt
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                "basic_auth_users of a web configuration needs bcrypt, which is not installed; "
                "pip install 'mindspore-asd[web]' brings it."
            ) from error
        self._check = bcrypt.checkpw
        self._users = {name: hashed.encode() for name, hashed in users.items()}
        # A name that is not known costs as much as one that is, so that time does not tell which names exist.
        self._decoy = max(self._users.values(), key=_cost)
        self._key = os.urandom(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, header: str | None) -> bool | None:
        """Whether `header`, the value of `Authorization`, lets its sender in; None when that takes a slow check."""
        if header is None or header[:6].lower() != "basic ":
            return False
        digest = self._digest(header)
        with self._lock:
            if digest in self._right:
                self._right.move_to_end(digest)
                return True
            return False if digest in self._wrong else None

    def allows(self, header: str | None) -> bool:
        """As `known`, but makes the slow check when it must; that takes about 0.1 s at cost 10."""
        known = self.known(header)
        if known is not None or header is None:
            return bool(known)
        name, password = _credentials(header)
        hashed = self._users.get(name)
        matches = self._matches(password, hashed or self._decoy)
        right = hashed is not None and matches
        with self._lock:
            answers = self._right if right else self._wrong
            answers[self._digest(header)] = None
            if len(answers) > _REMEMBERED:
                answers.popitem(last=False)
        return right

    def _matches(self, password: bytes, hashed: bytes) -> bool:
        try:
            return self._check(password[:_LONGEST], hashed)
        except ValueError:  # a zero byte, in some releases
            return False

    def _digest(self, header: str) -> bytes:
        return hashlib.blake2b(header.encode(errors="replace"), key=self._key).digest()


def _cost(hashed: bytes) -> int:
    return int(hashed[4:6])


def _credentials(header: str) -> tuple[str, bytes]:
    """User name and password; empty ones, which are nobody's, when the header holds none."""
    try:
        decoded = base64.b64decode(header.partition(" ")[2].strip(), validate=True)
    except ValueError:
        decoded = b""
    name, _, password = decoded.partition(b":")
    return name.decode(errors="replace"), password
