"""The settings: what is read, what is refused and in which words."""

import contextlib
import dataclasses
import os
import pickle
import re
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd import Config, ConfigError
from asd.config import describe, unknown_variables
from asd.handler import job_of
from asd.rules import RULES
from asd.settings.options import with_options
from asd.settings.table import FORMER

LARGEST = 2**63 - 1
PAIRS = (
    st.tuples(st.integers(3, LARGEST), st.integers(3, LARGEST))
    .filter(lambda pair: float(pair[0]) != float(pair[1]))
    .map(lambda pair: (max(pair), min(pair)))
)
FOLDERS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1)


def test_an_empty_environment_gives_the_documented_defaults():
    expected = (0, (1000000, 10000), (100000, 5000), "stop", "adaptive", "asd_run", "")
    assert Config.from_env({}) == Config() == Config(*expected, protection="full")


def test_an_empty_variable_counts_as_unset(monkeypatch):
    monkeypatch.setenv("NPU_ASD_ENABLE", "")
    assert Config.of_process(NPU_ASD_ENABLE="1").enable == 1
    names = [setting.name for setting in describe({}) if ":" not in setting.name]
    assert Config.from_env(dict.fromkeys([*names, "ASD_OPTIONS"], "")) == Config()


@pytest.mark.parametrize(("text", "enable"), [("0", 0), ("1", 1), ("2", 2), ("3", 3)])
def test_the_switch_takes_one_digit(text, enable):
    config = Config.from_env({"NPU_ASD_ENABLE": text})
    assert (config.enable, config.enabled, config.log_values) == (enable, enable > 0, enable == 3)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("100,50", (100, 50)),
        (" 100 , 50 ", (100, 50)),
        ("\t100,50\n", (100, 50)),
        ("0100,0050", (100, 50)),
        ("4,3", (4, 3)),
        (f"{LARGEST},3", (LARGEST, 3)),
    ],
)
@pytest.mark.parametrize(("variable", "field"), [("NPU_ASD_UPPER_THRESH", "upper"), ("NPU_ASD_SIGMA_THRESH", "sigma")])
def test_thresholds_are_two_whole_numbers(variable, field, text, pair):
    assert getattr(Config.from_env({variable: text}), field) == pair


WRONG_PAIRS = [
    *("2,1", "3,2", "50,100", "100,100", "3,3", "0,0", "-5,3", "100", "100,", ",50", ",", "100,50,", "100,50,10"),
    *("1e6,5", "10.9,4", "7x,3", "100;50", "100 50", "1 00,50", "1_000,50", "+100,50", "0x64,3", " ", "inf,3"),
    *("²,1", "10,²", "\u0661\u0660,\u0665", "\uff19\uff10,\uff15", "100\u00a0,50", "100,50\0"),
    *(f"{LARGEST},{LARGEST - 1}", f"{LARGEST + 1},3", "9" * 30 + ",3", "9" * 5000 + ",3"),
]
WRONG_SWITCHES = ("4", "-1", "01", " 1", "1 ", "1.0", "true", "on", "²", "\u0661", "x", "\0")


@pytest.mark.parametrize(
    ("variable", "text", "listed"),
    [
        *(("NPU_ASD_ENABLE", text, "0 .*, 1 or 2 .* or 3") for text in WRONG_SWITCHES),
        *((f"NPU_ASD_{name}_THRESH", text, "two whole numbers") for name in ("UPPER", "SIGMA") for text in WRONG_PAIRS),
        *(("ASD_ON_ANOMALY", text, "log, skip, stop") for text in ("abort", "Stop", "stop ")),
        ("ASD_RULE", "sigma", f"one of {', '.join(RULES)}"),
        ("ASD_RUN_DIR", "a\0b", "the name of a folder"),
        ("ASD_RUN", "two\nlines", "printable characters"),
        ("ASD_RUN", "x" * 129, "at most 128"),
    ],
)
def test_a_wrong_value_is_refused_with_the_valid_ones_and_never_replaced(variable, text, listed):
    with pytest.raises(ConfigError, match=listed) as caught:
        Config.from_env({variable: text})
    assert (caught.value.variable, caught.value.value) == (variable, text)


@pytest.mark.parametrize(
    ("option", "text", "listed"),
    [
        *(("confirm", text, "for never, to 1") for text in ("1.1", "-0", "1e-2", "nan", "1 %", "²", "." * 99)),
        *(("record", text, "0 or 1") for text in ("2", "true")),
        ("detectors", "all", "some of state, checksum, each once"),
        ("detectors", "state+state", "each once"),
        ("detectors", "state+", "with \\+ between them"),
    ],
)
def test_a_wrong_option_is_refused_with_the_valid_ones(option, text, listed):
    with pytest.raises(ConfigError, match=listed) as caught:
        Config.from_env({"ASD_OPTIONS": f"{option}:{text}"})
    assert (caught.value.variable, caught.value.value) == (f"ASD_OPTIONS: {option}", text)


@pytest.mark.parametrize("item", ["record", "recrod:1", "=1", "record=1", ":1"])
def test_an_item_of_the_options_that_is_no_pair_of_a_known_name_is_refused_with_the_names(item):
    with pytest.raises(ConfigError, match="names detectors, confirm, replay, ") as caught:
        Config.from_env({"ASD_OPTIONS": f"replay:1, {item}"})
    assert (caught.value.variable, caught.value.value) == ("ASD_OPTIONS", item)


def test_options_that_a_program_brings_stand_behind_those_that_are_given():
    chosen = {"ASD_PROTECTION": "document", "ASD_OPTIONS": "replay:0"}
    config = Config.from_env(with_options(chosen, replay="1", manifest="1"))
    assert (config.replay, config.manifest) == (False, True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("enable", value) for value in (4, -1, True, 1.0, "1", None)),
        *(("upper", value) for value in ((2, 1), (3, 3), (100, 50.0), (True, 3), [100, 50], (9,), (9, 8, 7), "9,8")),
        *(("sigma", value) for value in ((LARGEST + 1, 3), (float("inf"), 3), None)),
        *(("on_anomaly", value) for value in ("abort", "", None, ["log"])),
        *(("rule", value) for value in ("sigma", "", 1)),
        *(("run_dir", value) for value in ("", "a\0b", None)),
        *(("weight_hash", value) for value in (-1, True, 1.0, "9464")),
    ],
)
def test_settings_made_by_hand_are_checked_too(field, value):
    with pytest.raises(ConfigError) as caught:
        Config(**{field: value})
    assert caught.value.variable == field


@given(
    enable=st.integers(0, 3),
    upper=PAIRS,
    sigma=PAIRS,
    on_anomaly=st.sampled_from(["log", "skip", "stop"]),
    rule=st.sampled_from(sorted(RULES)),
    run_dir=FOLDERS,
    weight_hash=st.integers(0, 65535),
    replay=st.booleans(),
)
def test_what_describe_shows_reads_back_as_the_same_settings(enable, upper, sigma, replay, **given):
    fixed = {"run": "run 7", "device": "2", "detectors": ("state", "checksum"), "protection": "document"}
    given |= {"replay": replay, "manifest": not replay, "record": replay}
    config = Config(enable, upper, sigma, **given, **fixed)
    options = {"detectors": "state+checksum", "confirm": "0", "weight_hash": str(config.weight_hash)}
    options |= {"replay": str(int(replay)), "manifest": str(int(not replay)), "record": str(int(replay))}
    variables = {
        "NPU_ASD_ENABLE": str(enable),
        "NPU_ASD_UPPER_THRESH": f"{upper[0]},{upper[1]}",
        "NPU_ASD_SIGMA_THRESH": f"{sigma[0]},{sigma[1]}",
        **{"ASD_ON_ANOMALY": config.on_anomaly, "ASD_RULE": config.rule, "ASD_RUN_DIR": config.run_dir},
        **{"ASD_PROTECTION": "document", "ASD_RUN": "run 7", "ASD_NODE": "", "ASD_DEVICE": "2"},
    }
    environ = {**variables, "ASD_OPTIONS": ",".join(f"{name}:{text}" for name, text in options.items())}
    assert Config.from_env(environ) == config
    shown = {**variables, **{f"ASD_OPTIONS:{name}": text for name, text in options.items()}}
    assert {setting.name: setting.value for setting in describe(environ)} == shown
    assert pickle.loads(pickle.dumps(config)) == config


@given(st.sampled_from(["NPU_ASD_ENABLE", "NPU_ASD_UPPER_THRESH", "ASD_RULE", "ASD_RUN_DIR"]), st.text())
def test_any_text_is_read_or_refused_with_a_sentence(variable, text):
    with contextlib.suppress(ConfigError):
        Config.from_env({variable: text})


def test_describe_says_where_a_value_comes_from():
    settings = {setting.name: setting for setting in describe({"NPU_ASD_ENABLE": "3", "ASD_RULE": ""})}
    assert settings["NPU_ASD_ENABLE"][1:] == ("3", "environment", settings["NPU_ASD_ENABLE"].meaning)
    assert settings["ASD_RULE"][1:3] == ("adaptive", "default")
    assert settings["ASD_RULE"].meaning.endswith("(set, but empty: counts as unset)")
    assert settings["ASD_RUN_DIR"].source == "default"


def test_a_run_without_a_name_gets_one_from_its_folder_and_process():
    assert Config(run="job 7").name_of_run() == "job 7"
    assert re.fullmatch(rf"b-\d{{8}}T\d{{6}}-{os.getpid()}", Config(run_dir="a/b").name_of_run())


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ASD_PROTECTION": "document", "ASD_RULE": "adaptive"}, ("state",)),
        ({"ASD_RULE": "adaptive", "ASD_OPTIONS": "detectors:"}, ()),
        ({"ASD_OPTIONS": "tiers:state"}, ("state",)),  # before version 1.0
        ({"ASD_RULE": "silent_check_v3", "ASD_OPTIONS": "detectors:checksum+state"}, ("checksum", "state")),
    ],
)
def test_detectors_come_with_the_adaptive_rule_or_by_name(environ, expected):
    assert Config.from_env(environ).active_detectors == expected


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"ASD_PROTECTION": "document"}, "only ASD_RULE=adaptive suspects a gradient"),
        ({"ASD_RULE": "adaptive", "ASD_ON_ANOMALY": "log"}, "updates that can be refused"),
    ],
)
def test_a_second_look_needs_what_suspects_and_what_refuses(more, reason):
    with pytest.raises(ConfigError, match=reason):
        Config.from_env({"ASD_OPTIONS": "confirm:0.01", **more})
    assert Config.from_env({"ASD_OPTIONS": "confirm:0.02"}).confirm == 0.02


def test_a_variable_that_is_not_read_is_known_with_what_to_use(monkeypatch):
    given = {"ASD_RUL": "adaptive", "NPU_ASD_UPER_THRESH": "9,8", "ASD_OPTIOS": "1", "ASDF": "1", "MY_ASD_RULE": "x"}
    ours = {"ASD_RULE": "adaptive", "ASD_DEVICES": "0,1", "ASD_RESUME_FROM": "x", "ASD_RESUME_STEP": "7"}
    kubelet = {"ASD_HANDLER_SERVICE_PORT_HTTP": "9465", "ASD_HANDLER_PORT_9465_TCP_ADDR": "10.0.0.9"}
    former = {"ASD_RECORD": "1", "MS_NPU_ASD_CONFIG": "enable:true", "ASD_BUDGET": "0.1"}
    ours_wrong = {"ASD_RUL": "ASD_RULE", "NPU_ASD_UPER_THRESH": "NPU_ASD_UPPER_THRESH", "ASD_OPTIOS": "ASD_OPTIONS"}
    monkeypatch.setattr(os, "environ", {**given, **ours, **kubelet, **former})
    assert unknown_variables() == {"ASD_RECORD": "ASD_OPTIONS=record:1", **FORMER, **ours_wrong}


MSRUN = {"MS_SCHED_HOST": "10.0.0.1", "MS_SCHED_PORT": "8118"}


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        (MSRUN, "msrun-10.0.0.1-8118"),
        ({**MSRUN, "MS_SCHED_HOST": "127.0.0.1"}, "msrun-node7-8118"),  # one such there is on every machine
        ({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2"}, "slurm-4711.2"),
        ({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2", "SLURM_RESTART_COUNT": "1"}, "slurm-4711.2+2"),
        ({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2", **MSRUN}, "slurm-4711-10.0.0.1-8118"),
        ({"MINDX_TASK_ID": "ab-12", **MSRUN}, "mindcluster-ab-12-10.0.0.1-8118"),
        ({"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "llama-3"}, "kubernetes-llama"),
        ({"OMPI_MCA_ess_base_jobid": "99"}, "mpi-99"),
        ({"SLURM_JOB_ID": "4\n7", "SLURM_RESTART_COUNT": "many"}, "slurm-4_7"),
    ],
)
def test_all_processes_of_a_job_find_one_name(monkeypatch, environ, name):
    config = Config.from_env({"ASD_NODE": "node7", **environ})
    monkeypatch.setattr(os, "environ", environ)
    assert config.name_of_run() == name
    assert Config(run="mine").name_of_run() == "mine"


def test_two_launches_of_a_job_have_two_names_and_are_one_job(monkeypatch):
    for name, value in MSRUN.items():
        monkeypatch.setenv(name, value)
    launch = Config().name_of_launch()
    assert re.fullmatch(r"msrun-10\.0\.0\.1-8118\+[0-9]{14}", launch)
    assert job_of(launch) == job_of(Config().name_of_run())
    assert Config(run="mine").name_of_launch() == "mine"


def test_the_name_of_the_node_is_the_one_that_was_told():
    assert Config.from_env({"ASD_NODE": "worker-3"}).name_of_node() == "worker-3"
    assert Config().name_of_node() == socket.gethostname()


FULL = ("adaptive", ("state", "checksum"), 0.01, True, True)


@pytest.mark.parametrize(
    ("environ", "brought"),
    [
        ({}, FULL),
        ({"ASD_PROTECTION": "document"}, ("threshold", (), 0.0, False, False)),
        ({"ASD_PROTECTION": "full", "ASD_ON_ANOMALY": "skip"}, FULL),
        ({"ASD_ON_ANOMALY": "log"}, (*FULL[:2], 0.0, False, True)),
        ({"ASD_RULE": "threshold"}, ("threshold", (), 0.0, True, True)),
        ({"ASD_OPTIONS": "detectors:state"}, ("adaptive", ("state",), 0.01, True, True)),
        ({"ASD_OPTIONS": "replay:0,confirm:0"}, (*FULL[:2], 0.0, False, True)),
    ],
)
def test_one_switch_turns_on_what_no_variable_speaks_against(environ, brought):
    config = Config.from_env(environ)
    assert (config.rule, config.active_detectors, config.confirm, config.replay, config.manifest) == brought
    assert config.weight_hash == (0 if config.protection == "document" else 16)
    assert config == dataclasses.replace(config)  # a copy keeps what the switch brought


def test_the_switch_does_the_same_from_python_and_says_where_its_values_come_from():
    assert Config() == Config(protection="full") == Config.from_env({"ASD_PROTECTION": "full"})
    sources = {each.name: each.source for each in describe({"ASD_PROTECTION": "full", "ASD_RULE": "adaptive"})}
    assert {name for name, source in sources.items() if source == "ASD_PROTECTION"} == {
        f"ASD_OPTIONS:{name}" for name in ("confirm", "manifest", "replay", "detectors", "weight_hash")
    }
    assert sources["ASD_RULE"] == "environment"
    assert {each.source for each in describe({})} == {"default"}
