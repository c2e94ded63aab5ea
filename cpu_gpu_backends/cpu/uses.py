"""Which tensors a statement reads and writes."""

from typing_extensions import assert_never

from tilewright.compiler.tensor.expansion import expand
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
from tilewright.compiler.tensor.traversal import nodes


def used_tensors(statement: Statement) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the tensors that a statement reads and of those that it writes.

    What it allocates itself is not among them.
    """
    match statement:
        case For():
            return used_tensors(statement.body)
        case If():
            read, written = used_tensors(statement.body)
            return read | _read(statement.condition), written
        case Store():
            read = frozenset[str]().union(*map(_read, (*statement.indices, statement.value)))
            return read, frozenset({statement.tensor.name})
        case Allocate():
            read, written = used_tensors(statement.body)
            own = {statement.tensor.name}
            return read - own, written - own
        case Seq():
            parts = [used_tensors(part) for part in statement.statements]
            return (
                frozenset[str]().union(*(read for read, _ in parts)),
                frozenset[str]().union(*(written for _, written in parts)),
            )
        case IntrinsicCall():
            return used_tensors(expand(statement))
        case _:
            assert_never(statement)


def _read(expr: Expr) -> frozenset[str]:
    return frozenset(node.tensor.name for node in nodes(expr) if isinstance(node, Load))
