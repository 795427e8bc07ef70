"""The options that choose an isolator, the same for every command that needs one."""

from __future__ import annotations

from collections.abc import Sequence

from asd.errors import ConfigError
from asd.handler import NoIsolator, Store
from asd.isolator import Isolator

__all__ = ["open_isolator"]


def open_isolator(name: str, options: Sequence[str], store: Store) -> Isolator:
    """The isolator of a name; `none` records only.

    Args:
        name: As `asd.exporters.isolators.make_isolator` knows it; `local` is that of `asd run --ranks`.
        options: Its options, each `K=V`.
        store: The handler's.

    Raises:
        ConfigError: There is no such isolator, or it does not have such an option.
    """
    settings: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError("--option", option, "it must be K=V with the name of an option of the isolator")
        settings[key] = value
    if name == "none":
        if settings:
            raise ConfigError("--option", options[0], "the isolator none has no options")
        return NoIsolator(store)
    if name == "local" and store.numbered:
        from asd.supervisor.own_handler import LocalIsolator

        return LocalIsolator(store)
    from asd.exporters.isolators import make_isolator

    return make_isolator(name, **settings)
