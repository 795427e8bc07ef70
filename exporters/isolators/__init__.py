"""Isolators: each isolates devices on one kind of scheduler, and releases them.

They are found by name. Other distributions offer theirs under the entry-point group `asd.isolators`, as a callable that
takes the options by name and returns an `asd.isolator.Isolator`.
"""

import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from asd.errors import ConfigError
from asd.isolator import Isolator

__all__ = ["GROUP", "isolator_names", "make_isolator"]

GROUP = "asd.isolators"

_OWN = {
    "hostfile": ("asd.exporters.isolators.hostfile", "HostFile"),
    "slurm": ("asd.exporters.isolators.slurm.isolator", "Slurm"),
    "kubernetes": ("asd.exporters.isolators.kubernetes.isolator", "Kubernetes"),
    "clusterd": ("asd.exporters.isolators.clusterd.isolator", "ClusterD"),
}


def isolator_names() -> list[str]:
    """Returns all names, the package's own first; `none`, which only records, belongs to the handler."""
    return ["none", *_OWN, *sorted({entry.name for entry in entry_points(group=GROUP)} - set(_OWN))]


def make_isolator(name: str, **options: Any) -> Isolator:
    """Makes the isolator called `name`.

    Args:
        name: One of `isolator_names()`, but not `none`.
        options: Its options; each value may also be its text from a command line.

    Raises:
        ConfigError: There is no such isolator, it has no such option, or a value is not valid.
        ModuleNotFoundError: It needs a package that is not installed.
    """
    factory = _factory(name)
    _check_names(name, factory, options)
    return factory(**options)


def _factory(name: str) -> Callable[..., Isolator]:
    if name in _OWN:
        module, attribute = _OWN[name]
        factory: Callable[..., Isolator] = getattr(import_module(module), attribute)
        return factory
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            loaded: Callable[..., Isolator] = entry.load()
            return loaded
    raise ConfigError("the isolator", name, f"it must be one of {', '.join(isolator_names())}")


def _check_names(name: str, factory: Callable[..., Isolator], options: dict[str, Any]) -> None:
    known = inspect.signature(factory).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for option, value in options.items():
        if option not in known:
            valid = f"its options are {', '.join(known)}" if known else "it has no options"
            raise ConfigError(f"the option {option} of the isolator {name}", value, valid)
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in options:
            raise ConfigError(f"the option {option} of the isolator {name}", None, "it must be given")
