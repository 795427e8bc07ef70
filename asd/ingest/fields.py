"""Parses numbers and fields in logs of C++ and Python."""

import re

_DECIMAL = r"(?:\d{1,320}(?:\.\d{0,320})?|\.\d{1,320})(?:e[-+]?\d{1,4})?"
_NUMBER_TEXT = rf"[-+]?(?:nan(?:\([^)]{{0,32}}\))?|inf(?:inity)?|{_DECIMAL})(?![\w.]*\w)"
_NUMBER = re.compile(_NUMBER_TEXT, re.IGNORECASE | re.ASCII)
_FIELD = re.compile(
    rf"(?<![A-Za-z0-9_])(?P<name>[A-Za-z]\w*)\s*[=:]\s*(?:\[(?P<boxed>[^\[\]]{{0,64}})\]|(?P<bare>{_NUMBER_TEXT}))",
    re.IGNORECASE | re.ASCII,
)


def number(text: str) -> float | None:
    """Returns the number in `text`, spaces aside; None if it is not a number.

    >>> number(" -nan "), number("1.0e+06"), number("none")
    (nan, 1000000.0, None)
    """
    text = text.strip()
    return None if _NUMBER.fullmatch(text) is None else float(text.partition("(")[0])


def whole(text: str) -> int:
    """Returns the whole number from 0 on in `text`; 0 if it is not one."""
    found = number(text)
    return int(found) if found is not None and 0 <= found < 2**53 else 0


def fields(text: str) -> dict[str, str]:
    """Returns every `name = [value]`, `name=value` or `name: value` with a number, in any order.

    Names are converted to small letters without underscores, and `threshold` to `thresh`, so that all spellings agree.

    >>> fields("c_threshold_l1=[1e6], cThreshL2 : 5")
    {'cthreshl1': '1e6', 'cthreshl2': '5'}
    """
    return {
        match["name"].lower().replace("_", "").replace("threshold", "thresh"): (
            match["bare"] if match["boxed"] is None else match["boxed"]
        ).strip()
        for match in _FIELD.finditer(text)
    }


def labelled(label: re.Pattern[str], text: str) -> dict[str, str]:
    """Returns the values after labels, by label in small letters; a value ends where the next label begins.

    >>> labelled(re.compile("(?:^|, )(name|avg)"), "name a, b, avg 3.")
    {'name': 'a, b', 'avg': '3'}
    """
    found = list(label.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return {
        match[1].lower(): text[match.end() : end].strip(" \t\"'\\}]").rstrip(",").removesuffix(".").strip()
        for match, end in zip(found, ends, strict=False)  # without a label there is an end alone
    }
