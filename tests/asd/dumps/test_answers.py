"""The four answers: nobody of a healthy pair is accused, at any level and in any summary, and faults are named."""

import itertools
import shutil

import numpy as np
import pytest

from asd.dumps.compare.first_difference import Answer
from tests.asd.dumps.dumps import HERE, MACHINE, MS, PT, DumpWriter, compared, noise

WAYS = list(itertools.product(("L0", "L1", "mix"), ({}, {"md5": True, "task": "statistics"}, {"task": "statistics"})))
EACH_WAY = pytest.mark.parametrize("ways", [WAYS[::4], pytest.param(WAYS, marks=pytest.mark.slow)], ids=["some", "all"])
X64 = {"environment": MACHINE.replace("avx2", "sse4")}
UNSAID = {"environment": "", "tool": ""}
ASKED, TELL, SAME = Answer.ASKED_DIFFERENTLY, Answer.CANNOT_TELL, Answer.DO_NOT_PART


def rounded(x, unit, seed=0):
    return (x * (1 + unit * noise(*x.shape, seed=seed))).astype(x.dtype)


class Net:
    """A small network whose calls are written down as they are computed, forward and backward."""

    def __init__(self, dump, **options):
        self.dump, self.o, self.count = dump, {"unit": 0.0, "fault": "", **options}, {}

    def call(self, path, kind, api, inputs, function, settings=None, parameters=None):
        number = self.count[api] = self.count.get(api, -1) + 1
        cell = f"Cell.{path}.{kind}.forward.0"
        given = [*inputs, *(parameters or {}).values()]
        out = rounded(function(*given), self.o["unit"], number).astype(given[0].dtype)
        out = self.struck(path, out)
        if self.dump.level != "L0":
            primitive = api.startswith("Primitive")
            args = [*given, *(() if primitive else (settings or {}).values())]
            self.dump.forward(f"{api}.{number}.forward", args, [out], parent=cell, settings=settings)
        if self.dump.level != "L1":
            self.dump.forward(cell, inputs, [out], parameters or {}, settings=settings)
        return out

    def struck(self, path, out):
        if self.o["fault"] == path:
            out = out.copy()
            out.flat[5] *= np.float32(1 + self.o.get("by", 1.0))
        return out

    def dense(self, path, x, w, **settings):
        unit = 2**-11 if self.o.get("reduced") else 0
        weights = {"weight": w.astype(x.dtype)}
        product = lambda x, w: rounded(x, unit, 3) @ rounded(w, unit, 4)  # noqa: E731
        return self.call(path, "Dense", "Primitive.matmul.MatMul", [x], product, {"b": False, **settings}, weights)

    def run(self):
        o = self.o
        kind = np.float16 if o.get("half") else np.float32
        x = noise(*o.get("shape", (8, 16)), seed=o.get("batch", 0)).astype(kind)
        w = {name: noise(16, 16, seed=each) / 4 for each, name in enumerate("qkvo", o.get("weights", 10))}
        if o.get("extra"):
            self.call("first", "ReLU", "Functional.relu", [x], lambda x: np.maximum(x, 0))
        heads = {name: self.dense(name, x, w[name], **o.get("settings", {})) for name in o.get("order", "qkv")}
        mixed = [heads[name] for name in o.get("operands", "qk")]
        x = self.call("mul", "Mul", "Tensor.__mul__", mixed, lambda a, b: a * b)
        if o.get("adapter"):
            x = x + self.dense("adapter", x, w["o"] / 50)
        eps = o.get("eps", 1e-5)

        def normal(x):
            return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)

        x = self.call("norm", "LayerNorm", "Primitive.layer_norm.LayerNorm", [x], normal, {"epsilon": eps})
        power = o.get("power", 2)
        x = self.call("pow", "Pow", "Functional.pow", [x], lambda x: x**power, {"exponent": power})
        if o.get("act"):
            x = self.call("act", "Act", f"Functional.{o['act']}", [x], np.tanh)
        if "drop" in o:
            x = self.call(
                "drop", "Dropout", "Functional.dropout", [x], lambda x: x * (noise(8, 16, seed=o["drop"]) > 0)
            )
        y = self.dense("out", x, w["o"])
        self.backward(y, w["o"])
        return self

    def backward(self, y, w):
        size, factor = self.o.get("size", 1e-3), np.float32(self.o.get("factor", 1))
        g = rounded((noise(*y.shape, seed=99) * size).astype(y.dtype), self.o["unit"], 97)
        d = rounded(g @ w.T.astype(g.dtype), self.o["unit"], 98) * factor.astype(g.dtype)
        if self.dump.level != "L0":
            number = self.count["Primitive.matmul.MatMul"]
            name = f"Primitive.matmul.MatMul.{number}.backward"
            self.dump.backward(name, [g], [d], parent="Cell.out.Dense.backward.0")
        if self.dump.level != "L1":
            self.dump.backward("Cell.out.Dense.backward.0", [g], [d])


def answer(folder, run, golden, way, heads=(HERE, HERE), frameworks=(MS, MS)):
    level, options = way
    for side, of, head, framework in zip(("run", "golden"), (run, golden), heads, frameworks, strict=True):
        shutil.rmtree(folder / side, ignore_errors=True)
        dump = DumpWriter(folder / side, framework, level=level, head={**HERE, **head}, **options)
        Net(dump, **of).run()
        if framework == PT:
            for names in (dump.data, dump.parents, dump.stacks):
                for name in [name for name in names if name.startswith("Cell.")]:
                    names[name.replace("Cell.", "Module.")] = names.pop(name)
            dump.parents = {name: each and each.replace("Cell.", "Module.") for name, each in dump.parents.items()}
        if "optimizer" in of:
            dump.head = {**dump.head, "optimizer": of["optimizer"]}
        dump.write()
    return compared(folder)


HERE2 = (HERE, HERE)
PAIRS = {
    "equal": ({}, {}, HERE2, {SAME}),
    "epsilon": ({"eps": 1e-5}, {"eps": 1e-2}, HERE2, {ASKED}),
    "a little other epsilon": ({"eps": 1e-5}, {"eps": 1.1e-5}, HERE2, {ASKED}),
    "exponent": ({"power": 2}, {"power": 3}, HERE2, {ASKED}),
    "compiled": ({"settings": {"__parse_method__": "f", "_mutable_flags": 0}}, {}, HERE2, {SAME}),
    "a setting that one has": ({"settings": {"c": 1}}, {}, HERE2, {ASKED}),
    "a call first": ({"extra": True}, {}, HERE2, {ASKED}),
    "a call first in the trusted run": ({}, {"extra": True}, HERE2, {ASKED}),
    "an adapter": ({"adapter": True}, {}, HERE2, {ASKED}),
    "an adapter and another epsilon": ({"adapter": True, "eps": 1e-3}, {}, HERE2, {ASKED}),
    "an activation": ({"act": "tanh"}, {}, HERE2, {ASKED}),
    "another activation": ({"act": "tanh"}, {"act": "gelu"}, HERE2, {ASKED, SAME}),
    "k before q": ({"order": "kqv"}, {}, HERE2, {ASKED}),
    "v before q and k": ({"order": "vqk"}, {}, HERE2, {ASKED}),
    "b * a": ({"operands": "kq"}, {}, HERE2, {ASKED}),
    "other operands": ({"operands": "qv"}, {}, HERE2, {ASKED, TELL}),
    "float16": ({"half": True}, {}, HERE2, {ASKED, TELL}),
    "both float16": ({"half": True}, {"half": True}, HERE2, {SAME}),
    "another batch": ({"batch": 5}, {}, HERE2, {ASKED, TELL}),
    "a larger batch": ({"shape": (4, 16)}, {}, HERE2, {ASKED}),
    "other weights": ({"weights": 30}, {}, HERE2, {ASKED, TELL}),
    "another seed of dropout": ({"drop": 7}, {"drop": 8}, HERE2, {ASKED, TELL}),
    "another learning rate": ({"optimizer": {"lr": 0.1}}, {"optimizer": {"lr": 0.2}}, HERE2, {ASKED}),
    "another decay": ({"optimizer": {"decay": 0}}, {"optimizer": {"decay": 0.1}}, HERE2, {ASKED}),
    "another CPU": ({"unit": 2e-7}, {}, (X64, HERE), {SAME, TELL}),
    "another CPU, less": ({"unit": 6e-8}, {}, (X64, HERE), {SAME, TELL}),
    "another CPU and epsilon": ({"unit": 6e-8, "eps": 1e-3}, {}, (X64, HERE), {ASKED}),
    "nobody knows where": ({"unit": 2e-7}, {}, (UNSAID, UNSAID), {SAME, TELL}),
    "TF32, nobody knows": ({"reduced": True}, {}, (UNSAID, UNSAID), {SAME, TELL}),
    "TF32 on another chip": ({"reduced": True}, {}, (X64, HERE), {SAME, TELL}),
    "an older dump": ({"unit": 2e-7}, {}, ({"environment": "MindSpore 2.9.0 on CPU"},) * 2, {SAME, TELL}),
    "another tool": ({"unit": 2e-7}, {}, ({"tool": ""}, HERE), {SAME, TELL}),
    "float16 elsewhere": ({"half": True}, {}, (X64, HERE), {ASKED, TELL}),
    "Ascend twice": ({"unit": 2e-7}, {}, ({"environment": MACHINE.replace("CPU", "Ascend")},) * 2, {SAME, TELL}),
    "an adapter in the trusted run": ({}, {"adapter": True}, HERE2, {ASKED}),
    "an adapter after a call more": ({"adapter": True, "extra": True}, {}, HERE2, {ASKED}),
    "an activation in the trusted run": ({}, {"act": "gelu"}, HERE2, {ASKED}),
    "an activation on another CPU": ({"act": "tanh", "unit": 2e-7}, {}, (X64, HERE), {ASKED}),
    "another even exponent": ({"power": 2}, {"power": 4}, HERE2, {ASKED}),
    "k before q and another epsilon": ({"order": "kqv", "eps": 1e-3}, {}, HERE2, {ASKED}),
    "k before q on another CPU": ({"order": "kqv", "unit": 2e-7}, {}, (X64, HERE), {ASKED, TELL}),
    "b * a on another CPU": ({"operands": "kq", "unit": 2e-7}, {}, (X64, HERE), {ASKED, TELL, SAME}),
    "a larger batch on another CPU": ({"shape": (16, 16), "unit": 2e-7}, {}, (X64, HERE), {ASKED}),
    "other weights and batch": ({"weights": 30, "batch": 5}, {}, HERE2, {ASKED, TELL}),
    "other weights on another CPU": ({"weights": 30, "unit": 2e-7}, {}, (X64, HERE), {ASKED, TELL}),
    "float16 and epsilon": ({"half": True, "eps": 1e-3}, {}, HERE2, {ASKED, TELL}),
    "both float16 elsewhere": ({"half": True, "unit": 5e-4}, {"half": True}, (X64, HERE), {SAME, TELL}),
    "dropout in one": ({"drop": 7}, {}, HERE2, {ASKED}),
    "dropout of one seed elsewhere": ({"drop": 7, "unit": 2e-7}, {"drop": 7}, (X64, HERE), {SAME, TELL}),
    "another optimizer": ({"optimizer": {"optimizer": "Lamb"}}, {"optimizer": {"optimizer": "Adam"}}, HERE2, {ASKED}),
    "another momentum elsewhere": ({"optimizer": {"m": 0.9}}, {"optimizer": {"m": 0.8}}, (X64, HERE), {ASKED}),
    "small gradients elsewhere": ({"size": 1e-7, "unit": 2e-7}, {"size": 1e-7}, (X64, HERE), {SAME, TELL}),
    "large gradients elsewhere": ({"size": 1e4, "unit": 2e-7}, {"size": 1e4}, (X64, HERE), {SAME, TELL}),
    "an epsilon, nobody knows where": ({"unit": 2e-7, "eps": 1e-3}, {}, (UNSAID, UNSAID), {ASKED, TELL}),
    "another tool and epsilon": ({"eps": 1e-3}, {}, ({"tool": ""}, HERE), {ASKED, TELL}),
} | {
    f"{was} became {now}": ({"unit": 2e-7}, {}, ({"environment": MACHINE.replace(was, now)}, HERE), {SAME, TELL})
    for was, now in {"2.9.0": "2.10.0", "none": "8.1", "=OFF": "=ON", "threads=2": "threads=8", "=own": "=hf32"}.items()
}


@EACH_WAY
@pytest.mark.parametrize("name", PAIRS)
def test_nobody_of_a_healthy_pair_is_accused_at_any_level(tmp_path, ways, name):
    run, golden, heads, allowed = PAIRS[name]
    for turned, way in [(False, way) for way in ways] + [(True, WAYS[6])]:
        first, second, sides = (golden, run, heads[::-1]) if turned else (run, golden, heads)
        outcome = answer(tmp_path, first, second, way, sides)
        assert outcome.answer in allowed, (way, outcome.sentence)


@pytest.mark.parametrize("unit", [0.0, 2e-7])
def test_a_sound_network_of_the_other_framework_does_not_part(tmp_path, unit):
    for way in WAYS[::3] + WAYS[2::3]:
        outcome = answer(tmp_path, {"unit": unit}, {}, way, ({}, UNSAID), (MS, PT))
        assert outcome.answer is SAME, (way, outcome.sentence)


@EACH_WAY
@pytest.mark.parametrize("path", ["q", "v", "mul", "norm", "pow", "out"])
@pytest.mark.parametrize("by", [3e-7, -2.0])
def test_a_fault_is_named_where_bits_decide(tmp_path, ways, path, by):
    for level, options in ways:
        outcome = answer(tmp_path, {"fault": path, "by": by}, {}, (level, options))
        if options == {"task": "statistics"}:
            assert outcome.answer in ({TELL, SAME} if by < 1e-6 and by > 0 else {TELL})
        else:
            assert outcome.answer is Answer.WRONG_OPERATOR, outcome.sentence
            assert path in outcome.first.divergence.call.split(".") or level != "L0"


@EACH_WAY
@pytest.mark.parametrize("size", [1e-1, 1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("factor", [1.01, 1.1, -1.0, 16.0])
def test_a_whole_gradient_that_is_wrong_by_a_factor_is_found_at_any_size(tmp_path, ways, size, factor):
    wrong = {"size": size, "factor": factor, "unit": 2e-7}
    sides = ((X64, HERE), (MS, MS)) if factor == 1.01 else (({}, UNSAID), (MS, PT))  # TF32 leaves 0.004 at most
    for half, way in itertools.product((False, True), ways):
        if "md5" in way[1] or (half and (size < 1e-3 or 1 < factor < 2)):
            continue  # float16 holds no such gradient
        outcome = answer(tmp_path, {**wrong, "half": half}, {"size": size}, way, *sides)
        assert outcome.answer is TELL, (way, outcome.sentence)
        assert ".backward" in outcome.first.divergence.call


@pytest.mark.parametrize(
    ("factor", "kind", "top", "allowed"),
    [(1 + 1e-7, "f4", 0, SAME), (-1.0, "f4", 0, TELL), (1.5, "f4", 0, TELL), (1, "f2", 2e-3, SAME)],
)
def test_the_sign_of_a_factor_is_told_where_largest_and_smallest_are_opposite(tmp_path, factor, kind, top, allowed):
    x = np.linspace(-1, 1, 33).astype(kind) + np.array(0.01 * (kind == "f4"), kind)
    for side, of in (("run", factor), ("golden", 1.0)):
        dump = DumpWriter(tmp_path / side, task="statistics", head={"tool": ""})
        y = (np.float64(of) * x).astype(kind)
        y[-1] += top * (side == "run")
        dump.forward("Functional.sin.0.forward", [x], [y]).write()
    assert compared(tmp_path).answer is allowed


def test_where_check_sums_are_all_that_is_known_the_first_row_that_differs_is_shown(tmp_path):
    for side, of in (("run", 2), ("golden", 1)):
        dump = DumpWriter(tmp_path / side, task="statistics", md5=True, head={"tool": ""})
        dump.forward("Functional.sin.0.forward", [noise(3)], [noise(3) * of])
        for part in ("input_args", "output"):
            dump.data["Functional.sin.0.forward"][part][0].update(dict.fromkeys(("Max", "Min", "Mean", "Norm")))
        dump.write()
    found = compared(tmp_path).first.divergence
    assert (found.answer, found.rows) == (TELL, ("Functional.sin.0.forward.output.0",))
