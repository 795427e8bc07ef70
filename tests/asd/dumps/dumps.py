"""Small dumps in the documented format, written by hand and not by the package."""

import json
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from asd.dumps.compare.runs import compare_runs
from asd.dumps.formats.request import Request

MS, PT = "mindspore", "pytorch"
MACHINE = "MindSpore=2.9.0; device=CPU; chip=EPYC avx2; CANN=none; deterministic=OFF; threads=2; precision=own"
HERE = {"tool": "mindspore-asd", "environment": MACHINE}
"""What a dump says of itself whose sound runs are equal bit for bit."""


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compared(folder):
    """The outcome of comparing the run below a folder with the golden one."""
    return compare_runs(Request(folder / "run", folder / "golden"), folder / "out")


def outcome_of(folder, write, frameworks=(MS, MS), **options):
    """The outcome of comparing two dumps; `write` gets a writer and whether it is the run under test."""
    for side, framework in zip(("golden", "run"), frameworks, strict=True):
        dump = DumpWriter(folder / side, framework, **options)
        write(dump, side == "run")
        dump.write()
    return compared(folder)


def tensor(array, framework=MS, *, data_name=None, md5=False):
    """One tensor as dump.json describes it."""
    array = np.asarray(array)
    found = {
        "type": "mindspore.Tensor" if framework == MS else "torch.Tensor",
        "dtype": str(array.dtype).title() if framework == MS else f"torch.{array.dtype}",
        "shape": list(array.shape),
    }
    with np.errstate(all="ignore"):
        wide = array.real.astype(np.float32)
        numbers = (wide.max, wide.min, wide.mean, lambda: np.sqrt((wide * wide).sum()))
        statistics = [float(each()) if array.size else None for each in numbers]
    found |= dict(zip(("Max", "Min", "Mean", "Norm"), statistics, strict=True))
    if data_name is not None:
        found["data_name"] = data_name
    if md5:
        found["md5"] = f"{zlib.crc32(np.ascontiguousarray(array)):08x}"
    return found


def save_pt(path, array):
    """What `torch.save` writes for a tensor, put together opcode by opcode."""
    storage = {"float32": "FloatStorage", "float16": "HalfStorage", "int64": "LongStorage"}[str(array.dtype)]

    def text(words):
        return b"X" + struct.pack("<I", len(words)) + words.encode()

    def number(value):
        return b"J" + struct.pack("<i", value)

    strides = [stride // array.itemsize for stride in array.strides]
    pickled = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x00((" + text("storage") + b"q\x01ctorch\n"
    pickled += storage.encode() + b"\nq\x02" + text("0") + b"q\x03" + text("cpu") + b"q\x04" + number(array.size)
    pickled += b"tq\x05Q" + number(0) + b"(" + b"".join(map(number, array.shape)) + b"t("
    pickled += b"".join(map(number, strides)) + b"t\x89ccollections\nOrderedDict\nq\x06)Rq\x07tq\x08Rq\x09."
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", array.tobytes(order="A"))
        archive.writestr("archive/version", "3\n")


class DumpWriter:
    """Writes one rank of one step.

    Args:
        folder: The folder of the rank.
        framework: `mindspore` or `pytorch`.
        task: `tensor` or `statistics`.
        md5: Whether CRC32s are written.
        head: What else `dump.json` says of itself; by default on what it was made.
    """

    def __init__(self, folder, framework=MS, task="tensor", level="mix", md5=False, head=HERE):
        self.head = head
        self.folder, self.framework, self.task, self.level, self.md5 = Path(folder), framework, task, level, md5
        self.data, self.parents, self.stacks = {}, {}, {}
        (self.folder / "dump_tensor_data").mkdir(parents=True, exist_ok=True)

    def _describe(self, value, name):
        if isinstance(value, (list, tuple)):
            return [self._describe(inner, f"{name}.{i}") for i, inner in enumerate(value)]
        if isinstance(value, dict):
            return {key: self._describe(inner, f"{name}.{key}") for key, inner in value.items()}
        if value is None:
            return None
        if isinstance(value, (bool, int, float, str)):
            return {"type": type(value).__name__, "value": value}
        data_name = None
        if self.task == "tensor":
            data_name = f"{name}.{'npy' if self.framework == MS else 'pt'}"
            path = self.folder / "dump_tensor_data" / data_name
            np.save(path, value) if self.framework == MS else save_pt(path, value)
        return tensor(value, self.framework, data_name=data_name, md5=self.md5)

    def forward(self, name, inputs, outputs, parameters=None, kwargs=None, parent=None, settings=None):
        """A forward call, of an API or of a Cell."""
        entry = {
            "input_args": [self._describe(x, f"{name}.input.{i}") for i, x in enumerate(inputs)],
            "input_kwargs": {key: self._describe(x, f"{name}.kwargs.{key}") for key, x in (kwargs or {}).items()},
            "output": [self._describe(x, f"{name}.output.{i}") for i, x in enumerate(outputs)],
        }
        if name.startswith(("Cell.", "Primitive.")):
            entry["attributes"] = settings or {}
        if parameters is not None:
            entry["parameters"] = {key: self._describe(x, f"{name}.parameters.{key}") for key, x in parameters.items()}
        self.data[name] = entry
        self.parents[name] = parent
        self.stacks[name] = [f"File /train.py, line 7, in construct, \n {name}"]
        return self

    def backward(self, name, inputs, outputs, parent=None):
        """A backward call."""
        self.data[name] = {
            "input": [self._describe(x, f"{name}.input.{i}") for i, x in enumerate(inputs)],
            "output": [self._describe(x, f"{name}.output.{i}") for i, x in enumerate(outputs)],
        }
        self.parents[name] = parent
        return self

    def parameters_grad(self, name, gradients):
        """The gradients of a Cell's parameters."""
        self.data[name] = {key: [self._describe(x, f"{name}.{key}")] for key, x in gradients.items()}
        return self

    def write(self, *, new_stacks=True, framework_known=True):
        """Writes the json files and returns the path of dump.json."""
        head = {"task": self.task, "level": self.level, **self.head}
        head |= {"framework": self.framework} if framework_known else {}
        head |= {"dump_data_dir": str(self.folder / "dump_tensor_data"), "data": self.data}
        (self.folder / "dump.json").write_text(json.dumps(head, indent=1))
        stacks = {str(i): [[name], frames] for i, (name, frames) in enumerate(self.stacks.items())}
        (self.folder / "stack.json").write_text(json.dumps(stacks if new_stacks else self.stacks))
        (self.folder / "construct.json").write_text(json.dumps(self.parents))
        return self.folder / "dump.json"


def golden_arrays(seed=0):
    """The tensors of a small network: two layers with an addition between them, forward and backward."""
    rng = np.random.default_rng(seed)
    names = "x w1 h a w2 y gy ga gw2 gh gw1 gx"
    shapes = {"x": (4, 8), "gx": (4, 8), "w1": (16, 8), "gw1": (16, 8), "y": (4, 4), "gy": (4, 4)}
    return {name: rng.standard_normal(shapes.get(name, (4, 16))).astype(np.float32) for name in names.split()}


def write_network(folder, arrays, framework=MS, task="tensor", md5=False, **kwargs):
    """The dump of that network."""
    cell, dense, names = ("Cell", "Dense", ("gamma",)) if framework == MS else ("Module", "Linear", ("weight",))
    first, second = f"{cell}.net.fc1.{dense}", f"{cell}.net.fc2.{dense}"
    api = "Mint" if framework == MS else "Torch"
    t = arrays
    dump = DumpWriter(folder, framework, task, md5=md5)
    dump.forward(f"{first}.forward.0", [t["x"]], [t["h"]], {names[0]: t["w1"]})
    dump.forward(f"{api}.add.0.forward", [t["h"], 1.0], [t["a"]], kwargs={"alpha": 1})
    dump.forward(f"{second}.forward.0", [t["a"]], [t["y"]], {names[0]: t["w2"]})
    dump.parameters_grad(f"{second}.parameters_grad.0", {names[0]: t["gw2"]})
    dump.backward(f"{second}.backward.0", [t["gy"]], [t["ga"]])
    dump.backward(f"{api}.add.0.backward", [t["ga"]], [t["gh"]])
    dump.parameters_grad(f"{first}.parameters_grad.0", {names[0]: t["gw1"]})
    dump.backward(f"{first}.backward.0", [t["gh"]], [t["gx"]])
    return dump.write(**kwargs)


def unpicklable_npy(path, marker):
    """A `.npy` whose loading by pickle would create the file `marker`."""

    class Bomb:
        def __reduce__(self):
            return Path.touch, (Path(marker),)

    array = np.empty(1, object)
    array[0] = Bomb()
    np.save(path, array, allow_pickle=True)
