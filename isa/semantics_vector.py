"""What `Vector` does to the state of a machine."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

from tilewright.isa.instructions import (
    VECTOR_OPERAND_BITS,
    Vector,
    VectorOperation,
    VectorTarget,
)
from tilewright.isa.integers import MULTIPLIER_BITS, SHIFT_BITS, requantize
from tilewright.isa.memories import LUT_LENGTH, Memory
from tilewright.isa.semantics_state import Indices, MachineState, require_range, shifted
from tilewright.isa.semantics_steps import BoxSteps, ListedSteps, arrange

_Int32: TypeAlias = npt.NDArray[np.int32]

#: Largest |r + bias| whose product with a multiplier is exact in float64 (53 bits).
_EXACT_TOTAL = 1 << 53 - MULTIPLIER_BITS


def execute_vector(instruction: Vector, state: MachineState) -> None:
    """Combine, requantise, clip, look up and write as `Vector` states.

    All operands are read before any result is written: a legal program has no instruction that
    reads what an earlier step of the same instruction writes.
    """
    first, count = instruction.uop_begin, instruction.uop_count
    require_range("vector reads", Memory.VUOP, first, first + count - 1, len(state.vuop))
    plan = arrange(
        instruction.loops,
        state.vuop[first : first + count].tobytes(),
        state.vector_uop_fields,
        state.prm_index_bits,
        any_order=False,
    )
    match plan:
        case BoxSteps():
            runs = _combine_box(instruction, plan, state)
        case ListedSteps():
            runs = _combine_listed(instruction, plan, state)
        case _:
            assert_never(plan)
    _write(instruction, plan, runs, state)


class _Operands:
    """The operands of the steps of an instruction, in the arrangement of its plan."""

    def __init__(
        self, instruction: Vector, plan: BoxSteps | ListedSteps, state: MachineState
    ) -> None:
        src = plan.src + instruction.src
        if plan.src_top + instruction.src >> state.operand_bits:
            src &= (1 << state.operand_bits) - 1
        base = state.acc_operand_base
        low, high = int(src.min()), int(src.max())
        if high >= base:
            require_range("vector reads", Memory.ACC, 0, high - base, len(state.acc))
        else:
            require_range("vector reads", Memory.VEC, low, high, len(state.vec))
        self._is_factor = instruction.operation is VectorOperation.MAC
        self._values: npt.NDArray[np.signedinteger[Any]] = state.vec
        self._index = src
        if low >= base:
            self._values, self._index = state.acc, src - base
        elif high >= base:
            self._values, self._index = _gathered(state, src)

    def at(self, where: Any) -> _Int32:
        """Operands of some steps, int32 (..., batch, lanes), as the operation sees them."""
        values: _Int32 = self._values[self._index[where]].astype(np.int32, copy=False)
        if self._is_factor and self._values.dtype == np.int32:
            values <<= 32 - VECTOR_OPERAND_BITS
            values >>= 32 - VECTOR_OPERAND_BITS
        return values


def _gathered(state: MachineState, src: Indices) -> tuple[_Int32, Indices]:
    """Gather operands from both `vec` and `acc`: values, and their indices in the order of `src`.

    An operand of `vec` has eight bits, so it does not matter that it looks like one of `acc`.
    """
    flat = src.ravel()
    in_acc = flat >= state.acc_operand_base
    in_vec = flat[~in_acc]
    require_range("vector reads", Memory.VEC, 0, int(in_vec.max()), len(state.vec))
    values = np.empty((flat.size, *state.acc.shape[1:]), np.int32)
    values[~in_acc] = state.vec[in_vec]
    values[in_acc] = state.acc[flat[in_acc] - state.acc_operand_base]
    return values, np.arange(flat.size).reshape(src.shape)


def _combine_box(instruction: Vector, plan: BoxSteps, state: MachineState) -> _Int32:
    """Results of all runs, int32 (common or 1, other, batch, lanes)."""
    operands = _Operands(instruction, plan, state)
    within = range(1, plan.src.shape[2])
    if instruction.operation is VectorOperation.MAC:
        coef = _coefficients(instruction, plan, state)[:, :, None, None, :]
        total = operands.at(np.s_[:, :, 0]) * coef[:, 0]
        for step in within:
            total += operands.at(np.s_[:, :, step]) * coef[:, step]
    else:
        combine = _ufunc(instruction.operation)
        total = operands.at(np.s_[:, :, 0])
        for step in within:
            combine(total, operands.at(np.s_[:, :, step]), out=total)
    return total


def _combine_listed(instruction: Vector, plan: ListedSteps, state: MachineState) -> _Int32:
    """Results of all runs, int32 (runs, batch, lanes)."""
    values = _Operands(instruction, plan, state).at(np.s_[:])
    if instruction.operation is VectorOperation.MAC:
        values *= _coefficients(instruction, plan, state)[:, None, :]
    combined: _Int32 = _ufunc(instruction.operation).reduceat(
        values, plan.run_begins, axis=0, dtype=np.int32
    )
    return combined


def _ufunc(operation: VectorOperation) -> np.ufunc:
    match operation:
        case VectorOperation.MAC | VectorOperation.SUM:
            return np.add
        case VectorOperation.MAX:
            return np.maximum
        case VectorOperation.MIN:
            return np.minimum
        case _:
            assert_never(operation)


def _coefficients(instruction: Vector, plan: BoxSteps | ListedSteps, state: MachineState) -> _Int32:
    table, top = plan.second, plan.second_top
    index = shifted(state, Memory.COEF, table, top, instruction.coef, what="vector reads")
    return state.coef[index].astype(np.int32)


def _write(
    instruction: Vector, plan: BoxSteps | ListedSteps, runs: _Int32, state: MachineState
) -> None:
    """Turn the results of runs into what is written, and write it."""
    to_out = instruction.target is VectorTarget.OUT
    memory = Memory.OUT if to_out else Memory.ACC
    bits = state.result_index_bits
    dst = shifted(
        state, memory, plan.dst, plan.dst_top, instruction.dst, what="vector writes", bits=bits
    )
    values: npt.NDArray[np.signedinteger[Any]] = runs
    if instruction.requantise:
        values = _requantised(instruction, plan, runs, state)
    elif to_out:
        values = _clipped(instruction, runs)
    if instruction.lookup:
        require_range("vector reads", Memory.LUT, 0, instruction.lut, len(state.lut))
        values = state.lut[instruction.lut][values.astype(np.uint8) ^ np.uint8(LUT_LENGTH // 2)]
    if isinstance(plan, ListedSteps):
        dst = dst[plan.run_begins]
    target = state.out if to_out else state.acc
    target[dst] = values  # of repeated destinations the last one stays


def _clipped(instruction: Vector, values: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    clipped: npt.NDArray[np.int8] = np.minimum(
        np.maximum(values, instruction.low), instruction.high
    ).astype(np.int8)
    return clipped


def _requantised(
    instruction: Vector, plan: BoxSteps | ListedSteps, runs: _Int32, state: MachineState
) -> npt.NDArray[np.int8]:
    table, top = plan.prm, plan.prm_top
    index = shifted(state, Memory.PRM, table, top, instruction.prm, what="vector reads")
    if isinstance(plan, ListedSteps):
        words = state.prm[index[plan.run_ends]][:, None]
    else:
        words = state.prm[index][:, None, None]
    bias = words[..., 0].view(np.int32)
    multiplier = words[..., 1] & np.uint32((1 << MULTIPLIER_BITS) - 1)
    shift = (words[..., 1] >> np.uint32(MULTIPLIER_BITS)) & np.uint32((1 << SHIFT_BITS) - 1)
    total = runs + bias.astype(np.float64)
    if max(total.max(), -total.min()) < _EXACT_TOTAL:
        # float64 holds the product, power of two included, and rint rounds half to even
        total *= np.ldexp(multiplier.astype(np.float64), -shift.astype(np.int32))
        np.rint(total, out=total)
        total += instruction.zero_point
        return _clipped(instruction, total)
    return requantize(
        runs,
        bias,
        multiplier.astype(np.int64),
        shift.astype(np.int64),
        zero_point=instruction.zero_point,
        low=instruction.low,
        high=instruction.high,
    )
