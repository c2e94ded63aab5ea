"""Which statements and tensors depend on the value of a loop variable."""

from collections.abc import Iterator

from typing_extensions import assert_never

from tilewright.compiler.tensor.expressions import Expr, Load
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    Seq,
    Statement,
    Store,
)
from tilewright.compiler.tensor.traversal import nodes, variables


def varying_tensors(statement: Statement, var: str) -> frozenset[str]:
    """Return the tensors set in `statement` to what depends on the variable `var`."""
    varying: frozenset[str] = frozenset()
    while True:
        found = varying | {
            write.output.tensor.name if isinstance(write, IntrinsicCall) else write.tensor.name
            for write, guards in _writes(statement, ())
            if any(_varies(expr, var, varying) for expr in (*guards, *_operands(write)))
            or _reads_any(write, varying)
        }
        if found == varying:
            return varying
        varying = found


def depends_on(statement: Statement, var: str, varying: frozenset[str]) -> bool:
    """Whether `statement` uses the variable `var` or a tensor of `varying`."""
    for write, guards in _writes(statement, ()):
        if any(_varies(expr, var, varying) for expr in (*guards, *_operands(write))):
            return True
        target = write.output.tensor if isinstance(write, IntrinsicCall) else write.tensor
        if target.name in varying or _reads_any(write, varying):
            return True
    return False


def _writes(
    statement: Statement, guards: tuple[Expr, ...]
) -> Iterator[tuple[Store | IntrinsicCall, tuple[Expr, ...]]]:
    match statement:
        case For() | Allocate():
            yield from _writes(statement.body, guards)
        case If():
            yield from _writes(statement.body, (*guards, statement.condition))
        case Seq():
            for part in statement.statements:
                yield from _writes(part, guards)
        case Store() | IntrinsicCall():
            yield statement, guards
        case _:
            assert_never(statement)


def _operands(write: Store | IntrinsicCall) -> tuple[Expr, ...]:
    match write:
        case Store():
            return (*write.indices, write.value)
        case IntrinsicCall():
            regions = (write.output, *write.inputs)
            offsets = (offset for region in regions for offset in region.offsets)
            first = () if write.first is None else (write.first,)
            return (*offsets, *write.extents, *write.parameters, *first)
        case _:
            assert_never(write)


def _varies(expr: Expr, var: str, varying: frozenset[str]) -> bool:
    if var in variables(expr):
        return True
    return any(isinstance(node, Load) and node.tensor.name in varying for node in nodes(expr))


def _reads_any(write: Store | IntrinsicCall, varying: frozenset[str]) -> bool:
    if isinstance(write, Store):
        return False
    return any(region.tensor.name in varying for region in write.inputs)
