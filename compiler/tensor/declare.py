"""Declaration of tensors: inputs, and what is computed from them by an expression."""

import inspect
from collections.abc import Callable
from typing import TypeAlias

from tilewright.compiler.tensor.expressions import (
    Axis,
    Definition,
    Expr,
    ExpressionError,
    Reduce,
    Tensor,
    Var,
)
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.traversal import children, loads, nodes, variables

Shape: TypeAlias = tuple[int, ...]


def placeholder(shape: Shape, dtype: ScalarType, name: str, *, scope: str = "global") -> Tensor:
    """Declare an input."""
    _check_shape(name, shape)
    return Tensor(name=name, shape=shape, dtype=dtype, scope=scope)


def reduce_axis(extent: int, name: str) -> Axis:
    """Declare an axis to reduce over."""
    return Axis(name=name, extent=extent)


def compute(
    shape: Shape,
    body: Callable[..., Expr],
    name: str,
    *,
    scope: str = "global",
    parameters: tuple[str, ...] = (),
) -> Tensor:
    """Declare a tensor by the value of its elements.

    Parameters
    ----------
    shape
        Extents of the axes.
    body
        A function of one index per axis. Its parameters name the axes; with ``*indices`` they are
        called ``i0 i1 ...``.
    name
        Name of the tensor, and of its stage in a schedule.
    scope
        The memory that holds it.
    parameters
        Names of index parameters that the pattern of an intrinsic leaves open.

    Raises
    ------
    ExpressionError
        If `body` takes another number of indices, uses a variable that is none of its axes, or
        reduces elsewhere than as a whole.
    """
    _check_shape(name, shape)
    names = zip(_axis_names(body, name, len(shape)), shape, strict=True)
    axes = tuple(Axis(name=axis, extent=extent) for axis, extent in names)
    value = body(*(axis.var for axis in axes))
    _check_body(name, axes, value, parameters)
    definition = Definition(axes=axes, body=value)
    return Tensor(name=name, shape=shape, dtype=value.dtype, scope=scope, definition=definition)


def inputs_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors that the definition of `tensor` reads, in the order of reading."""
    if tensor.definition is None:
        return ()
    return tuple(dict.fromkeys(load.tensor for load in loads(tensor.definition.body)))


def _check_shape(name: str, shape: Shape) -> None:
    if not all(extent >= 1 for extent in shape):
        raise ExpressionError(f"tensor {name!r} must have extents of 1 or more, not {list(shape)}")


def _axis_names(body: Callable[..., Expr], name: str, rank: int) -> tuple[str, ...]:
    parameters = [
        parameter
        for parameter in inspect.signature(body).parameters.values()
        if parameter.default is inspect.Parameter.empty
    ]
    if [parameter.kind for parameter in parameters] == [inspect.Parameter.VAR_POSITIONAL]:
        return tuple(f"i{axis}" for axis in range(rank))
    if len(parameters) != rank:
        raise ExpressionError(
            f"tensor {name!r} has {rank} axes, its body takes {len(parameters)} indices"
        )
    return tuple(parameter.name for parameter in parameters)


def _check_body(name: str, axes: tuple[Axis, ...], body: Expr, parameters: tuple[str, ...]) -> None:
    reduced = body.axes if isinstance(body, Reduce) else ()
    inner = (node for operand in children(body) for node in nodes(operand))
    if any(isinstance(node, Reduce) for node in inner):
        raise ExpressionError(
            f"the body of tensor {name!r} reduces inside an expression",
            hint="declare the reduction as a tensor of its own",
        )
    names = [axis.name for axis in (*axes, *reduced)]
    for axis in names:
        if names.count(axis) > 1:
            raise ExpressionError(f"tensor {name!r} has two axes called {axis!r}")
    unknown = sorted(variables(body).difference(names, parameters))
    index_only = [var for var in unknown if _is_index(body, var)]
    if index_only:
        raise ExpressionError(f"the body of tensor {name!r} uses {index_only[0]!r}, no axis of it")


def _is_index(body: Expr, var: str) -> bool:
    return any(node == Var(var, ScalarType.INDEX) for node in nodes(body))
