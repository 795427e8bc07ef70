"""Two dumps compared: rows, columns, verdicts, mappings, and the first wrong operator."""

import csv
import json
import os

import numpy as np
import pytest

from asd.cli import main
from asd.dumps.compare.comparison import ComparedRow, judge
from asd.dumps.compare.first_difference import Answer
from asd.dumps.compare.metrics import Metrics
from asd.dumps.formats.dump_folder import read_dump, stack_of
from asd.dumps.formats.slots import Slot, SlotForm
from asd.errors import ConfigError, StateError
from tests.asd.dumps import dumps
from tests.asd.dumps.dumps import compared

MS, PT = dumps.MS, dumps.PT

FRAME = "NPU Name,Bench Name,NPU Dtype,Bench Dtype,NPU Tensor Shape,Bench Tensor Shape,"
FRAME += "NPU Requires_grad,Bench Requires_grad,"
VALUES = "NPU max,NPU min,NPU mean,NPU l2norm,Bench max,Bench min,Bench mean,Bench l2norm,Requires_grad Consistent,"
END = ",Difference,Bound,Answer"
HEADERS = {
    "tensor": FRAME
    + "Cosine,EucDist,MaxAbsErr,MaxRelativeErr,One Thousandth Err Ratio,Five Thousandths Err Ratio,"
    + VALUES
    + "Accuracy Reached or Not,Err_message,Data_name"
    + END,
    "statistics": FRAME + "Max diff,Min diff,Mean diff,L2norm diff,MaxRelativeErr,MinRelativeErr,MeanRelativeErr,"
    "NormRelativeErr," + VALUES + "Result,Err_message" + END,
    "md5": FRAME + "NPU MD5,BENCH MD5,Requires_grad Consistent,Result,Err_message" + END,
}


def table(tmp_path):
    """The rows of the comparison."""
    with compared(tmp_path).pairs[0].files[0].open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def arrays():
    return dumps.golden_arrays()


def write_both(tmp_path, arrays, change=None, **kwargs):
    """A golden run, and one in which `change` alters the arrays in place."""
    changed = {name: array.copy() for name, array in arrays.items()}
    if change is not None:
        change(changed)
    golden = dumps.write_network(tmp_path / "golden", arrays, **kwargs)
    return dumps.write_network(tmp_path / "run", changed, **kwargs), golden


@pytest.mark.parametrize(
    ("mode", "kwargs"),
    [("tensor", {}), ("statistics", {"task": "statistics"}), ("md5", {"task": "statistics", "md5": True})],
)
def test_equal_runs_pass_in_every_row_under_the_documented_columns(tmp_path, arrays, mode, kwargs):
    write_both(tmp_path, arrays, **kwargs)
    outcome = compared(tmp_path)
    (pair,) = outcome.pairs
    assert pair.files[0].read_text().splitlines()[0] == HEADERS[mode]
    assert (pair.mode, pair.calls, pair.rows, pair.divergence) == (mode, 8, 18, None)
    assert set(pair.verdicts) == ({"Yes", "None"} if mode == "tensor" else {"pass"})


def test_the_rows_of_a_call_are_inputs_parameters_outputs(tmp_path, arrays):
    write_both(tmp_path, arrays)
    names = [row["NPU Name"] for row in table(tmp_path)]
    module, call = "Cell.net.fc1.Dense.forward.0", "Mint.add.0.forward"
    assert names[:3] == [f"{module}.{each}" for each in ("input.0", "parameters.gamma", "output.0")]
    assert names[3:7] == [f"{call}.{each}" for each in ("input.0", "input.1", "input.alpha", "output.0")]
    assert "Cell.net.fc2.Dense.parameters_grad.0.gamma" in names


@pytest.mark.parametrize(
    ("verdict", "pairs"),
    [
        ("No", [(0.98, 0.0011), (0.8999, 0.0), (1.0, 1.0001), ("unsupported", 1.1), ("Nan", 0.1), ("N/A", "N/A")]),
        ("Yes", [(0.98, 0.001), (0.99, 0.5), (0.9, 0.001), (1.0, 1.0), ("unsupported", 0.0)]),
        ("None", [("unsupported", "unsupported")]),
    ],
)
def test_the_classic_rule_of_accuracy(verdict, pairs):
    slot = Slot.of(SlotForm("output.0", "output", "Float32", (2,)))
    found = [Metrics(cosine, 0.0, error, 0.0, 1.0, 1.0) for cosine, error in pairs]
    assert {judge(ComparedRow("a", "a", slot, slot, each), "tensor") for each in found} == {verdict}


@pytest.mark.parametrize("kwargs", [{}, {"task": "statistics"}, {"task": "statistics", "md5": True}])
def test_what_has_no_counterpart_or_another_shape_never_passes(tmp_path, arrays, kwargs):
    run, golden = write_both(tmp_path, arrays, **kwargs)
    content = json.loads(golden.read_text())
    del content["data"]["Mint.add.0.forward"]
    golden.write_text(json.dumps(content))
    other = json.loads(run.read_text())
    del other["data"]["Mint.add.0.backward"]
    other["data"]["Cell.net.fc2.Dense.forward.0"]["output"][0]["shape"] = [2, 8]
    run.write_text(json.dumps(other))
    rows = table(tmp_path)
    verdict = next(name for name in rows[0] if name in ("Result", "Accuracy Reached or Not"))
    names = [(row["NPU Name"], row["Bench Name"]) for row in rows if row[verdict] == "Unmatched"]
    unmatched = {name if name != "N/A" else other for name, other in names}
    assert unmatched == {
        *(f"Mint.add.0.forward.{each}" for each in ("input.0", "input.1", "input.alpha", "output.0")),
        *(f"Mint.add.0.backward.{each}" for each in ("input.0", "output.0")),
        "Cell.net.fc2.Dense.forward.0.output.0",
    }


def bend(name, bit=20):
    def change(arrays):
        arrays[name].view(np.uint32).flat[5] ^= np.uint32(1 << bit)

    return change


FAULTS = [
    ("h", "Cell.net.fc1.Dense.forward.0", "module"),
    ("a", "Mint.add.0.forward", "operator"),
    ("y", "Cell.net.fc2.Dense.forward.0", "module"),
    ("gw2", "Cell.net.fc2.Dense.parameters_grad.0", "module"),
    ("ga", "Cell.net.fc2.Dense.backward.0", "module"),
    ("gh", "Mint.add.0.backward", "operator"),
    ("gx", "Cell.net.fc1.Dense.backward.0", "module"),
    ("w1", "Cell.net.fc1.Dense.forward.0", "weight"),
    ("w2", "Cell.net.fc2.Dense.forward.0", "weight"),
    ("x", "Cell.net.fc1.Dense.forward.0", "batch"),
]


@pytest.mark.parametrize(("kwargs", "bit"), [({}, 0), ({"task": "statistics", "md5": True}, 30)])
@pytest.mark.parametrize(("name", "call", "kind"), FAULTS)
def test_the_first_wrong_operator_is_named_for_a_flipped_bit_anywhere(tmp_path, arrays, name, call, kind, kwargs, bit):
    write_both(tmp_path, arrays, bend(name, bit), **kwargs)
    found = compared(tmp_path).pairs[0].divergence
    assert (found.call, found.kind, found.basis) == (call, kind, "bits")
    assert call in found.sentence
    if not kwargs:
        assert found.difference.is_one_flip
        assert found.difference.flipped == (bit,)
        assert f"bit {bit} flipped" in found.sentence


def test_communication_is_its_own_kind(tmp_path):
    def write(dump, wrong):
        x = np.arange(4, dtype=np.float32)
        dump.forward("Distributed.all_reduce.0.forward", [x], [x + 1 + wrong])
        dump.data["Distributed.all_reduce.0.forward"]["input_kwargs"] = {"group": {"type": "Group", "ranks": [0, 1]}}

    found = dumps.outcome_of(tmp_path, write, level="L1").pairs[0].divergence
    assert (found.call, found.kind) == ("Distributed.all_reduce.0.forward", "communication")


def test_bits_decide_on_ascend_where_mindspore_set_a_variable_to_repeat_itself(tmp_path):
    def write(dump, wrong):
        x = np.arange(4, dtype=np.float32)
        dump.forward("Mint.add.0.forward", [x], [x + 1 + 1e-7 * wrong])

    machine = dumps.MACHINE.replace("CPU", "Ascend").replace("=OFF", "=ON HCCL_DETERMINISTIC:true")
    found = dumps.outcome_of(tmp_path, write, head={**dumps.HERE, "environment": machine}).pairs[0].divergence
    assert (found.call, found.kind) == ("Mint.add.0.forward", "operator")


X = np.arange(1, 8, dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "given", "results", "device", "kind"),
    [
        ("add", (1, 1.0), (X, X + 1e-6), "CPU", "operator"),
        ("log", (2, 2), (X, X + 1e-6), "CPU", "rows"),
        ("log", (2, 2), (X, X + 1), "CPU", "operator"),
        ("greater", (1e6 * X, 1e6 * X), (X > 4, X <= 4), "Ascend", "rows"),
        ("fft", (2, 2), (X + 0j, X * (1 + 1e-7j)), "Ascend", None),
    ],
)
def test_what_one_call_gives_is_judged_by_its_kind_of_number(tmp_path, name, given, results, device, kind):
    def write(dump, wrong):
        dump.head = {**dumps.HERE, "environment": dumps.MACHINE.replace("CPU", device if wrong else "CPU")}
        dump.forward(f"Mint.{name}.0.forward", [X, given[wrong]], [results[wrong]])

    found = dumps.outcome_of(tmp_path, write).pairs[0].divergence
    assert (found and found.kind) == kind


@pytest.mark.parametrize("value", [np.float64(8), "8" * 300])
def test_a_number_of_numpy_and_a_long_text_are_arguments(tmp_path, value):
    def write(dump, wrong):
        x = np.arange(4, dtype=np.float32)
        dump.forward("Tensor.__truediv__.0.forward", [x, value + type(value)(1) if wrong else value], [x / 8])

    found = dumps.outcome_of(tmp_path, write).pairs[0].divergence
    assert (found.kind, found.rows) == ("argument", ("Tensor.__truediv__.0.forward.input.1",))


def test_mindspore_meets_pytorch_without_a_mapping(tmp_path, arrays):
    dumps.write_network(tmp_path / "run", arrays)
    changed = {**arrays, "a": arrays["a"] + 5}
    for theirs, call in ((arrays, None), (changed, "Mint.add.0.forward")):
        dumps.write_network(tmp_path / "golden", theirs, PT, framework_known=False)
        (pair,) = compared(tmp_path).pairs
        assert pair.rows == 18
        assert "Unmatched" not in pair.verdicts
        assert (pair.divergence and pair.divergence.call) == call
    partners = {row["NPU Name"]: row["Bench Name"] for row in table(tmp_path)}
    gamma = partners["Cell.net.fc1.Dense.forward.0.parameters.gamma"]
    assert gamma == "Module.net.fc1.Linear.forward.0.parameters.weight"


def layers(folder, framework, top, attention, projection, names):
    """A stack of layers with other names in each framework, as one tool or the other dumps them backward."""
    cell = "Cell" if framework == MS else "Module"
    dump = dumps.DumpWriter(folder, framework, level="L0")
    for index in range(2):
        base = f"{cell}.{top}.layers.{index}"
        x = np.full((2, 3), index + 1, np.float32)
        for name in (f"{attention}.{projection}.Linear", f"{attention}.ParallelAttention", *names):
            dump.backward(f"{base}.{name}.backward.0", [x], [x * 2])
        dump.backward(f"{base}.ParallelTransformerLayer.backward.0", [x], [x * 3])
    return dump.write()


MAPPING = """
TopLayer:
  network_with_loss: module (wrapped)
Embedding:
  dropout: embedding_dropout
ParallelTransformerLayer:
  attention.core: self_attention.middle
  attention: self_attention
ParallelAttention:
  qkv_proj: query_key_value
  out_proj: dense
ParallelMLP:
  mapping: dense_h_to_4h
  projection: dense_4h_to_h
"""


def test_layers_of_other_names_meet_by_the_mapping_and_the_line_of_the_documents(tmp_path, monkeypatch, capsys):
    mlp, core = "ColumnParallelLinear", "Core"
    names = (f"mlp.mapping.{mlp}", "mlp.ParallelMLP", f"attention.core.{core}")
    ours = layers(tmp_path / "run", MS, "network_with_loss", "attention", "qkv_proj", names)
    names = (f"mlp.dense_h_to_4h.{mlp}", "mlp.ParallelMLP", f"self_attention.middle.{core}")
    theirs = layers(tmp_path / "golden", PT, "module", "self_attention", "query_key_value", names)
    with pytest.raises(StateError, match="layer mapping"):
        compared(tmp_path)
    (tmp_path / "layer_mapping.yaml").write_text(MAPPING)
    (tmp_path / "compare.json").write_text(
        json.dumps({"npu_path": str(ours), "bench_path": str(theirs), "is_print_compare_log": True})
    )
    monkeypatch.chdir(tmp_path)
    line = "-f mindspore compare -i ./compare.json -o ./output -lm ./layer_mapping.yaml"
    assert main(line.split()) == 0
    assert "24 rows of 12 calls (24 Yes)" in capsys.readouterr().out


def test_several_ranks_are_compared_and_the_first_to_part_is_named(tmp_path, arrays):
    for rank, name in enumerate(("gx", "a", "y")):
        changed = {key: array.copy() for key, array in arrays.items()}
        bend(name)(changed)
        dumps.write_network(tmp_path / f"golden/step3/rank{rank}", arrays)
        dumps.write_network(tmp_path / f"run/step3/{'proc' if rank == 2 else 'rank'}{rank}", changed)
    for name in ("step4/rank0", "step3/rank0.earlier1", "step3/rank0.earlier2"):  # the last two were moved aside
        dumps.write_network(tmp_path / "run" / name, arrays)
    (linked := tmp_path / "golden/step3/rank1").rename(tmp_path / "rank0")
    linked.symlink_to(tmp_path / "rank0")  # the folder of another machine
    for side in ("run", "golden"):
        dumps.DumpWriter(tmp_path / side / "step3/rank3").write()  # a scope leaves nothing of this stage
    outcome = compared(tmp_path)
    assert [(pair.step, pair.rank) for pair in outcome.pairs] == [(3, 0), (3, 1), (3, 2)]
    assert [pair.files[0].name[:26] for pair in outcome.pairs] == [f"compare_result_step3_rank{r}" for r in range(3)]
    assert outcome.sentence.endswith("[step 3, rank 1]")
    said = ["Only the run under test has step 4, rank 0", "Step 3, rank 3 is not compared"]
    assert [note.partition(":")[0] for note in outcome.notes] == said


@pytest.mark.parametrize("harm", ["cut", "pipe", ""])
def test_a_rank_that_cannot_be_read_leaves_the_answer_open_but_not_one_without_calls(harm, tmp_path, arrays):
    for side in ("run", "golden"):
        dumps.write_network(tmp_path / side / "step3/rank0", arrays)
        dumps.DumpWriter(tmp_path / side / "step3/rank1").write()
    if harm:
        (file := tmp_path / "run/step3/rank1/dump.json").unlink()
        file.write_text('{"task": "sta') if harm == "cut" else os.mkfifo(file)
    outcome = compared(tmp_path)
    assert outcome.answer == (Answer.CANNOT_TELL if harm else Answer.DO_NOT_PART)
    assert ("step 3, rank 1" in outcome.sentence) is bool(harm)


def test_steps_that_are_on_no_two_sides_are_an_error(tmp_path, arrays):
    for side, steps in (("run", (1, 2)), ("golden", (3, 4))):
        for step in steps:
            dumps.write_network(tmp_path / side / f"step{step}/rank0", arrays, task="statistics")
    with pytest.raises(ConfigError, match="step 1, rank 0, step 2, rank 0"):
        compared(tmp_path)


@pytest.mark.parametrize("stem", ["dump", "api_stack_dump"])
def test_the_lines_of_ptdbg_are_compared_and_a_real_pickle_is_never_opened(tmp_path, stem):
    call, x = "Functional_linear_0_forward", np.arange(6, dtype=np.float32)
    for side, off in (("golden", 0), ("run", 1)):
        folder = tmp_path / side / "ptdbg_dump_v2.0" / "rank0"
        (folder / stem).mkdir(parents=True)
        lines = [f'["{call}_stack_info", 1, ["File a.py"]]\n']
        lines += [f'["{call}_input.1", 1, [], "torch.bool", [4], [[], [], []]]\n']
        lines += [f'["{call}_input.2", 1, [], "<class \'float\'>", "[]", [0.1, 0.1, 0.1]]\n']
        for part, array in (("input.0", x), ("output", x * 2 + off)):
            np.save(folder / stem / f"{call}_{part}.npy", array)
            lines.append(f'["{call}_{part}", 1, [], "torch.float32", [6], [{array.max()}, {array.min()}, 1.0]]\n')
        (folder / f"{stem}.pkl").write_text("".join(lines))
    outcome = compared(tmp_path)
    assert (outcome.pairs[0].mode, outcome.pairs[0].compared) == ("tensor", 2)
    assert outcome.first.divergence.rows == ("Functional.linear.0.forward.output.0",)
    (tmp_path / "dump.pkl").write_bytes(b"\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00")
    with pytest.raises(StateError, match="is not UTF-8 text"):
        read_dump(tmp_path / "dump.pkl")


def test_both_forms_of_stacks_tell_the_same(tmp_path, arrays):
    for form in (True, False):
        dumps.write_network(tmp_path / str(form), arrays, task="statistics", new_stacks=form)
    new, old = (stack_of(tmp_path / str(form) / "stack.json") for form in (True, False))
    assert new == old
    assert new["Mint.add.0.forward"].startswith("File /train.py, line 7")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("[]", "is not an object"),
        ('{"output": [{"type": "mindspore.Tensor", "shape": "x"}]}', "a list of sizes"),
        ('{"output": [{"type": "mindspore.Tensor", "shape": [-1]}]}', "a list of sizes"),
        ('{"output": [{"type": "mindspore.Tensor", "shape": [1' + "0" * 400 + "]}]}", "a list of sizes"),
        ('{"output": [{"type": "mindspore.Tensor", "shape": [' + "9999999, " * 59 + "9]}]}", "a list of sizes"),
        ('{"output": [{"type": "mindspore.Tensor", "shape": [1], "Max": "x"}]}', "not a number"),
        ('{"output": [{"type": "mindspore.Tensor", "shape": [1], "Max": 1' + "0" * 400 + "}]}", "not a number"),
        ('{"output": ' + "[" * 60 + "]" * 60 + "}", "nested more than 20 deep"),
        ('{"output": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)
def test_a_foreign_entry_is_told_in_one_sentence(tmp_path, entry, sentence):
    (tmp_path / "dump.json").write_text('{"task": "tensor", "data": {"Mint.add.0.forward": ' + entry + "}}")
    with pytest.raises(StateError, match=sentence) as caught:
        read_dump(tmp_path / "dump.json")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["../../secret.npy", "/etc/passwd", "..", "a\\b.npy", "a\0b", ""])
def test_a_data_name_that_leads_elsewhere_is_refused_and_the_rest_compared(tmp_path, arrays, name):
    run, _ = write_both(tmp_path, arrays)
    content = json.loads(run.read_text())
    content["data"]["Mint.add.0.forward"]["output"][0]["data_name"] = name
    run.write_text(json.dumps(content))
    rows = {row["NPU Name"]: row for row in table(tmp_path)}
    bad = rows["Mint.add.0.forward.output.0"]
    assert (bad["Cosine"], bad["Accuracy Reached or Not"]) == ("unsupported", "None")
    assert "bare name" in bad["Err_message"]
    assert rows["Mint.add.0.forward.input.0"]["Accuracy Reached or Not"] == "Yes"


def test_tensors_that_are_missing_harmed_or_links_out_of_the_folder_are_rows_with_a_reason(tmp_path, arrays):
    write_both(tmp_path, arrays)
    data = tmp_path / "run/dump_tensor_data"
    (data / "Mint.add.0.forward.output.0.npy").unlink()
    linked = data / "Mint.add.0.backward.output.0.npy"
    linked.rename(tmp_path / "secret.npy")
    linked.symlink_to(tmp_path / "secret.npy")
    dumps.unpicklable_npy(data / "Mint.add.0.forward.input.0.npy", tmp_path / "ran")
    np.save(data / "Mint.add.0.backward.input.0.npy", np.zeros((2, 2), np.float32))
    rows = {row["NPU Name"]: row["Err_message"] for row in table(tmp_path)}
    assert "is missing" in rows["Mint.add.0.forward.output.0"]
    assert "leads out of its folder" in rows["Mint.add.0.backward.output.0"]
    assert "that is refused" in rows["Mint.add.0.forward.input.0"]
    assert "[2, 2], its dump says [4, 16]" in rows["Mint.add.0.backward.input.0"]
    assert not (tmp_path / "ran").exists()


def test_a_name_that_a_spreadsheet_would_run_is_defused(tmp_path):
    for side in ("run", "golden"):
        writer = dumps.DumpWriter(tmp_path / side, task="statistics")
        writer.forward("=HYPERLINK(1).0.forward", [], [np.float32([1, 2])]).write()
    assert table(tmp_path)[0]["NPU Name"] == "'=HYPERLINK(1).0.forward.output.0"


def test_a_graph_that_msprobe_dumped_at_module_level_is_compared(tmp_path):
    """Its entries have `input_args` backward too, its stacks are empty, and no framework is named."""
    names = [f"Cell.network.fc.Dense.{direction}.0" for direction in ("forward", "backward")]
    x = np.arange(6, dtype=np.float32)
    for side, off in (("golden", 0), ("run", 1)):
        dump = dumps.DumpWriter(tmp_path / side / "step0" / "rank0", level="L0", head={})
        for name in names:
            dump.forward(name, [x], [x * 2 + off])
        dump.stacks = {name: [] for name in names}
        dump.write(new_stacks=False, framework_known=False)
    (pair,) = compared(tmp_path).pairs
    assert (pair.rows, pair.divergence.call, pair.divergence.kind) == (4, names[0], "module")
