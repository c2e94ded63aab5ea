"""Bounds checks of the debugging mode: the first failure is noted, then the kernel returns."""

from llvmlite import ir

from tilewright.cpu_gpu_backends.codegen.frame import Frame
from tilewright.cpu_gpu_backends.codegen.types import INDEX, lanes_of, number

#: The variable of a module that counts accesses out of bounds.
FAILURES = "tilewright_out_of_bounds"


def failure_counter(module: ir.Module) -> ir.GlobalVariable:
    """Return the counter, declared once in `module`."""
    if FAILURES in module.globals:
        return module.globals[FAILURES]
    counter = ir.GlobalVariable(module, INDEX, FAILURES)
    counter.initializer = ir.Constant(INDEX, 0)
    return counter


def emit_bounds_check(frame: Frame, position: int | ir.Value, extent: int) -> None:
    """Return from the function, having counted the failure, unless ``0 <= position < extent``."""
    b = frame.builder
    if isinstance(position, int):
        inside: ir.Value = ir.Constant(ir.IntType(1), int(0 <= position < extent))
    else:
        lanes = lanes_of(position)
        inside = b.icmp_unsigned("<", position, number(extent, INDEX, lanes))
        if lanes:
            packed = b.bitcast(inside, ir.IntType(lanes))
            inside = b.icmp_signed("==", packed, ir.Constant(packed.type, -1))
    failed, passed = frame.block("outside"), frame.block("inside")
    b.cbranch(inside, passed, failed)
    b.position_at_end(failed)
    b.atomic_rmw("add", failure_counter(b.module), ir.Constant(INDEX, 1), "monotonic")
    b.ret_void()
    frame.enter(passed)
