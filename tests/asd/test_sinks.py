"""Where events go: the package's own sinks, and entry points of any distribution."""

from importlib.metadata import EntryPoint

import pytest

from asd import Config
from asd import sinks as module
from asd.origin import Origin

ORIGIN = Origin("run1", 3, "node7", "CPU:0")


@pytest.fixture
def installed(monkeypatch):
    """A function that says which entry points are installed."""

    def install(own=(), **targets):
        monkeypatch.setattr(module, "_OWN", dict(own))
        entries = [EntryPoint(name, target, "asd.sinks") for name, target in targets.items()]
        monkeypatch.setattr(module, "entry_points", lambda group: entries if group == "asd.sinks" else [])

    return install


def make_list(config, origin):
    return [config, origin].append


def make_nothing(config, origin):
    raise PermissionError(13, "Permission denied", config.run_dir)


@pytest.mark.parametrize("known", [{}, {"log": "asd.exporters.run_files.log:open_log"}])
def test_sinks_are_opened_in_the_order_of_their_names_and_the_own_ones_without_metadata(tmp_path, installed, known):
    installed(own=module._OWN, a=f"{__name__}:make_list", **known)
    config = Config(protection="document", run_dir=str(tmp_path), record=True)
    first, *ours = module.open_sinks(config, ORIGIN)
    assert first.__self__ == [config, ORIGIN]
    assert [type(sink).__name__ for sink in ours] == ["EventLog", "Evidence", "LogSink", "ValueRecorder", "StatusFile"]
    assert ours[0].path == tmp_path / "events-rank3.jsonl"
    assert not any(tmp_path.iterdir())  # a run without events leaves no file


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (f"{__name__}:make_nothing", "[Errno 13] Permission denied: 'asd_run'"),
        ("no_such_module:make", "No module named 'no_such_module'"),
        ("asd.sinks:no_such_factory", "module 'asd.sinks' has no attribute 'no_such_factory'"),
        ("asd.sinks:GROUP", "'str' object is not callable"),
    ],
)
def test_a_sink_that_can_not_be_opened_is_named_and_left_out(installed, capsys, target, reason):
    installed(good=f"{__name__}:make_list", broken=target)
    assert len(module.open_sinks(Config(protection="document"), ORIGIN)) == 1
    out, err = capsys.readouterr()
    assert (out, "sink broken" in err, err.endswith(f": {reason}\n")) == ("", True, True)
