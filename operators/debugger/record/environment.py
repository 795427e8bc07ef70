"""Environment that a dump was computed in: where all of it is equal, and repeats itself, the bits of sound runs are."""

import contextlib
import re
from functools import cache
from pathlib import Path

import mindspore as ms
from mindspore import context
from mindspore.device_context.ascend import op_precision

from asd.config import cann_version, set_variables

_KERNELS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_CBWR", "MS_DISABLE_INTERNAL_KERNELS_LIST")
_ORDER = ("HCCL_DETERMINISTIC", "LCCL_DETERMINISTIC", "ATB_MATMUL_SHUFFLE_K_ENABLE")
_SWITCHES = ("precision_mode", "op_precision_mode", "matmul_allow_hf32", "conv_allow_hf32")
_PRECISION = ("NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")


def environment() -> str:
    """Returns the parts as `name=value`, with `; ` between them."""
    device = str(context.get_context("device_target"))
    switches = "own"
    if device == "Ascend":  # what later functions than `set_context` set is not in the context
        now = op_precision.AscendOpPrecisionConf.get_instance()
        found = context.get_context("ascend_config") | {name: getattr(now, name)() for name in _SWITCHES}
        switches = str(dict(sorted(found.items())))
    found = {
        "MindSpore": ms.__version__,
        "device": device,
        "chip": _chip() + _set(*_KERNELS) if device == "CPU" else str(ms.hal.get_device_name(0)) + _set(*_KERNELS),
        "CANN": cann_version() or "unknown" if device == "Ascend" else "none",
        "deterministic": f"{context.get_context('deterministic')}{_set(*_ORDER)}",
        "threads": f"{context.get_context('runtime_num_threads')}{_set('OMP_NUM_THREADS')}",
        "precision": switches + _set(*_PRECISION),
    }
    return "; ".join(f"{name}={value.replace(';', ',')}" for name, value in found.items())


def _set(*names: str) -> str:
    """Returns the variables that are set."""
    return "".join(f" {name}:{value}" for name, value in set_variables(*names).items())


@cache
def _chip() -> str:
    text = ""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    model, flags = (re.search(rf"^(?:{key})\s*: (.*)$", text, re.MULTILINE) for key in ("model name", "flags|Features"))
    kernels = {word for word in (flags[1].split() if flags else ()) if re.match(r"sse4|avx|fma|amx|sve|asimd", word)}
    return f"{model[1] if model else 'unknown'} {' '.join(sorted(kernels))}".strip()
