"""What is chosen of the zoo, and what its table says; nothing is trained."""

import json

import matrix
import pytest
import table


def test_a_seed_chooses_the_same_eighth_each_time_and_another_seed_another_one():
    first, again, other = (matrix.eighth(seed) for seed in (20260101, 20260101, 20260102))
    assert list(map(str, first)) == list(map(str, again)) != list(map(str, other))
    assert len(first) == len(matrix.all_groups(0)) // 8 + len(matrix.once_failed())


def test_what_once_failed_is_a_cell_of_the_matrix():
    known = {(each.kind, each.mode, each.precision) for each in matrix.all_groups(0)}
    assert {(each.kind, each.mode, each.precision) for each in matrix.once_failed()} <= known
    assert {name for each in matrix.once_failed() for name in each.configurations} <= set(matrix.CONFIGURATIONS)


def cell(mode, precision, **more):
    answers = {"equal": True, "first_level": 0, "second_level": 0, "refused": 0, "found": True, "healed": True}
    name = {"kind": "lstm", "mode": mode, "precision": precision, "configuration": "everything", "note": ""}
    return {**name, "failures": [], **answers, **more}


def test_cells_with_the_same_answers_share_a_line():
    cells = [cell(mode, precision) for mode in matrix.MODES for precision in ("float32", "O2")]
    assert list(table.lines(cells))[2:] == ["| lstm | everything | both | float32, O2 | yes | 0 | yes | yes |  |"]


def test_a_training_that_an_idle_operator_moves_is_told_apart_from_one_that_does_not_repeat_itself():
    cells = [cell("graph", "O2", equal=None, note=matrix.REGROUPED), cell("pynative", "O2", equal=None)]
    assert [line.split("|")[5].strip() for line in list(table.lines(cells))[2:]] == ["regrouped", "not repeatable"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"equal": False}, "| **no** | 0 | yes | yes |"),
        ({"first_level": 3, "refused": 3}, "| yes | **false** | yes | yes |"),
        ({"found": False}, "| yes | 0 | **no** | yes |"),
        ({"healed": False}, "| yes | 0 | yes | **no** |"),
    ],
)
def test_a_cell_that_fails_stands_out_and_is_listed_with_what_is_wrong(wrong, told):
    page = table.page([cell("graph", "float32"), cell("graph", "O2", failures=["it | broke"], **wrong)], 7)
    assert f"| lstm | everything | graph | O2 {told}" in page
    assert "| lstm-graph-O2-everything | it \\| broke |" in page
    assert "**1 of 2 cells hold, 1 fail.**" in page


def test_what_was_interrupted_goes_on_where_it_stopped(tmp_path):
    groups = matrix.all_groups(7)
    whole = [{**cell(each.mode, each.precision), "kind": each.kind} for each in groups[:3]]
    of = {
        group: [{**one, "configuration": name} for name in group.configurations]
        for group, one in zip(groups, whole, strict=False)
    }
    files = tmp_path / "zoo.json", tmp_path / "zoo.md"
    first = table.Results(*files, seed=7)
    for group in groups[1:3]:
        first.add(of[group])
    again = table.Results(*files, seed=8)
    assert again.load() == 7
    assert [again.has(group) for group in groups[:4]] == [False, True, True, False]
    again.add(of[groups[0]])
    assert f"**{len(groups) - 3} groups have not been run yet**" in files[1].read_text()
    names = [table.name_of(each) for each in json.loads(files[0].read_text())["cells"]]
    assert names == [table.name_of(each) for group in groups[:3] for each in of[group]]
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_what_plain_mindspore_can_t_do_is_no_cell_that_holds():
    impossible = {**cell("graph", "O3"), "note": "plain MindSpore fails: TypeError: no"}
    page = table.page([cell("graph", "float32"), impossible], 7)
    assert "**1 of 1 cells hold, 0 fail.** 1 more are not judged" in page
    assert "| lstm-graph-O3 | TypeError: no |" in page


def test_a_process_that_crashes_is_a_failure_of_its_cells(monkeypatch, tmp_path):
    (tmp_path / "run.py").write_text("raise SystemExit('broken')")
    monkeypatch.setattr(matrix, "HERE", tmp_path)
    cells = matrix.run(matrix.Group("lstm", "graph", "O2", 7))
    assert [each["failures"] for each in cells] == [["the process ends with 1: broken"]] * 3
