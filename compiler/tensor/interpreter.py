"""Execution of loop nests, element by element: the definition of what they mean."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

from tilewright.compiler.tensor import bfloat16, semantics
from tilewright.compiler.tensor.distribute import synchronise_threads
from tilewright.compiler.tensor.expansion import expand
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
from tilewright.compiler.tensor.operations import Number, Operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    LoopNest,
    Seq,
    Statement,
    Store,
)
from tilewright.isa.errors import CompileError, InputError

Array: TypeAlias = npt.NDArray[Any]
Environment: TypeAlias = dict[str, Any]
Evaluate: TypeAlias = Callable[[Environment], Any]
Execute: TypeAlias = Callable[[Environment], None]


class ExecutionError(CompileError):
    """A loop nest goes beyond a tensor's bounds or reads what nobody has set."""


class _Memory:
    """The elements of one tensor, each either a number or unset."""

    __slots__ = ("tensor", "values")

    def __init__(self, tensor: Tensor, values: list[Number | None] | None = None) -> None:
        self.tensor = tensor
        self.values = [None] * prod(tensor.shape) if values is None else values

    def position(self, indices: list[int]) -> int:
        position = 0
        for index, extent in zip(indices, self.tensor.shape, strict=True):
            if not 0 <= index < extent:
                raise ExecutionError(f"element {indices} is outside of {self.tensor}")
            position = position * extent + index
        return position

    def read(self, indices: list[int]) -> Number:
        value = self.values[self.position(indices)]
        if value is None:
            raise ExecutionError(f"element {indices} of {self.tensor} is read before it is set")
        return value


def interpret(
    nest: LoopNest, inputs: Mapping[str, Array], scalars: Mapping[str, Number] | None = None
) -> dict[str, Array]:
    """Run a loop nest, whose parameters are `scalars`, and return the outputs by name.

    An intrinsic does what its pattern says. Loops whose iterations should not depend on each other
    run from the last one to the first, so that a result which needs an order comes out wrong.

    Raises
    ------
    InputError
        If an input is missing or has another shape or element type.
    ExecutionError
        If the nest reads or writes out of bounds, reads an element before it is set, or leaves an
        element of an output unset.
    """
    environment: Environment = dict(scalars or {})
    for tensor in nest.inputs:
        environment[f"@{tensor.name}"] = _Memory(tensor, _input_values(tensor, inputs))
    for tensor in nest.outputs:
        environment[f"@{tensor.name}"] = _Memory(tensor)
    _statement(synchronise_threads(nest).body)(environment)
    return {tensor.name: _output_values(environment[f"@{tensor.name}"]) for tensor in nest.outputs}


def _input_values(tensor: Tensor, inputs: Mapping[str, Array]) -> list[Number | None]:
    if tensor.name not in inputs:
        raise InputError(f"input {tensor.name!r} is missing")
    array = np.asarray(inputs[tensor.name])
    if array.shape != tensor.shape or array.dtype != tensor.dtype.numpy:
        raise InputError(f"input {tensor} is given as {array.dtype}{list(array.shape)}")
    if tensor.dtype is ScalarType.BFLOAT16:
        array = bfloat16.from_bits(array)
    values: list[Number | None] = array.ravel().tolist()
    return values


def _output_values(memory: _Memory) -> Array:
    if None in memory.values:
        raise ExecutionError(f"output {memory.tensor} is not set everywhere")
    if memory.tensor.dtype is ScalarType.BFLOAT16:
        flat = bfloat16.to_bits(np.array(memory.values, np.float32))
    else:
        flat = np.array(memory.values, dtype=memory.tensor.dtype.numpy)
    return flat.reshape(memory.tensor.shape)


def _statement(statement: Statement) -> Execute:
    match statement:
        case For():
            return _loop(statement)
        case If():
            return _if(statement)
        case Store():
            return _store(statement)
        case Allocate():
            return _allocate(statement)
        case Seq():
            return _sequence(statement)
        case IntrinsicCall():
            return _statement(expand(statement))
        case _:
            assert_never(statement)


def _if(guard: If) -> Execute:
    condition, body = _value(guard.condition), _statement(guard.body)

    def run(environment: Environment) -> None:
        if condition(environment):
            body(environment)

    return run


def _allocate(allocation: Allocate) -> Execute:
    name, tensor = f"@{allocation.tensor.name}", allocation.tensor
    body = _statement(allocation.body)

    def run(environment: Environment) -> None:
        environment[name] = _Memory(tensor)
        body(environment)

    return run


def _sequence(sequence: Seq) -> Execute:
    parts = [_statement(part) for part in sequence.statements]

    def run(environment: Environment) -> None:
        for part in parts:
            part(environment)

    return run


def _loop(loop: For) -> Execute:
    name, body = loop.var.name, _statement(loop.body)
    values = range(loop.extent) if loop.kind.is_ordered else range(loop.extent - 1, -1, -1)

    def run(environment: Environment) -> None:
        for value in values:
            environment[name] = value
            body(environment)

    return run


def _store(store: Store) -> Execute:
    name = f"@{store.tensor.name}"
    indices, value = [_value(index) for index in store.indices], _value(store.value)

    def run(environment: Environment) -> None:
        result = value(environment)
        memory = environment[name]
        memory.values[memory.position([index(environment) for index in indices])] = result

    return run


def _value(expr: Expr) -> Evaluate:
    match expr:
        case Const():
            constant = expr.value
            return lambda environment: constant
        case Var():
            name = expr.name
            return lambda environment: environment[name]
        case Binary():
            return _binary(expr)
        case Select():
            condition = _value(expr.condition)
            then, otherwise = _value(expr.then), _value(expr.otherwise)
            return lambda environment: (then if condition(environment) else otherwise)(environment)
        case Cast():
            operand, convert = _value(expr.operand), semantics.converter(expr.dtype)
            return lambda environment: convert(operand(environment))
        case Call():
            return _call(expr)
        case Load():
            source, indices = f"@{expr.tensor.name}", [_value(index) for index in expr.indices]
            return lambda environment: environment[source].read(
                [index(environment) for index in indices]
            )
        case Reduce():
            raise AssertionError("a loop nest holds no reductions")
        case _:
            assert_never(expr)


def _binary(expr: Binary) -> Evaluate:
    left, right = _value(expr.left), _value(expr.right)
    if expr.operator is Operator.AND:
        return lambda environment: left(environment) and right(environment)
    if expr.operator is Operator.OR:
        return lambda environment: left(environment) or right(environment)
    apply = semantics.operation(expr.operator, expr.dtype)
    return lambda environment: apply(left(environment), right(environment))


def _call(expr: Call) -> Evaluate:
    function, dtype = expr.function, expr.dtype
    arguments = [_value(argument) for argument in expr.arguments]
    return lambda environment: semantics.call(
        function, dtype, tuple(argument(environment) for argument in arguments)
    )
