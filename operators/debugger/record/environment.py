"""What a dump was computed with: where all of it is equal, and repeats itself, the bits of sound runs are."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import mindspore as ms
from mindspore import context

_VERSIONS = ("version.info", "ascend_toolkit_install.info", "compiler/version.info")
_HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH")
_KERNELS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_CBWR", "MS_DISABLE_INTERNAL_KERNELS_LIST")
"""Variables that choose other kernels."""
_PRECISION = ("NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
_ORDER = ("HCCL_DETERMINISTIC", "LCCL_DETERMINISTIC", "ATB_MATMUL_SHUFFLE_K_ENABLE")


def environment() -> str:
    """The parts as `name=value`, with `; ` between them."""
    device = str(context.get_context("device_target"))
    found = {
        "MindSpore": ms.__version__,
        "device": device,
        "chip": _chip(device) + _set(_KERNELS),
        "CANN": _cann() if device == "Ascend" else "none",
        "deterministic": f"{context.get_context('deterministic')}{_set(_ORDER)}",
        "threads": f"{context.get_context('runtime_num_threads')}{_set(('OMP_NUM_THREADS',))}",
        "precision": (_switches() if device == "Ascend" else "own") + _set(_PRECISION),
    }
    return "; ".join(f"{name}={value.replace(';', ',')}" for name, value in found.items())


def _set(names: tuple[str, ...]) -> str:
    return "".join(f" {name}:{os.environ[name]}" for name in names if os.environ.get(name))


@cache
def _chip(device: str) -> str:
    if device != "CPU":
        return str(ms.hal.get_device_name(0))
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    model, flags = (re.search(rf"^{key}\s*: (.*)$", text, re.MULTILINE) for key in ("model name", "(?:flags|Features)"))
    kernels = {word for word in (flags[1].split() if flags else ()) if re.match(r"sse4|avx|fma|amx|sve|asimd", word)}
    return f"{model[1] if model else 'unknown'} {' '.join(sorted(kernels))}".strip()


@cache
def _cann() -> str:
    for home in (Path(os.environ[name]) for name in _HOMES if os.environ.get(name)):
        for name in _VERSIONS:
            try:
                text = (home / name).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            if match := re.search(r"^[Vv]ersion=(.+)$", text, re.MULTILINE):
                return match[1].strip()
    return "unknown"


def _switches() -> str:
    """HF32 and the precision mode of Ascend."""
    return str(dict(sorted((context.get_context("ascend_config") or {}).items())))
