"""The C++ library is used only if it means the same by every structure that Python reads."""

import subprocess
import sys

import pytest

from asd.operators.kernel import library as kernel

pytestmark = pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built")


def test_the_library_that_was_built_fits():
    assert kernel._misfit(kernel.library) == ""


@pytest.mark.parametrize(
    ("structures", "why"),
    [
        ({"Slot": kernel.SLOT_DTYPE.itemsize - 8}, "Slot has 136 bytes, not 128"),
        ({"Schedule": 8, "Stream": 32}, "Schedule has 64 bytes, not 8, Stream has 24 bytes, not 32"),
        ({"Another": 8}, "it has 7 structures, not 8"),
    ],
)
def test_a_library_of_another_version_is_not_used_and_one_sentence_says_so(structures, why, monkeypatch, caplog):
    monkeypatch.setattr(kernel, "_STRUCTURES", {**kernel._STRUCTURES, **structures})
    assert kernel._load() is None
    (line,) = caplog.messages
    assert line.startswith(
        f"the C++ kernel {kernel.library_path()} is of another version ({why}); MindSpore operators "
    )


def test_a_library_that_tells_nothing_or_can_t_be_loaded_is_not_used(tmp_path, monkeypatch, caplog):
    import _ctypes as other  # some library that is none of ours

    broken = tmp_path / "_kernel.so"
    broken.write_bytes(b"no library")
    for path, why in ((other.__file__, "does not tell its structures"), (broken, "file too short|invalid ELF header")):
        monkeypatch.setattr(kernel, "library_path", lambda path=path: path)
        assert kernel._load() is None
        assert any(part in caplog.messages[-1] for part in why.split("|"))


def test_a_library_that_lacks_a_function_is_not_used(monkeypatch, caplog):
    import _ctypes as other

    monkeypatch.setattr(kernel, "library_path", lambda: other.__file__)
    monkeypatch.setattr(kernel, "_misfit", lambda loaded: "")
    assert kernel._load() is None
    assert "undefined symbol: asd_header" in caplog.messages[-1]


def test_a_handler_of_the_program_s_own_stays_and_nothing_is_said_for_it(tmp_path):
    file = tmp_path / "status.json"
    file.write_text('{"active": true , "rank": 0}')
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "from asd.announce import last_word\n"
        "from asd.operators.kernel import library as kernel\n"
        "from pathlib import Path\n"
        f"last_word.keep(Path({str(file)!r}), 11)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 7
    assert "true" in file.read_text()
    assert (
        subprocess.run(
            [sys.executable, "-c", program.replace("signal.signal", "print")], check=False, stdout=subprocess.DEVNULL
        ).returncode
        == -15
    )
    assert file.read_text() == '{"active": false, "rank": 0}'
