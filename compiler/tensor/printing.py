"""Readable text of expressions and loop nests."""

from collections.abc import Iterator

from typing_extensions import assert_never

from tilewright.compiler.tensor.expressions import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Tensor,
    Var,
)
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    LoopKind,
    LoopNest,
    Region,
    Seq,
    Statement,
    Store,
)

#: How tightly an operator binds, as in Python.
_PRECEDENCE = {
    Operator.OR: 1,
    Operator.AND: 2,
    Operator.LESS: 4,
    Operator.LESS_EQUAL: 4,
    Operator.EQUAL: 4,
    Operator.NOT_EQUAL: 4,
    Operator.SHIFT_LEFT: 5,
    Operator.SHIFT_RIGHT: 5,
    Operator.ADD: 6,
    Operator.SUBTRACT: 6,
    Operator.MULTIPLY: 7,
    Operator.DIVIDE: 7,
    Operator.FLOOR_DIVIDE: 7,
    Operator.MODULO: 7,
}
_ATOM = 9
INDENT = "    "


def format_expression(expr: Expr) -> str:
    """Return `expr` as one writes it in Python."""
    return _format(expr)[0]


def _format(expr: Expr) -> tuple[str, int]:
    match expr:
        case Const():
            negative = not isinstance(expr.value, bool) and expr.value < 0
            exact = not expr.dtype.is_float or expr.dtype is ScalarType.BFLOAT16
            text = str(expr.value if exact else expr.dtype.numpy.type(expr.value))
            return text.lower(), 8 if negative else _ATOM
        case Var():
            return expr.name, _ATOM
        case Binary(Operator.MINIMUM | Operator.MAXIMUM):
            return f"{expr.operator.value}({_list(expr.left, expr.right)})", _ATOM
        case Binary():
            level = _PRECEDENCE[expr.operator]
            left, right = _inside(expr.left, level), _inside(expr.right, level + 1)
            return f"{left} {expr.operator.value} {right}", level
        case Select():
            return f"select({_list(expr.condition, expr.then, expr.otherwise)})", _ATOM
        case Cast():
            return f"{expr.dtype}({_list(expr.operand)})", _ATOM
        case Call():
            return f"{expr.function.value}({_list(*expr.arguments)})", _ATOM
        case Load():
            return f"{expr.tensor.name}[{_list(*expr.indices)}]", _ATOM
        case Reduce():
            axes = ", ".join(f"{axis.name} in 0..{axis.extent}" for axis in expr.axes)
            over = f" for {axes}" if axes else ""
            return f"{expr.reduction.value}({_list(expr.body)}{over})", _ATOM
        case _:
            assert_never(expr)


def _inside(expr: Expr, level: int) -> str:
    text, own = _format(expr)
    return text if own >= level else f"({text})"


def _list(*exprs: Expr) -> str:
    return ", ".join(format_expression(expr) for expr in exprs)


def format_tensor(tensor: Tensor) -> str:
    """Return the declaration of `tensor`, with the expression that defines it."""
    if tensor.definition is None:
        return str(tensor)
    axes = ", ".join(axis.name for axis in tensor.definition.axes)
    return f"{tensor}\n{INDENT}{tensor.name}[{axes}] = {format_expression(tensor.definition.body)}"


def format_nest(nest: LoopNest) -> str:
    """Return a loop nest: its tensors, then its statements, ``0..n`` excluding n."""
    lines = [f"input  {tensor}" for tensor in nest.inputs]
    lines += [f"output {tensor}" for tensor in nest.outputs]
    lines += [f"ahead  {name}: {elements} elements" for name, elements in nest.ahead]
    return "\n".join([*lines, *_lines(nest.body, "")])


def _lines(statement: Statement, indent: str) -> Iterator[str]:
    match statement:
        case For():
            kind = "" if statement.kind is LoopKind.SERIAL else f"{statement.kind.value} "
            yield f"{indent}{kind}for {statement.var.name} in 0..{statement.extent}:"
            yield from _lines(statement.body, indent + INDENT)
        case If():
            yield f"{indent}if {format_expression(statement.condition)}:"
            yield from _lines(statement.body, indent + INDENT)
        case Store():
            target = f"{statement.tensor.name}[{_list(*statement.indices)}]"
            yield f"{indent}{target} = {format_expression(statement.value)}"
        case Allocate():
            double = ", two buffers" if statement.double_buffer else ""
            yield f"{indent}allocate {statement.tensor}{double}"
            yield from _lines(statement.body, indent)
        case Seq():
            for part in statement.statements:
                yield from _lines(part, indent)
        case IntrinsicCall():
            yield indent + _call_text(statement)
        case _:
            assert_never(statement)


def _call_text(call: IntrinsicCall) -> str:
    operands = [_region_text(region) for region in call.inputs]
    operands += [
        f"{var.name}={format_expression(value)}"
        for var, value in zip(call.intrinsic.parameters, call.parameters, strict=True)
    ]
    if call.first is not None:
        operands.append(f"first={format_expression(call.first)}")
    sizes = " x ".join(_inside(extent, 8) for extent in call.extents)
    return f"{_region_text(call.output)} = {call.intrinsic.name} {sizes} ({', '.join(operands)})"


def _region_text(region: Region) -> str:
    indices = [
        f"{format_expression(offset)}{' + :' if axis in region.axes else ''}"
        for axis, offset in enumerate(region.offsets)
    ]
    return f"{region.tensor.name}[{', '.join(indices)}]".replace("0 + :", ":")
