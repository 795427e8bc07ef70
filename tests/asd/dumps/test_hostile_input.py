"""Files that anybody may have written: whatever is in them, an error of ours in one sentence, or an answer."""

import json
from contextlib import suppress

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from asd.dumps.formats import json_file
from asd.dumps.formats.dump_folder import read_dump, stack_of
from asd.dumps.formats.npy_file import NpyFile
from asd.dumps.formats.request import read_request
from asd.dumps.precheck.calls import read_calls
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.errors import ASDError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
WORDS = """
    task level data input_args output type shape Max md5 data_name dtype value step dump_path rank tensor scope list
    header name part path parent stack frames number npu_path bench_path statistics summary_mode Mint.add.0.forward
"""
KEYS = st.text(max_size=5) | st.sampled_from(WORDS.split())
TREES = st.recursive(
    SCALARS | st.sampled_from(["mindspore.Tensor", "tensor", "../../etc/passwd", "mix"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)
READERS = dict(config=DebuggerConfig.read, dump=read_dump, stack=stack_of, request=read_request, calls=read_calls)
json_file._PIECE = 7


@example("stack", {"task": 1.25e-07}, 0)  # whose number ends in the second piece
@given(reader=st.sampled_from(sorted(READERS)), tree=st.dictionaries(KEYS, TREES, max_size=6), cut=st.integers(0, 400))
def test_any_json_is_read_or_refused_in_one_sentence(tmp_path_factory, reader, tree, cut):
    path = tmp_path_factory.getbasetemp() / "dump.json"
    path.write_text(json.dumps(tree)[: cut or None])
    try:
        READERS[reader](path)
    except ASDError as error:
        said = str(error)
        assert (said != "", "\n" in said, "Traceback" in said) == (True, False, False)
    if not cut:
        assert json.dumps({name: value for _, name, value in json_file.json_members(path, "")}) == json.dumps(tree)


@given(at=st.integers(0, 200), byte=st.integers(0, 255), length=st.integers(0, 220))
def test_a_harmed_npy_is_read_or_refused_in_one_sentence(tmp_path_factory, at, byte, length):
    path = tmp_path_factory.getbasetemp() / "tensor.npy"
    np.save(path, np.arange(20, dtype=np.float32))
    content = bytearray(path.read_bytes()[:length])
    if at < len(content):
        content[at] = byte
    path.write_bytes(bytes(content))
    with suppress(ASDError), NpyFile(path) as file:
        assert sum(piece.size for piece in file.pieces(7)) == file.size
