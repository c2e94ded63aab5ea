"""Intrinsic calls written out as the loops that their pattern stands for."""

from tilewright.compiler.tensor.expressions import Binary, Const, Expr, Load, Var
from tilewright.compiler.tensor.intervals import bounds
from tilewright.compiler.tensor.statements import (
    For,
    If,
    IntrinsicCall,
    Region,
    Statement,
    Store,
    sequence,
)
from tilewright.compiler.tensor.traversal import substitute, transform


def expand(call: IntrinsicCall) -> Statement:
    """Return loops that do what `call` does."""
    intrinsic = call.intrinsic
    definition = intrinsic.pattern.definition
    assert definition is not None, "checked when the intrinsic was declared"
    renamed: dict[str, Expr] = {
        axis.name: Var(f"{intrinsic.name}.{axis.name}") for axis in intrinsic.axes
    }
    output = _element(call.output, tuple(renamed[axis.name] for axis in intrinsic.data_axes))
    body = definition.body if intrinsic.reduce is None else intrinsic.reduce.body
    value = _operands(call, substitute(body, renamed))
    for parameter, given in zip(intrinsic.parameters, call.parameters, strict=True):
        value = substitute(value, {parameter.name: given})
    if intrinsic.reduce is None:
        return _looped(call, Store(tensor=output.tensor, indices=output.indices, value=value))
    reduction = intrinsic.reduce.reduction
    identity = Const(reduction.identity(output.dtype), output.dtype)
    reset = Store(tensor=output.tensor, indices=output.indices, value=identity)
    total = Binary(reduction.operator, output, value)
    update = Store(tensor=output.tensor, indices=output.indices, value=total)
    assert call.first is not None, "a reduction says when it starts"
    return sequence(
        If(condition=call.first, body=_looped(call, reset, data_only=True)), _looped(call, update)
    )


def _operands(call: IntrinsicCall, value: Expr) -> Expr:
    names = [operand.name for operand in call.intrinsic.operands]
    regions = dict(zip(names, call.inputs, strict=True))

    def step(node: Expr) -> Expr:
        if isinstance(node, Load) and node.tensor.name in regions:
            return _element(regions[node.tensor.name], node.indices)
        return node

    return transform(value, step)


def _element(region: Region, indices: tuple[Expr, ...]) -> Load:
    places = list(region.offsets)
    for axis, index in zip(region.axes, indices, strict=True):
        places[axis] = places[axis] + index
    return Load(region.tensor, tuple(places))


def _looped(call: IntrinsicCall, body: Statement, *, data_only: bool = False) -> Statement:
    axes = call.intrinsic.data_axes if data_only else call.intrinsic.axes
    for axis, extent in reversed(list(zip(axes, call.extents, strict=False))):
        var = Var(f"{call.intrinsic.name}.{axis.name}")
        if not isinstance(extent, Const):
            body = If(condition=var < extent, body=body)
        body = For(var=var, extent=min(axis.extent, bounds(extent, {}).high), body=body)
    return body
