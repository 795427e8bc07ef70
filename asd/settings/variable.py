"""One row of the table of settings."""

from __future__ import annotations

from typing import Any, NamedTuple

from asd.errors import ConfigError
from asd.settings.values import ValueFormat


class Variable(NamedTuple):
    """A setting: an environment variable, or an option in `ASD_OPTIONS`.

    Attributes:
        name: Its name.
        field: Its field of `Config`.
        format: How its text is read, and what is valid.
        about: What the setting is for, as `asd env` and the documents say it.
    """

    name: str
    field: str
    format: ValueFormat
    about: str

    def value_of(self, text: str, name: str = "") -> Any:
        """The value that `text` says.

        Args:
            text: What was given.
            name: What to call the setting in an error; `name` if not given.

        Raises:
            ConfigError: It says none that is valid.
        """
        value = self.format.parse(text)
        if not self.format.accepts(value):
            raise ConfigError(name or self.name, text, self.format.valid)
        return value
