"""Drill without MindSpore: what a training writes is redirected, and what cannot be is refused."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from math import nan
from pathlib import Path

import psutil
import pytest

from asd.cli import main
from asd.drill import REFUSED, TrainingPlan, trainings
from asd.drill.conclusions import HELD, NOT_HELD, NOT_TRIED, SHOWN, DrillPart, compare_cost, compare_numbers, judge
from asd.drill.job import Drill, Way
from asd.drill.trainings import DrillJob, Trained, command_of
from tests.support.events import event_maker
from tests.support.waiting import wait_for

PATHS = "{0}/asd/bootstrap:{0}".format(Path(__file__).parents[3])


def run(code, tmp_path, redirects=True):
    folder, where = tmp_path / "drill", tmp_path / "cwd"
    if redirects is not None:  # else the drill cannot begin in this Python
        TrainingPlan(str(folder), 8, redirects).save()
    for each in (where, folder / "tmp"):
        each.mkdir(parents=True)
    (where / "old").write_text("1")
    (where / "old").chmod(0o640)
    (tmp_path / "latest").symlink_to("cwd")
    environ = {**os.environ, "ASD_DRILL": str(folder), "TMPDIR": str(folder / "tmp"), "PYTHONPATH": PATHS}
    return where, subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=where, env=environ, capture_output=True, text=True, check=False
    )


MEMORY = "/dev/shm/asd-drill"
USES = {
    "new": "open('a', 'w').write('1'); assert open('a').read() == '1'; os.remove('a'); assert not glob.glob('a')",
    "old": "os.chmod('old', 0o600); [open('old', mode).write('2') for mode in 'aw']; assert open('old').read() == '2'",
    "a tree": "os.makedirs('b/c'); open('b/c/d', 'x'); assert os.listdir('b/c') == ['d']; shutil.rmtree('b')",
    "beside old files": "open('a', 'w'); assert sorted(os.listdir()) == sorted(glob.glob('*')) == ['a', 'old']",
    "paths": "f = p.Path('e'); f.write_text('5'); f.rename('g'); assert not f.exists() and open('g').read() == '5'",
    "a copy, a link": "shutil.copy2('old', 'b'); os.symlink('b', 'c'); shutil.copy2('c', 'd'); os.truncate('d', 0)",
    "a link to come": "os.symlink(os.path.abspath('b'), 'c'); open('b', 'w'); open('c', 'a').write('1')",
    "a link to a copy": "open('old', 'w'); os.symlink('old', 'c'); open('c', 'w'); assert os.readlink('c') == 'old'",
    "without old files": "os.rename('old', 'a'); os.remove('a'); assert not os.listdir(); open('old', 'x').write('3')",
    "an older folder": "os.makedirs('.', exist_ok=True); os.chmod('.', 0o700); p.Path().mkdir(exist_ok=True)",
    "another folder": "os.mkdir('o'); os.chdir('o'); open('q', 'w'); assert os.listdir() == ['q']",
    "an older link": "os.remove('../latest'); os.symlink('b', '../latest'); assert os.readlink('../latest') == 'b'",
    "owners": "shutil.chown('old', os.getuid()); os.lchown('old', -1, os.getgid())",
    "devices": f"open('{MEMORY}', 'w').write('1'); assert open('{MEMORY}').read() == '1'; open('/dev/null', 'w')",
    "temporary": "[tempfile.NamedTemporaryFile(dir=each).write(b'7') for each in (None, '.')]",
}


@pytest.mark.parametrize("code", USES.values(), ids=USES)
def test_what_a_training_writes_is_redirected_and_found_there(code, tmp_path):
    where, done = run("import glob, os, pathlib as p, shutil, tempfile; " + code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (old,) = where.iterdir()
    assert where.stat().st_mode & 0o777 != 0o700
    assert (old.name, old.read_text(), oct(old.stat().st_mode)) == ("old", "1", "0o100640")
    assert old.stat().st_ctime_ns <= (tmp_path / "latest").lstat().st_ctime_ns  # which was made after it
    assert not Path(MEMORY).exists()


BEYOND = "os.mkdir('n'); os.symlink('../old', 'n/b'); open('n/b', 'w')"
LINKS = ("os.symlink('old', 'b')", "os.symlink(os.getcwd(), 'b'); open('b/old', 'w')", BEYOND)


@pytest.mark.parametrize("code", ["os.link('old', 'b')", "sqlite3.connect('b')", *LINKS])
@pytest.mark.parametrize("redirects", [True, False, None])
def test_what_cannot_be_redirected_is_refused_unless_that_is_allowed(code, redirects, tmp_path):
    where, done = run("import os, sqlite3; " + code, tmp_path, redirects)
    assert (done.returncode != 0, [each.name for each in where.iterdir()] == ["old"]) == (redirects is not False,) * 2
    assert (tmp_path / "drill" / REFUSED).exists() is (redirects is True)


@pytest.mark.parametrize("words", [[], ["--", "no-such-program"], ["--steps", "1", "--", "true"]])
def test_wrong_usage_ends_with_2_and_leaves_nothing(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["drill", *words]) == 2
    assert (len(capsys.readouterr().err.splitlines()), list(tmp_path.iterdir())) == (1, [])


RECORDED = """
import json, os, pathlib, sys, time
record = {"rank": 0, "ended": True, "steps": 8, "place": "cell", "mode": "pynative", "device": "CPU", "seeded": True}
record |= {"first": 1.0, "memory": 1, "hash": "a", "sample": [1.0], "losses": [1.0] * 8, "seconds": [0.1], "struck": []}
"""
WROTE = "pathlib.Path(os.environ['ASD_DRILL'], 'record-rank0.json').write_text(json.dumps(record))"
WRITES = "import os; os.mkdir('asd_drill/a')"
READ_ONLY = "import os; os.mkdir('d'); open('d/a', 'x'); os.chmod('d', 0o500)"
DATABASE = "; import sqlite3, tempfile; sqlite3.connect(tempfile.mkdtemp() + '/a').close()"  # which is not redirected
FAILS = {
    "by itself": ("raise SystemExit(3)", [], "redirected", []),
    "by itself in place": (f"{WRITES}; raise SystemExit(3)", ["--allow-writes"], "code 3", ["a"]),
    "with a read-only folder": (f"{READ_ONLY}; raise SystemExit(3)", [], "redirected", []),  # root may remove it
    "through links": (f"{RECORDED}{WROTE}{DATABASE}; raise SystemExit(3)", ["--out", "link/asd_drill"], "alone", []),
    "without its end": ("import os; os.system('echo > b; sleep 99 &')", [], "/b has changed meanwhile", []),
    "after its end": (f"{RECORDED}{WROTE}; raise SystemExit(3)", [], "alone", []),
}


@pytest.mark.parametrize(("code", "options", "says", "left"), FAILS.values(), ids=FAILS)
def test_a_training_that_fails_is_no_failed_drill_and_leaves_only_its_own(
    code, options, says, left, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", "link")
    assert main(["drill", "--json", *options, "--", sys.executable, "-c", code]) == 1
    told = capsys.readouterr().err
    assert (says in told, "--allow-writes" in told) == (True, says == "redirected")
    assert [path.name for path in tmp_path.glob("asd_drill/*")] == left


def trained(*losses, **record):
    record |= {"seeded": True, "ended": True, "losses": losses, "hash": losses, "sample": [1.0]}
    return Trained(0, [record], [], [], [])


HARMS = ((0.0, 2.0, "missed"), (1e9, 2.0, "without effect"), (nan, 2.0, "unseen"), (1e9, nan, "missed"))


@pytest.mark.parametrize(("noise", "loss", "outcome"), HARMS)
def test_without_a_seed_the_harm_of_an_unseen_fault_is_not_known_and_nan_is_harm(noise, loss, outcome):
    struck = trained(loss, struck=[{"elements": 1, "step": 5, "where": "w"}])
    assert judge(struck, [trained(1.0)], noise)[-1] == outcome


@pytest.mark.parametrize(("seconds", "state"), [((0.2, 0.22, 0.23), NOT_HELD), ((0.2, 0.202, 0.23), HELD)])
def test_the_middle_of_all_pairs_is_compared_with_the_aim(seconds, state):
    bare, *watched = (trained(device="Ascend", seconds=[each], first=1, memory=1) for each in (0.2, *seconds))
    assert compare_cost([bare] * 3, watched).state == state


FIRST = "os.environ['ASD_DRILL'].endswith('1')"
BARE, RESUMES = "os.environ['NPU_ASD_ENABLE'] == '0'", "(sys.exit() if os.path.exists('a') else open('a', 'x'))"
FAILS_AGAIN = "(sys.exit(1) if os.path.exists('b') else open('b', 'x'))"
SAYS = {
    "hangs": ("time.sleep(600 * int(os.environ['NPU_ASD_ENABLE']))", "fits", NOT_HELD, "hangs under detection"),
    "fails later": (f"{BARE} or {FAILS_AGAIN}", "fits", NOT_HELD, "ends with code 1 under detection"),
    "resumes bare": (f"{BARE} and {RESUMES}", "same", NOT_TRIED, "too few trainings"),
    "resumes": (RESUMES, "fits", NOT_TRIED, "from no checkpoint"),
    "knows nothing": ("record |= {'losses': [None] * 8, 'sample': []}", "same", SHOWN, "nothing can be compared"),
    "NaN in one": (f"{FIRST} and record.update(losses=[float('nan')] * 8)", "same", SHOWN, "files of one another"),
}


@pytest.mark.parametrize(("code", "name", "state", "words"), SAYS.values(), ids=SAYS)
def test_a_part_says_why_it_did_not_hold_or_could_not_be_tried(code, name, state, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trainings, "_PATIENCE", 1.0)
    monkeypatch.setattr(Drill, "_self_test", lambda self, *_: setattr(self.parts["fits"], "state", HELD))
    command = [sys.executable, "-c", f"{RECORDED}{code}\n{WROTE}"]
    job = DrillJob(command, os.environ, tmp_path / "work", 9, 8, 0, 2, redirects=False)
    drill = Drill(job, lambda _: [], print)
    drill.run()
    part = drill.parts[name]
    json.dumps(drill.result({}), allow_nan=False)
    assert part.state == state
    assert words in f"{part.said}{part.advice}"


LAST_LOSSES = [  # 1.1: bits vary; 9: a last bit decides otherwise in that training, or detection changes a number
    *(((nan, nan), (9,), NOT_HELD), ((nan, nan), (nan,), HELD), ((nan, 0.5), (nan,), SHOWN)),
    *(((1, 1.1, 1), (1, 9, 1.1), SHOWN), ((1, 1.1, 9), (9, 9, 1), HELD), ((1, 1.1), (nan,), NOT_HELD)),
    *(((1, 1.1, 1), (9, 9, 9), NOT_HELD), ((1, 1.1), (9, 9), SHOWN), ((1, 1.1, 1), (3, 9, 9), SHOWN)),
]


@pytest.mark.parametrize(("bare", "watched", "state"), LAST_LOSSES)
def test_detection_changed_a_number_if_all_trainings_with_it_differ_more_than_bits_vary(bare, watched, state):
    kinds = ([trained(1.0, last) for last in each] for each in (bare, watched))
    assert compare_numbers(*kinds, in_place=False).state == state


def test_a_file_that_cann_or_another_process_writes_is_not_of_the_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("log", "w") as log:
        drill = Drill(DrillJob(["true"], os.environ, tmp_path / "work", 9, 8, 0, 2, redirects=True), list, print)
        print("as tee does", file=log, flush=True)
        for name in ("plog/plog-7_20240101.log", "device-0/device-7_2.log", ".work-7/1/log", "out/drill.json", "other"):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text("1")
        assert drill._changed() == [str(tmp_path / "other")]
    drill._trainings.close()


ENDS_LATE = "signal.signal(15, lambda *_: (time.sleep(2), os._exit(0))); open('begun', 'x'); time.sleep(600)"


def test_a_second_interrupt_leaves_nothing_either(tmp_path):
    words = [sys.executable, "-m", "asd", "drill", "--", sys.executable, "-c", f"import os, signal, time; {ENDS_LATE}"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: list(tmp_path.glob("asd_drill/.work-*/1/writes/**/begun")))
        children = psutil.Process(process.pid).children(recursive=True)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, list(tmp_path.iterdir())) == (130, []), errors
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


def test_an_event_of_another_node_is_not_followed_on_this_one(tmp_path):
    part, event = DrillPart(), event_maker(host="another")()
    Way(tmp_path, os.environ).conclude(part, Trained(0, [], [event], [], []))
    assert part.state == NOT_TRIED


def test_an_agent_keeps_no_file_open_in_the_run_folder_which_is_removed_before_it_ends(tmp_path):
    (own := tmp_path / "own").mkdir()
    with Way(own, os.environ).open() as follow:
        follow(tmp_path / "run")
        wait_for(lambda: [path for path in tmp_path.rglob("*.sqlite") if path.stem != "handler"])
        assert not list(tmp_path.glob("run/*"))


def test_a_launcher_may_end_its_ranks_before_it_is_killed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    waits = "signal.pthread_sigmask(0, [15]); open('begun', 'x'); signal.sigwait([15]); open('told', 'x')"
    with trainings.running([sys.executable, "-c", f"import signal; {waits}"], os.environ, subprocess.DEVNULL):
        wait_for(Path("begun").exists)
    assert Path("told").exists()


def test_ranks_are_started_by_the_launcher_with_the_program_of_the_command(tmp_path):
    (tmp_path / "msrun").touch(0o755)
    path, shows = f"{tmp_path}:/usr/bin:{os.environ['PATH']}", "import sys; print(sys.executable)"
    words = command_of([sys.executable, "-c", shows], 2, tmp_path, path)
    assert [Path(words[0]).name, words[1]] == ["msrun", "--worker_num=2"]
    rank = next(number for number, word in enumerate(words) if word.startswith("python"))
    assert subprocess.check_output(words[rank:], env={"PATH": path}, text=True) == f"{sys.executable}\n"


def test_an_isolated_python_as_that_of_the_keeper_is_no_training(tmp_path):
    TrainingPlan(str(tmp_path / "drill"), 8).save()
    environ = {**os.environ, **dict.fromkeys(("ASD_DRILL", "TMPDIR"), str(tmp_path / "drill"))}
    subprocess.run([sys.executable, "-I", "-c", "import os; os.mkdir('a')"], cwd=tmp_path, env=environ, check=True)
    assert (tmp_path / "a").exists()
