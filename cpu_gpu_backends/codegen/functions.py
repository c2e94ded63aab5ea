"""The functions of tensor expressions as instructions."""

from llvmlite import ir
from typing_extensions import assert_never

from tilewright.compiler.tensor.operations import Function
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.codegen.approximations import Approximations, call_like
from tilewright.cpu_gpu_backends.codegen.types import lanes_of, number, scalar_type


def emit_function(
    builder: ir.IRBuilder, function: Function, dtype: ScalarType, operands: tuple[ir.Value, ...]
) -> ir.Value:
    """Return `function` of operands of type `dtype`, all scalars or all vectors."""
    value = operands[0]
    match function:
        case Function.NOT:
            return builder.not_(value)
        case Function.ABSOLUTE:
            return _absolute(builder, dtype, value)
        case Function.ROUND_SHIFT:
            return _round_shift(builder, dtype, value, operands[1])
        case Function.FUSED_MULTIPLY_ADD:
            return call_like(builder, "fma", *operands)
        case Function.FLOOR:
            return call_like(builder, "floor", value)
        case Function.ROUND_HALF_EVEN:
            return call_like(builder, "roundeven", value)
        case Function.SQRT:
            return call_like(builder, "sqrt", value)
        case Function.POWER:
            return _library(builder, "powf" if dtype is ScalarType.FLOAT32 else "pow", operands)
        case Function.EXP | Function.LOG | Function.TANH | Function.ERF:
            return _transcendental(builder, function, dtype, value)
        case _:
            assert_never(function)


def _absolute(builder: ir.IRBuilder, dtype: ScalarType, value: ir.Value) -> ir.Value:
    if dtype.is_float:
        return call_like(builder, "fabs", value)
    zero = number(0, scalar_type(dtype), lanes_of(value))
    if dtype is ScalarType.UINT8:
        return value
    negative = builder.icmp_signed("<", value, zero)
    return builder.select(negative, builder.sub(zero, value), value)


def _round_shift(
    builder: ir.IRBuilder, dtype: ScalarType, value: ir.Value, shift: ir.Value
) -> ir.Value:
    """Emit the quotient rounded down, and one more where the rest exceeds half a step."""
    lanes, wide = lanes_of(value), ir.IntType(64)
    kind = ir.VectorType(wide, lanes) if lanes else wide
    one = number(1, wide, lanes)
    if value.type != kind:  # shifts may exceed the width
        value_type = value.type
        extend = builder.zext if dtype is ScalarType.UINT8 else builder.sext
        wider = _round_shift(
            builder, ScalarType.INT64, extend(value, kind), builder.zext(shift, kind)
        )
        return builder.trunc(wider, value_type)
    quotient = builder.ashr(value, shift)
    rest = builder.sub(value, builder.shl(quotient, shift))
    positive = builder.icmp_signed(">", shift, number(0, wide, lanes))
    # Without a shift the rest is 0, below any half.
    half = builder.shl(one, builder.select(positive, builder.sub(shift, one), shift))
    above = builder.icmp_unsigned(">", rest, half)
    tie = builder.icmp_unsigned("==", rest, half)
    odd = builder.trunc(builder.and_(quotient, one), above.type)
    up = builder.or_(above, builder.and_(tie, odd))
    return builder.add(quotient, builder.zext(up, kind))


def _transcendental(
    builder: ir.IRBuilder, function: Function, dtype: ScalarType, value: ir.Value
) -> ir.Value:
    if dtype is ScalarType.FLOAT64:
        return _library(builder, function.value, (value,))
    emitter = Approximations.for_value(builder, value)
    if function is Function.EXP:
        return emitter.exp(value)
    if function is Function.LOG:
        return emitter.log(value)
    return emitter.tanh(value) if function is Function.TANH else emitter.erf(value)


def _library(builder: ir.IRBuilder, name: str, operands: tuple[ir.Value, ...]) -> ir.Value:
    """Call a function of C's mathematics library, lane by lane."""
    lanes = lanes_of(operands[0])
    element = operands[0].type.element if lanes else operands[0].type
    if name not in builder.module.globals:
        ir.Function(builder.module, ir.FunctionType(element, (element,) * len(operands)), name=name)
    function = builder.module.globals[name]
    if not lanes:
        return builder.call(function, operands)
    result: ir.Value = ir.Constant(operands[0].type, ir.Undefined)
    for lane in range(lanes):
        at = ir.Constant(ir.IntType(32), lane)
        parts = tuple(builder.extract_element(operand, at) for operand in operands)
        result = builder.insert_element(result, builder.call(function, parts), at)
    return result
