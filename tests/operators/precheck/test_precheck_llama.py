"""A dump of a sound Llama: the pre-check finds no error in it."""

import csv

import mindspore as ms
from mindspore import Tensor

from asd.cli import main
from asd.operators import PrecisionDebugger
from asd.operators.drill import workload


def checked(path, folder, *options):
    assert main(["run_ut", "-api_info", str(path), "-o", str(folder), *options]) == 0
    (file,) = folder.glob("accuracy_checking_result_*.csv")
    rows = list(csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines()))
    return [row["API Name"] for row in rows if "error" in (row["Forward Test Success"], row["Backward Test Success"])]


def test_a_sound_llama_has_no_error_and_the_seeds_rule_blames_its_large_numbers(tmp_path):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    tiny = workload.Workload(hidden=32, layers=1, heads=2, intermediate=64, sequence=8, batch=2)
    net, _ = workload.build(tiny)
    for weight in net.trainable_params():
        weight.set_data(weight * 30)
    step = ms.value_and_grad(net, None, net.trainable_params())
    debugger = PrecisionDebugger(task="tensor", level="mix", dump_path=tmp_path / "dump")
    debugger.start(net)
    step(Tensor(next(workload.batches(tiny))))[0].asnumpy()
    debugger.stop()
    path = tmp_path / "dump" / "step0" / "rank0" / "dump.json"
    assert checked(path, tmp_path / "rounding") == []
    assert checked(path, tmp_path / "seed", "--rule", "seed") != []
