"""The indented JSON of a dump: byte for byte what Python's own encoder writes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.dumps.record.indented import indented, members

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(VALUES)
def test_every_value_has_the_bytes_of_pythons_own_encoder(value):
    assert indented(value) == json.dumps(value, indent=1)


@given(st.dictionaries(st.text(), VALUES))
def test_an_object_of_texts_made_before_has_them_too(value):
    assert members((name, indented(item, 1)) for name, item in value.items()) == json.dumps(value, indent=1)


def test_what_json_has_no_form_for_is_refused():
    with pytest.raises(TypeError):
        indented({"a": [object()]})
