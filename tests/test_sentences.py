"""No code reads a sentence to decide anything: reasons are for people, and what decides has a name."""

import ast

import pytest

from tests.rooms import texts

SENTENCES = ("reason", "why", "sentence", "why_released")
READERS = {"startswith", "endswith", "removeprefix", "removesuffix", "find", "index", "partition", "split", "count"}
PATTERNS = {"match", "search", "fullmatch", "findall", "finditer"}
ALLOWED = {
    "asd/older.py": "sentences of earlier versions are understood there and nowhere else",
    "exporters/isolators/marks.py": "Slurm has no other place for who drained a node than its reason",
    "asd/judge/reports.py": "so that nothing is told twice",
    "operators/debugger/precision_debugger.py": "so that nothing is told twice",
}


def is_sentence(node):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # such as `reason.lower()`
        return is_sentence(node.func.value)
    name = getattr(node, "id", getattr(node, "attr", getattr(getattr(node, "slice", None), "value", "")))
    return str(name).strip("_") in SENTENCES


def is_read(node):
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        has_words = any(isinstance(each, ast.Constant) and str(each.value or "") for each in sides)
        looks_in = isinstance(node.ops[0], (ast.In, ast.NotIn)) and is_sentence(sides[1])
        return looks_in or (has_words and any(map(is_sentence, sides)))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    method, places = node.func.attr, [node.func.value] if node.func.attr in READERS else node.args
    return method in READERS | PATTERNS and any(map(is_sentence, places))


def readers(text):
    return [node.lineno for node in ast.walk(ast.parse(text)) if is_read(node)]


def test_no_code_looks_into_a_sentence():
    found = {f"{path}:{line}" for path, text in texts() if path.as_posix() not in ALLOWED for line in readers(text)}
    assert found == set()


def is_ill_formed(node):
    """Whether the text of an error is more than one line, or has the full stop that `ConfigError` adds itself."""
    if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args):
        return False
    parts = getattr(node.exc.args[-1], "values", [node.exc.args[-1]])
    text = "".join(part.value if isinstance(getattr(part, "value", 0), str) else "X" for part in parts)
    return "\n" in text or "  " in text or (getattr(node.exc.func, "id", "") == "ConfigError" and text[-1:] == ".")


def test_every_error_is_one_line():
    found = [
        f"{path}:{node.lineno}" for path, text in texts() for node in ast.walk(ast.parse(text)) if is_ill_formed(node)
    ]
    assert found == []


@pytest.mark.parametrize("code", ["raise StateError(f'{x}\\n')", "raise ConfigError('a', b, 'it must be c.')"])
def test_an_error_of_another_form_is_found(code):
    assert is_ill_formed(ast.parse(code).body[0])


@pytest.mark.parametrize(
    "code",
    [
        "NO_FAULT not in event.reason",
        "case.reason.startswith(_BY_STRIKES)",
        "case.reason.lower().removesuffix(TEST)",
        "event['reason'].endswith('x')",
        "re.search('recovered', self._why)",
        "sentence == 'it had no fault'",
    ],
)
def test_what_looks_into_a_sentence_is_found(code):
    assert readers(code) == [1]
