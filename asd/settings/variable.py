"""One row of the table of settings."""

from __future__ import annotations

from typing import Any, NamedTuple

from asd.errors import ConfigError
from asd.settings.values import ValueFormat


class Variable(NamedTuple):
    """A setting: an environment variable, or an option in `ASD_OPTIONS`.

    Attributes:
        name: Name of the setting.
        field: Name of its field of `Config`.
        format: Parsing and valid values.
        about: Purpose of the setting, as in `asd env` and the documents.
    """

    name: str
    field: str
    format: ValueFormat
    about: str

    def value_of(self, text: str, name: str = "") -> Any:
        """Returns the value of `text`.

        Args:
            text: Text of the setting.
            name: Name of the setting in an error; its own `name` if not given.

        Raises:
            ConfigError: The text is not valid.
        """
        value = self.format.parse(text)
        if not self.format.accepts(value):
            raise ConfigError(name or self.name, text, self.format.valid)
        return value
