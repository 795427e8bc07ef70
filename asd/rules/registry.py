"""The rules by the names that `ASD_RULE` accepts."""

from typing import Any, Final

from asd.errors import ConfigError
from asd.rules.adaptive import Adaptive
from asd.rules.base import Rule
from asd.rules.combined import Combined
from asd.rules.silent_check_v3 import SilentCheckV3
from asd.rules.threshold import Threshold

RULES: Final[dict[str, type[Rule]]] = {rule.name: rule for rule in (Threshold, SilentCheckV3, Combined, Adaptive)}


def make_rule(name: str, **options: Any) -> Rule:
    """Makes a new rule, without memory, for one checkpoint.

    Args:
        name: A key of `RULES`.
        **options: `upper`, `sigma` and `learn_errors`, so that one configuration fits all; the rule gets those in its
            `takes`.

    Raises:
        ConfigError: The name or the value of an option is not valid.

    Examples:
        >>> make_rule("threshold", upper=(1000, 100)).limit()
        1000.0
        >>> make_rule("sigma")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        asd.errors.ConfigError: rule has the value 'sigma', which is not valid: one of threshold, silent_check_v3, ...
    """
    if name not in RULES:
        raise ConfigError(variable="rule", value=name, valid=f"one of {', '.join(RULES)}")
    rule = RULES[name]
    return rule(**{option: value for option, value in options.items() if option in rule.takes})
