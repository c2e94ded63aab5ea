"""Expressions to instructions, for one value or for vector lanes."""

from collections.abc import Callable

import numpy as np
from llvmlite import ir
from typing_extensions import assert_never

from tilewright.compiler.tensor import semantics
from tilewright.compiler.tensor.bfloat16 import to_bits
from tilewright.compiler.tensor.expressions import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Var,
)
from tilewright.compiler.tensor.intervals import bounds
from tilewright.compiler.tensor.operations import LOGICAL, Operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.traversal import loads
from tilewright.cpu_gpu_backends.codegen.frame import Frame, Lanes
from tilewright.cpu_gpu_backends.codegen.functions import emit_function
from tilewright.cpu_gpu_backends.codegen.halves import from_half, to_half
from tilewright.cpu_gpu_backends.codegen.low_bytes import rounded_byte
from tilewright.cpu_gpu_backends.codegen.memory import Memory
from tilewright.cpu_gpu_backends.codegen.types import (
    INDEX,
    index,
    lanes_of,
    number,
    scalar_type,
    splat,
    with_lanes,
)

_TRUTH = ir.IntType(1)


class ExpressionEmitter:
    """Emits the value of expressions in a frame."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self.memory = Memory(frame, self)

    def value(self, expr: Expr) -> ir.Value:  # noqa: C901
        """Return the value of `expr`, a scalar where it is the same in all lanes: one case each."""
        match expr:
            case Const() if expr.dtype is ScalarType.BFLOAT16:
                return number(
                    int(to_bits(np.array([expr.value], np.float32))[0]), scalar_type(expr.dtype)
                )
            case Const():
                return number(expr.value, scalar_type(expr.dtype))
            case Var() | Binary() if expr.dtype is ScalarType.INDEX:
                found = self.index(expr)
                return index(found) if isinstance(found, int) else found
            case Var():
                raise AssertionError(f"variable {expr.name!r} is no index")
            case Binary() if expr.dtype is ScalarType.BOOL:
                known = self.condition(expr)
                return number(int(known), _TRUTH) if isinstance(known, bool) else known
            case Binary():
                left, right = self._alike((self.value(expr.left), self.value(expr.right)))
                return self._arithmetic(expr.operator, expr.dtype, left, right)
            case Select():
                return self._select(expr)
            case Cast():
                return self._cast(expr)
            case Call():
                operands = tuple(self.value(argument) for argument in expr.arguments)
                return emit_function(
                    self._frame.builder, expr.function, expr.dtype, self._alike(operands)
                )
            case Load():
                return self.memory.load(expr.tensor, expr.indices)
            case Reduce():
                raise AssertionError("a loop nest holds no reductions")
            case _:
                assert_never(expr)

    def index(self, expr: Expr) -> int | ir.Value:
        """Return an index: a number where it is known, else a scalar or one per lane."""
        match expr:
            case Const():
                return int(expr.value)
            case Var():
                binding = self._frame.variables[expr.name]
                if not isinstance(binding, Lanes):
                    return binding
                return self._steps(binding)
            case Binary():
                left, right = self.index(expr.left), self.index(expr.right)
                if isinstance(left, int) and isinstance(right, int):
                    folded = semantics.operation(expr.operator, ScalarType.INDEX)(left, right)
                    return int(folded)
                return self._index_operation(expr, left, right)
            case Select() if isinstance(known := self.condition(expr.condition), bool):
                return self.index(expr.then if known else expr.otherwise)
            case _:
                return self.value(expr)

    def _steps(self, lanes: Lanes) -> ir.Value:
        steps = range(lanes.start, lanes.start + lanes.count)
        values = ir.Constant(ir.VectorType(INDEX, lanes.count), list(steps))
        if lanes.base is None:
            return values
        b = self._frame.builder
        return b.add(splat(b, lanes.base, lanes.count), values)

    def condition(self, expr: Expr) -> bool | ir.Value:
        """Return a truth value: a Python one where it is known."""
        match expr:
            case Const():
                return bool(expr.value)
            case Binary() if expr.operator in LOGICAL:
                return self._logical(expr)
            case Binary():
                if expr.left.dtype is ScalarType.INDEX:
                    first, second = self.index(expr.left), self.index(expr.right)
                    if isinstance(first, int) and isinstance(second, int):
                        return bool(semantics.operation(expr.operator, expr.dtype)(first, second))
                left, right = self._alike((self.value(expr.left), self.value(expr.right)))
                return self._compare(expr, left, right)
        return self.value(expr)

    def _logical(self, expr: Binary) -> bool | ir.Value:
        absorbing = expr.operator is Operator.OR
        left = self.condition(expr.left)
        if isinstance(left, bool):
            return left if left is absorbing else self.condition(expr.right)
        if loads(expr.right) and not self._frame.lanes:
            return self._branch(
                left,
                (lambda: number(1, left.type)) if absorbing else lambda: self.value(expr.right),
                (lambda: self.value(expr.right)) if absorbing else lambda: number(0, left.type),
            )
        right = self.condition(expr.right)
        if isinstance(right, bool):
            return right if right is absorbing else left
        first, second = self._alike((left, right))
        b = self._frame.builder
        return b.or_(first, second) if absorbing else b.and_(first, second)

    def _compare(self, expr: Binary, left: ir.Value, right: ir.Value) -> ir.Value:
        b, written, dtype = self._frame.builder, expr.operator.value, expr.left.dtype
        if dtype.is_float:
            if expr.operator is Operator.NOT_EQUAL:
                return b.fcmp_unordered(written, left, right)
            return b.fcmp_ordered(written, left, right)
        if _is_unsigned(dtype):
            return b.icmp_unsigned(written, left, right)
        return b.icmp_signed(written, left, right)

    def _arithmetic(  # noqa: C901
        self, operator: Operator, dtype: ScalarType, left: ir.Value, right: ir.Value
    ) -> ir.Value:
        """Emit one operator: one case each."""
        b, real = self._frame.builder, dtype.is_float
        match operator:
            case Operator.ADD:
                return b.fadd(left, right) if real else b.add(left, right)
            case Operator.SUBTRACT:
                return b.fsub(left, right) if real else b.sub(left, right)
            case Operator.MULTIPLY:
                return b.fmul(left, right) if real else b.mul(left, right)
            case Operator.DIVIDE:
                return b.fdiv(left, right)
            case Operator.FLOOR_DIVIDE | Operator.MODULO:
                return self._floor_division(operator, _is_unsigned(dtype), left, right)
            case Operator.MINIMUM | Operator.MAXIMUM:
                first, second = (left, right) if operator is Operator.MAXIMUM else (right, left)
                return b.select(self._less(dtype, first, second), right, left)
            case Operator.SHIFT_LEFT:
                return b.shl(left, right)
            case Operator.SHIFT_RIGHT:
                return b.lshr(left, right) if _is_unsigned(dtype) else b.ashr(left, right)
            case Operator.LESS | Operator.LESS_EQUAL | Operator.EQUAL | Operator.NOT_EQUAL:
                raise AssertionError("comparisons are emitted elsewhere")
            case Operator.AND:
                return b.and_(left, right)
            case Operator.OR:
                return b.or_(left, right)
            case _:
                assert_never(operator)

    def _less(self, dtype: ScalarType, left: ir.Value, right: ir.Value) -> ir.Value:
        b = self._frame.builder
        if dtype.is_float:
            return b.fcmp_ordered("<", left, right)
        compare = b.icmp_unsigned if _is_unsigned(dtype) else b.icmp_signed
        return compare("<", left, right)

    def _floor_division(
        self, operator: Operator, unsigned: bool, left: ir.Value, right: ir.Value
    ) -> ir.Value:
        b, divides = self._frame.builder, operator is Operator.FLOOR_DIVIDE
        if unsigned:
            return b.udiv(left, right) if divides else b.urem(left, right)
        quotient, rest = b.sdiv(left, right), b.srem(left, right)
        lanes, element = lanes_of(left), left.type
        zero = number(0, element.element if lanes else element, lanes)
        inexact = b.icmp_signed("!=", rest, zero)
        opposite = b.icmp_signed("<", b.xor(rest, right), zero)
        below = b.and_(inexact, opposite)
        if divides:
            return b.add(quotient, b.sext(below, quotient.type))
        return b.select(below, b.add(rest, right), rest)

    def _index_operation(
        self, expr: Binary, left: int | ir.Value, right: int | ir.Value
    ) -> ir.Value:
        b = self._frame.builder
        first, second = self._alike(
            (
                index(left) if isinstance(left, int) else left,
                index(right) if isinstance(right, int) else right,
            )
        )
        key = (expr.operator, id(first), id(second) if not isinstance(right, int) else right)
        if key in self._frame.values and not isinstance(left, int):
            return self._frame.values[key]
        plain = (
            expr.operator in (Operator.FLOOR_DIVIDE, Operator.MODULO)
            and bounds(expr.left, self._frame.ranges).low >= 0
            and bounds(expr.right, self._frame.ranges).low > 0
        )
        if plain:
            divides = expr.operator is Operator.FLOOR_DIVIDE
            result = b.udiv(first, second) if divides else b.urem(first, second)
        else:
            result = self._arithmetic(expr.operator, ScalarType.INDEX, first, second)
        if not isinstance(left, int):
            self._frame.values[key] = result
        return result

    def _select(self, expr: Select) -> ir.Value:
        known = self.condition(expr.condition)
        if isinstance(known, bool):
            return self.value(expr.then if known else expr.otherwise)
        if not lanes_of(known) and (loads(expr.then) or loads(expr.otherwise)):
            return self._branch(
                known, lambda: self.value(expr.then), lambda: self.value(expr.otherwise)
            )
        then, otherwise = self._alike((self.value(expr.then), self.value(expr.otherwise)))
        lanes = lanes_of(known)
        if lanes and not lanes_of(then):
            then, otherwise = (splat(self._frame.builder, v, lanes) for v in (then, otherwise))
        return self._frame.builder.select(known, then, otherwise)

    def _branch(
        self,
        condition: ir.Value,
        then: Callable[[], ir.Value],
        otherwise: Callable[[], ir.Value],
    ) -> ir.Value:
        """Emit one of two values, the other one not being evaluated."""
        frame, b = self._frame, self._frame.builder
        blocks = [frame.block("then"), frame.block("otherwise")]
        merge = frame.block("merge")
        b.cbranch(condition, *blocks)
        arrivals: list[tuple[ir.Value, ir.Block]] = []
        for block, emit in zip(blocks, (then, otherwise), strict=True):
            frame.enter(block)
            value = splat(b, emit(), frame.lanes)
            arrivals.append((value, b.block))
            b.branch(merge)
        frame.enter(merge)
        result = b.phi(arrivals[0][0].type)
        for value, block in arrivals:
            result.add_incoming(value, block)
        return result

    def _cast(self, expr: Cast) -> ir.Value:
        source, target = expr.operand.dtype, expr.dtype
        if (rounded := rounded_byte(expr)) is not None:
            return self._low_byte(*rounded)
        if ScalarType.BFLOAT16 in (source, target):
            return self._half_cast(expr)
        value = self.value(expr.operand)
        kind = with_lanes(scalar_type(target), lanes_of(value))
        b = self._frame.builder
        if target is ScalarType.BOOL:
            zero = number(0, scalar_type(source), lanes_of(value))
            compare = b.fcmp_unordered if source.is_float else b.icmp_signed
            return compare("!=", value, zero)
        if source.is_float:
            if target.is_float:
                widens = target is ScalarType.FLOAT64
                return b.fpext(value, kind) if widens else b.fptrunc(value, kind)
            return b.fptosi(value, kind)
        if target.is_float:
            return b.uitofp(value, kind) if _is_unsigned(source) else b.sitofp(value, kind)
        if value.type == kind:
            return value
        if _bits(target) < _bits(source):
            return b.trunc(value, kind)
        return b.zext(value, kind) if _is_unsigned(source) else b.sext(value, kind)

    def _half_cast(self, expr: Cast) -> ir.Value:
        kinds = {expr.operand.dtype, expr.dtype}
        assert kinds == {ScalarType.BFLOAT16, ScalarType.FLOAT32}, "halves are stored, not computed"
        value = self.value(expr.operand)
        if expr.dtype is ScalarType.FLOAT32:
            return from_half(self._frame.builder, value)
        return to_half(self._frame.builder, self._frame.target, value)

    def _low_byte(self, number_in_place: Expr, offset: int) -> ir.Value:
        """Return ``number_in_place - offset`` modulo 256 of a whole float32 from 2**23 on."""
        b = self._frame.builder
        value = self.value(number_in_place)
        lanes, word = lanes_of(value), ir.IntType(32)
        bits = b.bitcast(value, with_lanes(word, lanes))
        if offset % 256:
            bits = b.sub(bits, number(offset, word, lanes))
        return b.trunc(bits, with_lanes(ir.IntType(8), lanes))

    def _alike(self, values: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
        """Return all values as vectors if one of them is."""
        lanes = max(map(lanes_of, values))
        return tuple(splat(self._frame.builder, value, lanes) for value in values)


def _is_unsigned(dtype: ScalarType) -> bool:
    return dtype in (ScalarType.UINT8, ScalarType.BOOL)


def _bits(dtype: ScalarType) -> int:
    return int(scalar_type(dtype).width)
