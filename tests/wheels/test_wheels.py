"""The wheels of `make wheels`: each has the kernel, for its own machine and an old glibc, and x86-64's runs."""

import subprocess
import sys
import zipfile

import pytest
from wheel_files import FOLDER, kernel_of, the_wheel

pytestmark = pytest.mark.skipif(FOLDER is None, reason="`make wheels` says in WHEELS_FOLDER where they are")
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


def names_of(path):
    """The machine of a library, and what of its names Python and MindSpore can call."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        elf = ELFFile(file)
        symbols = elf.get_section_by_name(".dynsym").iter_symbols()
        names = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
        return elf["e_machine"], {name for name in names if name.startswith("asd_")}


@pytest.mark.parametrize("machine", MACHINES)
def test_auditwheel_finds_the_tag_right(machine):
    command = [sys.executable, "-m", "auditwheel", "show", str(the_wheel(machine))]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f'"manylinux_2_17_{machine}"' in said


def test_both_kernels_are_for_their_machine_and_have_the_same_names(tmp_path):
    found = {machine: names_of(kernel_of(the_wheel(machine), tmp_path / machine)) for machine in MACHINES}
    assert {machine: elf for machine, (elf, _) in found.items()} == MACHINES
    assert found["x86_64"][1] == found["aarch64"][1]
    assert {"asd_layout", "asd_statistics", "asd_observe"} <= found["x86_64"][1]


def test_a_wheel_without_the_kernel_is_noticed(tmp_path):
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as archive:
        archive.writestr("asd/operators/kernel/library.py", "")
    with pytest.raises(KeyError, match="_kernel"):
        kernel_of(tmp_path / "empty.whl", tmp_path)


def test_the_vectors_of_the_kernel_are_chosen_when_it_is_loaded(tmp_path):
    """One library for all x86-64: its functions of several widths are found through their resolvers."""
    from elftools.elf.elffile import ELFFile

    with kernel_of(the_wheel("x86_64"), tmp_path).open("rb") as file:
        symbols = list(ELFFile(file).get_section_by_name(".dynsym").iter_symbols())
    assert any(symbol["st_info"]["type"] == "STT_LOOS" for symbol in symbols)
