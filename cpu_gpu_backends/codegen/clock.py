"""The counter that generated code reads to time itself."""

import ctypes
import time
from functools import cache

from tilewright.cpu_gpu_backends.codegen.engine import load_module
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget

#: The intrinsic that reads a counter of constant rate: the time stamp counter of an x86, the
#: virtual counter of an AArch64.
COUNTER = "llvm.readcyclecounter"
#: How long the counter is compared with the system's clock.
_CALIBRATION_SECONDS = 0.02


@cache
def nanoseconds_per_tick(target: CpuTarget) -> float:
    """Measure the step of the counter of the processor at hand."""
    module = load_module(
        f'target triple = "{target.triple}"\n'
        f"declare i64 @{COUNTER}()\n"
        f"define i64 @ticks() {{\n  %now = call i64 @{COUNTER}()\n  ret i64 %now\n}}\n",
        target,
    )
    ticks = ctypes.CFUNCTYPE(ctypes.c_int64)(module.address("ticks"))
    before, start = ticks(), time.perf_counter_ns()
    time.sleep(_CALIBRATION_SECONDS)
    return float((time.perf_counter_ns() - start) / (ticks() - before))
