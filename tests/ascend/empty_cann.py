"""Compiling for Ascend without an Ascend: an empty CANN, and programs run against it."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

LIBRARIES = "ge_runner graph ascendcl msprofiler hccl runtime platform c_sec nnopbase ascend_hal"
TOOLS = ("nm", "gcc", "ldconfig")
_SYSTEM = re.compile(r"/(lib(c|m|gcc_s|stdc\+\+|gomp|pthread)\.so|ld-linux)")
_DATA = ("_ZTV", "_ZTI", "_ZTS")  # C++ vtables and type infos
_COLLECTIVES = re.compile(
    r" = (?:PrimFunc_)?(AllReduce|AllGather|ReduceScatter|AllToAll\w*|AlltoAll\w*|Broadcast|Send|Receive)\("
)
_OPERATORS = re.compile(r"^ +%\d+\([^)]*\) = (?:Prim\w*?_)?([A-Z]\w*)\(", re.MULTILINE)
_TYPES = re.compile(r"Tensor\[(\w+)\]")
_NO_OPERATORS = {"Load", "Depend", "UpdateState", "MakeTuple", "TupleGetItem", "Return", "Switch", "Partial"}
_MAP = re.compile(r"^_ZN2ge13StatusFactory8InstanceEv$")  # gives a std::map, which code of MindSpore 2.10 fills
_OURS = ("NPU_ASD_", "ASD_", "MS_", "RANK_", "DEVICE_", "GLOG_", "ASCEND_")


def why_not() -> str | None:
    """Why nothing can be compiled for Ascend here, or None where it can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} is missing: binutils, gcc and libc-bin make the empty CANN"
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "the empty CANN is made of x86-64 instructions"
    if find_spec("mindspore") is None or not (_plugins() / "libmindspore_ascend.so.2").is_file():
        return "MindSpore's wheel has no libmindspore_ascend.so.2: it is not there, or arranged in another way"
    return None


def build(folder: Path) -> Path:
    """Makes an empty CANN in `folder`, which takes some seconds; returns it.

    Raises:
        RuntimeError: The wheel has no symbols that are CANN's, so it has changed.
    """
    lib = _plugins().parent
    wheel = [path for path in lib.rglob("*.so*") if "gpu" not in str(path.relative_to(lib))]
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout.split()
    system = [Path(word) for word in listed if word.startswith("/") and _SYSTEM.search(word)]
    known = set().union(*(_symbols(path, "--defined-only") for path in [*wheel, *system]))
    wanted = set().union(*(_symbols(path, "--undefined-only") for path in wheel if _plugins() in path.parents))
    missing = sorted(name for name in wanted - known if not name.startswith(("Py", "_Py")))
    if not any(name.startswith("acl") for name in missing):
        raise RuntimeError(
            f"the plugins in {_plugins()} want no symbol of CANN: another MindSpore, or `nm` can't read it"
        )
    libraries = folder / "latest" / "lib64"  # MindSpore finds CANN's home by this end of the path
    libraries.mkdir(parents=True)
    source = libraries / "empty.s"
    source.write_text(".text\n" + "".join(map(_definition, missing)))
    for name in LIBRARIES.split():
        library = libraries / f"lib{name}.so"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{library.name}", "-o", library, source], check=True
        )
    hccl = folder / "python" / "hccl"  # MindSpore asks it for its version
    hccl.mkdir(parents=True)
    (hccl / "__init__.py").touch()
    (hccl / "sys_version.py").write_text('__sys_version__ = "8.5.0"\n')
    return folder


def _plugins() -> Path:
    return Path(find_spec("mindspore").origin).parent / "lib" / "plugin"


def _symbols(library: Path, which: str) -> set[str]:
    lines = subprocess.run(["nm", "-D", which, library], capture_output=True, text=True).stdout.splitlines()
    found = [line.split() for line in lines if line.strip()]
    return {words[-1].split("@")[0] for words in found if which == "--defined-only" or words[-2] != "w"}


def _definition(name: str) -> str:
    if name.startswith(_DATA):
        return f".data\n.globl {name}\n.type {name},@object\n.size {name},512\n{name}: .zero 512\n.text\n"
    if _MAP.match(name):  # an empty one, whose head is its own first and last
        head = f"{name}.head"
        return (
            f".data\n{name}.map: .zero 8\n{head}: .quad 0, 0, {head}, {head}, 0\n.text\n"
            f".globl {name}\n.type {name},@function\n{name}: leaq {name}.map(%rip),%rax\n ret\n"
        )
    return f".globl {name}\n.type {name},@function\n{name}: xorl %eax,%eax\n ret\n"


class Graph(NamedTuple):
    """What the graph of a step is made of in the end."""

    collectives: Counter  # how many of each kind
    operators: Counter  # the same of all operators, without those that only order and pass on
    types: set[str]  # of which elements its tensors are, such as `Float32`


def read_graph(text: str) -> Graph:
    """That of a file that MindSpore wrote."""
    operators = Counter(name for name in _OPERATORS.findall(text) if name not in _NO_OPERATORS)
    return Graph(Counter(_COLLECTIVES.findall(text)), operators, set(_TYPES.findall(text)))


def compile_on(cann: Path, work: Path, program: Path, *words, ranks: int, rank: int = 0, seconds=300, **settings):
    """Runs `program` as one rank of many; what it compiles is for Ascend.

    Args:
        cann: The folder of an empty CANN.
        work: Where it runs, and leaves its graphs.
        program: A file of Python.
        words: Its arguments.
        ranks: How many.
        rank: Which one it is.
        seconds: After which it is killed.
        settings: More of its environment.

    Returns:
        Its exit code, -1 where its time was up; and what it printed.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    # MindSpore puts folders of its own package there when it rewrites code, and one of them has a `math.py`.
    known = [path for path in sys.path if path and not Path(path, "__init__.py").exists()]
    paths = [cann / "python", *known, environ.get("PYTHONPATH", "")]
    environ |= {
        "MS_SIMULATION_LEVEL": "0",
        "RANK_ID": str(rank),
        "RANK_SIZE": str(ranks),
        "GLOG_v": "3",
        "ASCEND_HOME_PATH": str(cann / "latest"),
        "LD_LIBRARY_PATH": f"{cann / 'latest' / 'lib64'}:{_plugins() / 'ascend'}",
        "PYTHONPATH": os.pathsep.join(map(str, filter(None, paths))),
        # The graph as it is behind the last pass of the front end, and no other.
        "MS_DEV_SAVE_GRAPHS": "2",
        "MS_DEV_DUMP_IR_PASSES": "validate",
        "MS_DEV_SAVE_GRAPHS_PATH": str(work / "graphs"),
        "ASD_RUN_DIR": str(work / "run"),
        **settings,
    }
    work.mkdir(parents=True, exist_ok=True)
    with (work / "log").open("w") as log:
        started = subprocess.Popen(
            [sys.executable, program, *map(str, words)], cwd=work, env=environ, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            code = started.wait(seconds)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
            code = -1
    return code, (work / "log").read_text()
