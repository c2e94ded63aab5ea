"""Barriers between what some threads write to shared memory and what others read.

A statement that fills a tensor writes each element by the same thread throughout, so barriers are
needed only between filling it and reading it elsewhere. They are placed as far outside as loops
allow; guards that a barrier would stand within move inwards, so that all threads reach it.
"""

from dataclasses import dataclass, replace

from typing_extensions import assert_never

from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.traversal import loads
from tilewright.cpu_gpu_backends.gpu.kernels import (
    Arrive,
    Assign,
    Barrier,
    Declare,
    Fetch,
    Guard,
    KernelStatement,
    Leaf,
    Loop,
    Sequence,
    Together,
    guards_of,
    in_sequence,
    leaves,
    read,
    walk,
    written,
)

_BARRIER = Barrier()


@dataclass(frozen=True, slots=True)
class _Uses:
    """Shared tensors that are filled, and that are read elsewhere than where they are filled."""

    filled: frozenset[Tensor] = frozenset()
    read: frozenset[Tensor] = frozenset()

    def __or__(self, other: "_Uses") -> "_Uses":
        return _Uses(self.filled | other.filled, self.read | other.read)

    def before(self, later: "_Uses") -> bool:
        """Whether `later` has to wait until all threads have done this."""
        return bool(self.filled & later.read or self.read & later.filled)


_NOTHING = _Uses()


def insert_barriers(body: KernelStatement, shared: tuple[Tensor, ...]) -> KernelStatement:
    """Return `body` with the barriers that its use of `shared` needs."""
    if not shared:
        return body
    return _Inserter(frozenset(shared)).visit(body, _NOTHING)[0]


@dataclass(frozen=True, slots=True)
class _Inserter:
    shared: frozenset[Tensor]

    def visit(self, statement: KernelStatement, since: _Uses) -> tuple[KernelStatement, _Uses]:
        """Return `statement` with barriers, and what has been used since the last one.

        `since` is what has been used since the last barrier before `statement`.
        """
        if since.before(self._uses(statement)) and not isinstance(statement, Sequence):
            after, uses = self._inside(statement, _NOTHING)
            return in_sequence(_BARRIER, after), uses
        return self._inside(statement, since)

    def _inside(self, statement: KernelStatement, since: _Uses) -> tuple[KernelStatement, _Uses]:
        match statement:
            case Loop():
                return self._loop(statement, since)
            case Guard():
                body, uses = self.visit(statement.body, since)
                condition = self._of_guard(statement.condition)
                return _guarded(statement.condition, body), uses | condition
            case Declare() | Fetch():
                body, uses = self.visit(statement.body, since)
                return replace(statement, body=body), uses
            case Sequence():
                parts = []
                for part in statement.statements:
                    done, since = self.visit(part, since)
                    parts.append(done)
                return in_sequence(*parts), since
            case Assign() | Together():
                return statement, since | self._of_leaf(statement)
            case Arrive():
                return statement, since
            case Barrier():
                return statement, _NOTHING
            case _:
                assert_never(statement)

    def _loop(self, loop: Loop, since: _Uses) -> tuple[KernelStatement, _Uses]:
        """Return a loop that begins after `since` at first and then after its own end."""
        begin = since
        while True:
            body, end = self.visit(loop.body, begin)
            if loop.extent == 1 or (begin | end) == begin:
                return replace(loop, body=body), end
            begin = begin | end

    def _uses(self, statement: KernelStatement) -> _Uses:
        total = _NOTHING
        for leaf in leaves(statement):
            total = total | self._of_leaf(leaf)
        for condition in guards_of(statement):
            total = total | self._of_guard(condition)
        return total

    def _of_leaf(self, leaf: Leaf) -> _Uses:
        target = written(leaf)
        filled = self.shared & {target}
        return _Uses(filled, self.shared.intersection(read(leaf)) - {target})

    def _of_guard(self, condition: Expr) -> _Uses:
        return _Uses(read=self.shared.intersection(load.tensor for load in loads(condition)))


def _guarded(condition: Expr, body: KernelStatement) -> KernelStatement:
    """Return ``if condition: body``, each barrier of `body` being reached by all threads."""
    if not _has_barrier(body):
        return Guard(condition=condition, body=body)
    match body:
        case Loop() | Declare() | Guard() | Fetch():
            return replace(body, body=_guarded(condition, body.body))
        case Sequence():
            return Sequence(statements=tuple(_guarded(condition, part) for part in body.statements))
        case Barrier():
            return body
        case Assign() | Together() | Arrive():
            raise AssertionError("an assignment holds no barrier")
        case _:
            assert_never(body)


def _has_barrier(statement: KernelStatement) -> bool:
    return any(isinstance(part, Barrier) for part in walk(statement))
