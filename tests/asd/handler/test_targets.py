"""Where the agents are: files in Prometheus' `file_sd` form."""

import json

import pytest

from asd import ConfigError
from asd.handler.inputs.targets import FileJobs, FileTargets, Target, read_place

GROUPS = [
    {"targets": ["node7:9464"], "labels": {"node": "node7", "rack": "3"}},
    {"targets": ["10.0.0.8:9464", "[fd00::9]:9465"]},
]


def written(tmp_path, content):
    path = tmp_path / "agents.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_file_names_agents_and_their_nodes_which_are_called_as_the_host_without_a_label(tmp_path):
    source = FileTargets(written(tmp_path, GROUPS))
    assert source.look() == [
        Target("node7", 9464, "node7", "node7"),
        Target("10.0.0.8", 9464, "10.0.0.8", "10.0.0.8"),
        Target("fd00::9", 9465, "fd00::9", "fd00::9"),
    ]
    assert [target.place for target in source.look()] == ["node7:9464", "10.0.0.8:9464", "[fd00::9]:9465"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "must be JSON"),
        ({"targets": []}, "must be JSON"),
        ([{"labels": {}}], "`targets`"),
        ([{"targets": ["node7"]}], "'node7', .* HOST:PORT"),
        ([{"targets": ["node7:9464"], "labels": {"node": 7}}], "`int`"),
    ],
)
def test_a_file_that_is_not_valid_is_refused_with_a_sentence(tmp_path, content, sentence):
    with pytest.raises(ConfigError, match=sentence):
        FileTargets(written(tmp_path, content))


def test_a_change_that_is_not_valid_leaves_the_agents_as_they_were_until_it_is_mended(tmp_path):
    source = FileTargets(written(tmp_path, GROUPS))
    before = source.look()
    written(tmp_path, "[")
    assert source.look() == before
    assert "agents.json" in source.problem
    (tmp_path / "agents.json").unlink()
    assert source.look() == before
    written(tmp_path, GROUPS[:1])
    assert [target.host for target in source.look()] == ["node7"]
    assert source.problem == ""


@pytest.mark.parametrize(
    "text", ["node7:", ":9464", "node7:0", "node7:99999", "no de:9464", "http://node7:9464", "a:b:9464"]
)
def test_a_place_is_host_and_port(text):
    with pytest.raises(ConfigError, match="HOST:PORT"):
        read_place(text, "a target")


def test_a_file_names_the_hosts_of_each_job_and_is_read_again_when_it_changes(tmp_path):
    jobs = FileJobs(written(tmp_path, {"llama": ["node7", "node8"]}))
    assert (set(jobs.hosts("llama")), jobs.hosts("bert"), jobs.look()) == ({"node7", "node8"}, (), [])
    written(tmp_path, {"llama": "node7"})
    jobs.look()
    assert "--jobs" in jobs.problem
    assert set(jobs.hosts("llama")) == {"node7", "node8"}
    written(tmp_path, {"bert": ["node1"]})
    jobs.look()
    assert (jobs.hosts("llama"), set(jobs.hosts("bert")), jobs.problem) == ((), {"node1"}, "")
    for content in ("[", "[]", {"llama": {}}):
        with pytest.raises(ConfigError, match="--jobs"):
            FileJobs(written(tmp_path, content))
