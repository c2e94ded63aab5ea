"""What `Gemm` does to the state of a machine."""

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

from tilewright.isa.instructions import Gemm
from tilewright.isa.memories import Memory
from tilewright.isa.semantics_state import Indices, MachineState, require_range, shifted
from tilewright.isa.semantics_steps import BoxSteps, ListedSteps, arrange

#: Products of two int8, up to 2**14 each, whose sum float32 holds exactly (up to 2**24).
_FLOAT32_TERMS = 1 << 24 - 14
#: Products of two int8 whose sum may not fit int32.
_TOO_MANY_TERMS = 1 << 31 - 14
#: Steps of an irregular instruction that are computed at once.
_LISTED_CHUNK = 1 << 12


def execute_gemm(instruction: Gemm, state: MachineState) -> None:
    """Multiply and accumulate as `Gemm` states."""
    first, count = instruction.uop_begin, instruction.uop_count
    require_range("gemm reads", Memory.GUOP, first, first + count - 1, len(state.guop))
    plan = arrange(
        instruction.loops,
        state.guop[first : first + count].tobytes(),
        state.gemm_uop_fields,
        1,
        any_order=instruction.accumulate,
    )
    match plan:
        case BoxSteps():
            _execute_box(instruction, plan, state)
        case ListedSteps():
            _execute_listed(instruction, plan, state)
        case _:
            assert_never(plan)


def _execute_box(instruction: Gemm, plan: BoxSteps, state: MachineState) -> None:
    dst, src, wgt = _indices(instruction, plan, state)
    common, other = dst.shape
    batch, lanes = state.acc.shape[1:]
    depth = wgt.shape[1] * state.config.block_in
    dtype = np.float32 if depth <= _FLOAT32_TERMS else np.float64
    weights = state.wgt[wgt].swapaxes(1, 2).astype(dtype).reshape(common, lanes, depth)
    operands = state.inp[src].swapaxes(2, 3).astype(dtype).reshape(len(src), other * batch, depth)
    if len(src) == 1:
        flat = operands[0] @ weights.reshape(common * lanes, depth).T
        products = flat.reshape(other, batch, common, lanes).transpose(2, 0, 1, 3)
    else:
        products = (operands @ weights.swapaxes(1, 2)).reshape(common, other, batch, lanes)
    if depth >= _TOO_MANY_TERMS:
        products = products.astype(np.int64)
    if instruction.accumulate:
        state.acc[dst] += products.astype(np.int32)
    else:
        state.acc[dst] = products.astype(np.int32)


def _execute_listed(instruction: Gemm, plan: ListedSteps, state: MachineState) -> None:
    dst, src, wgt = _indices(instruction, plan, state)
    dst = dst[plan.run_begins]
    sums: npt.NDArray[np.int64] = np.zeros((len(dst), *state.acc.shape[1:]), np.int64)
    run_of_step = np.repeat(np.arange(len(dst)), plan.run_ends - plan.run_begins + 1)
    for begin in range(0, len(src), _LISTED_CHUNK):
        steps = slice(begin, begin + _LISTED_CHUNK)
        operands = state.inp[src[steps]].astype(np.float32)
        weights = state.wgt[wgt[steps]].astype(np.float32)
        products = operands @ weights.swapaxes(1, 2)
        np.add.at(sums, run_of_step[steps], products.astype(np.int64))
    results = sums.astype(np.int32)
    if instruction.accumulate:
        np.add.at(state.acc, dst, results)
    else:
        state.acc[dst] = results  # of repeated destinations the last one stays


def _indices(
    instruction: Gemm, plan: BoxSteps | ListedSteps, state: MachineState
) -> tuple[Indices, Indices, Indices]:
    """Entries of `acc`, `inp` and `wgt` that the steps of a plan use."""
    reads = "gemm reads"
    return (
        shifted(state, Memory.ACC, plan.dst, plan.dst_top, instruction.dst, what="gemm writes"),
        shifted(state, Memory.INP, plan.src, plan.src_top, instruction.src, what=reads),
        shifted(state, Memory.WGT, plan.second, plan.second_top, instruction.wgt, what=reads),
    )
