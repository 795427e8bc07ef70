"""What a config.json may say."""

import json

import pytest

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.selection import Selection
from asd.errors import ConfigError

SEED = {"task": "tensor", "dump_path": "/path/to/dump/data", "rank": [], "step": [0], "level": "L0"}
SEED["tensor"] = {"scope": [], "list": [], "data_mode": ["all"]}


def test_the_documented_file_is_read(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SEED), encoding="utf-8-sig")  # a byte order mark is passed over
    config = DebuggerConfig.read(path)
    assert (config.task, config.level, config.step, config.rank) == ("tensor", "L0", {0}, frozenset())
    assert config.data_mode == {"forward", "backward", "input", "output"}
    assert [config.wants(step, "step") for step in (0, 1)] == [True, False]
    assert config.wants(7, "rank")


def test_the_other_documented_settings_are_read_as_they_are_typed():
    md5 = '{ "task": "statistics", "dump_path": "/path", "rank": [], "step": [0], "level": "L0", "statistics": '
    md5 += '{ "scope": [], "list": [], "data_mode": ["all"], "summary_mode": "md5" } }'
    assert DebuggerConfig.of(json.loads(md5)).md5
    assert DebuggerConfig.of({"task": "md5"}).md5
    layers = "Cell.network_with_loss.model.language_model.encoder.layers.9.mlp"
    scope = [f"{layers}.projection.RowParallelLinear.backward.0", f"{layers}.mapping.ColumnParallelLinear.backward.0"]
    inner = {"scope": scope, "list": [], "data_mode": ["all"]}
    mix = DebuggerConfig.of({**SEED, "dump_path": "./tensor_mix_ms", "level": "mix", "tensor": inner})
    assert (mix.level, list(mix.scope)) == ("mix", scope)
    assert DebuggerConfig.of({**SEED, "dump_path": "./tensor_l1_ms", "level": "L1"}).apis


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "a JSON object"),
        ({"taks": "tensor"}, "taks in config"),
        ({"task": ["tensor"]}, "statistics, tensor"),
        ({"task": "everything"}, "overflow_check, grad_probe"),
        ({"task": "grad_probe", "grad_probe": {"grad_level": "L3"}}, "L0, L1"),
        ({"task": "grad_probe", "grad_probe": {"param_list": "w"}}, "a list of texts"),
        ({"task": "grad_probe", "grad_probe": {"level": "L1"}}, "'grad_probe'"),
        ({"task": "free_benchmark"}, "noise"),
        ({"task": "nan_check"}, "registers"),
        ({"dump_enable": "yes"}, "true or false"),
        ({"level": "L2"}, "; kernels of Ascend are not dumped."),
        ({"scope": []}, "'statistics'"),
        ({"level": "L7"}, "L0, L1, mix"),
        ({"step": [-1]}, "from 0 to 1000000"),
        ({"step": [10**30]}, "from 0 to 1000000"),
        ({"step": ["6-4"]}, "'6-4'"),
        ({"rank": [True]}, "rank in config"),
        ({"rank": 3}, "rank in config"),
        ({"dump_path": ""}, "a text that is not empty"),
        ({"precision": "middle"}, "low, high"),
        ({"task": "tensor", "tensor": {"scope": ["a"]}}, "an empty list"),
        ({"level": "L0", "statistics": {"scope": ["Mint.add.0.forward"] * 2}}, "Cell.layers.0.Dense.forward.0"),
        ({"statistics": {"data_mode": ["all", "forward"]}}, "forward, backward, input"),
        ({"statistics": {"summary_mode": ["max", "sha1"]}}, "statistics, md5"),
        ({"statistics": {"lists": []}}, "one of "),
        ({"task": "overflow_check", "overflow_check": {"overflow_nums": 0}}, "or -1 for no limit"),
        ({"task": "overflow_check", "overflow_check": {"check_mode": "most"}}, "all, aicore, atomic"),
    ],
)
def test_a_wrong_value_is_one_sentence_that_says_what_is_valid(content, said):
    with pytest.raises(ConfigError) as caught:
        DebuggerConfig.of(content)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


SHIPPED = {
    **{"task": "statistics", "dump_path": "./dump_path", "rank": [], "step": [], "level": "L1"},
    **{"extra_info": True, "async_dump": False},
    "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
    "tensor": {"scope": [], "list": [], "data_mode": ["all"], "file_format": "npy"},
    "acc_check": {"white_list": [], "black_list": [], "error_data_path": "./"},
}


@pytest.mark.parametrize(("task", "named"), [("statistics", 0), ("tensor", 0), ("structure", 1), ("exception_dump", 1)])
def test_the_file_that_the_known_tool_ships_is_accepted_as_it_is(task, named):
    assert len(DebuggerConfig.of({**SHIPPED, "task": task}).not_done) == named


def test_what_asks_for_something_that_is_not_done_is_named_with_the_reason():
    content = {**SHIPPED, "task": "tensor", "extra_info": False, "seed": 1, "is_deterministic": True}
    content |= {"risk_level": "high", "request_id": "r1", "nan_check": {}, "async_dump": True, "load": {"path": "x"}}
    summaries = ["max", "hash", "nan count"]
    content["tensor"] = {"file_format": "bin", "backward_input": ["a.npy"], "summary_mode": summaries}
    found = DebuggerConfig.of(content)
    told = found.not_done
    assert found.md5
    assert {each.partition(" ")[0] for each in told} == {
        *("extra_info", "risk_level", "request_id", "seed", "is_deterministic"),
        *("file_format", "backward_input", "summary_mode", "async_dump", "load"),
    }
    assert any(each.startswith("risk_level (") for each in told)


def test_the_settings_of_gradients_are_read_from_a_file_and_numbers_may_be_texts_and_ranges(tmp_path):
    path = tmp_path / "config.json"
    inner = {"grad_level": "L0", "param_list": ["w"], "bounds": [-1, 0.5]}
    content = {"task": "grad_probe", "dump_path": "d", "rank": [0], "step": ["2-4", 7, "0"], "grad_probe": inner}
    path.write_text(json.dumps(content))
    found = DebuggerConfig.read(path)
    assert (found.task, found.grad_level, found.param_list) == ("grad_probe", "L0", ("w",))
    assert [step for step in range(9) if found.wants(step, "step")] == [0, 2, 3, 4, 7]


def test_a_file_that_is_missing_or_no_json_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="can't be read"):
        DebuggerConfig.read(tmp_path / "none.json")
    (tmp_path / "half.json").write_text('{"task": ')
    with pytest.raises(ConfigError, match="one JSON object"):
        DebuggerConfig.read(tmp_path / "half.json")


def chosen_of(scope, step):
    """The names that stay of `step`: pairs of a name and what it runs in, in the order of their ends."""
    selection = Selection(DebuggerConfig.of({"level": "mix", "statistics": {"scope": scope}}))
    found = []
    for name, parents in step:
        wanted = selection.enters(name, parents)
        if selection.leaves(name) and wanted:
            found.append(name)
    return found


def test_a_scope_reaches_from_its_first_name_to_its_last():
    names = [f"Mint.add.{number}.forward" for number in range(5)]
    assert chosen_of([names[1], names[3]], [(name, []) for name in names]) == names[1:4]


BLOCK, CHILD, OTHER = (f"Cell.{path}.forward.0" for path in ("a.Block", "a.b.Dense", "c.Dense"))
INNER, LATER = "Primitive.matmul.MatMul.0.forward", "Primitive.matmul.MatMul.1.forward"
STEP = [(INNER, [CHILD, BLOCK]), (CHILD, [BLOCK]), (LATER, [BLOCK]), (BLOCK, []), (OTHER, [])]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ([INNER, CHILD], [INNER, CHILD]),  # the module that ends after the last is not in it
        ([CHILD, OTHER], [INNER, CHILD, LATER, OTHER]),  # nor is one that was begun before the first
        ([CHILD, BLOCK], [INNER, CHILD, LATER, BLOCK]),
        ([BLOCK, CHILD], [INNER, CHILD, BLOCK]),
        ([BLOCK, OTHER], [INNER, CHILD, LATER, BLOCK, OTHER]),
        ([OTHER, CHILD], [OTHER]),  # the last comes before the first
    ],
)
def test_a_scope_of_modules_has_what_is_inside_and_no_module_around_its_ends(scope, expected):
    assert chosen_of(scope, STEP) == expected


def test_a_module_in_the_list_is_expanded_with_mix_only():
    for level, expected in (("mix", True), ("L1", False)):
        selection = Selection(DebuggerConfig.of({"level": level, "statistics": {"list": ["layers.0"]}}))
        assert selection.enters("Mint.add.0.forward", ["Cell.layers.0.Block.forward.0"]) is expected
