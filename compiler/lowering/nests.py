"""A loop nest as loops over tiles, which run at compile time, around operations of the engines.

An operation is one tensorized statement with the loops that enclose nothing else, or a run of the
vector engine: the loops that combine operands and the statement that writes the result.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from typing_extensions import assert_never

from tilewright.compiler.lowering.tables import Indices, Table, tabulate
from tilewright.compiler.tensor.accelerator import EngineIntrinsic
from tilewright.compiler.tensor.expressions import Binary, Const, Expr, Tensor, Var
from tilewright.compiler.tensor.linear import Linear, difference, from_linear, to_linear
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.printing import format_expression
from tilewright.compiler.tensor.realisation import RUN_SCOPE
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
from tilewright.compiler.tensor.tidy import conjuncts
from tilewright.compiler.tensor.traversal import substitute, variables
from tilewright.isa.errors import CompileError
from tilewright.isa.memories import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerLoop:
    """A loop that an instruction carries out."""

    name: str
    extent: int
    #: Its iterations are micro-ops.
    unrolled: bool
    #: Limits below `extent` that guards set, by the loops over tiles.
    limits: tuple[Table, ...] = ()

    def count(self, indices: Indices) -> int:
        """Return the number of iterations in a tile."""
        return max(0, min((self.extent, *(limit.at(indices) for limit in self.limits))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where an operand lies in a tensor: along each axis a base and what each inner loop adds."""

    tensor: Tensor
    #: Bases, over the loops over tiles and the inner loops that do not enter them linearly.
    bases: tuple[Table, ...]
    steps: tuple[Mapping[str, int], ...]
    #: The axes of the tensor along which the operand's own axes run.
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A tensorized statement with the loops that its instruction carries out.

    Attributes
    ----------
    loops
        Outermost first.
    inputs
        By the names in the intrinsic's pattern.
    parameters
        By the names in the pattern: numbers, or names of the kernel's scalars.
    first
        For a reduction, whether it overwrites: where this holds and the inner loops begin.
    run
        The operation that combines the operands of a run, if this one writes a run's result.
    conditions
        All of them must hold in a tile, else nothing is done.
    """

    intrinsic: EngineIntrinsic
    loops: tuple[InnerLoop, ...]
    extents: tuple[Table, ...]
    output: Access
    inputs: Mapping[str, Access]
    parameters: Mapping[str, Table | str]
    first: Table | None
    run: "Operation | None"
    conditions: tuple[Table, ...]

    def numbers(self, indices: Indices, scalars: Mapping[str, int]) -> dict[str, int]:
        """Return the parameters in a tile."""
        return {
            name: scalars[value] if isinstance(value, str) else value.at(indices)
            for name, value in self.parameters.items()
        }

    def does_anything(self, indices: Indices) -> bool:
        """Whether there is anything to do in a tile."""
        return (
            all(condition.at(indices) for condition in self.conditions)
            and all(extent.at(indices) > 0 for extent in self.extents)
            and all(loop.count(indices) for loop in self.loops)
        )

    @property
    def operands(self) -> Mapping[str, Access]:
        """All inputs in scratchpads or DRAM, those of the run included."""
        return self.inputs if self.run is None else {**self.inputs, **self.run.inputs}


@dataclass(frozen=True, slots=True, kw_only=True)
class TileLoop:
    """A loop that runs at compile time."""

    name: str
    extent: int
    body: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A tensor in a scratchpad while `body` runs."""

    tensor: Tensor
    body: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """`body` in the tiles where `holds` is not zero."""

    holds: Table
    body: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Nodes one after the other."""

    nodes: tuple["Node", ...]


Node: TypeAlias = TileLoop | Scope | Condition | Parts | Operation


def analyse(nest: LoopNest) -> Node:
    """Separate the loops over tiles from the operations.

    Raises
    ------
    CompileError
        If a statement is no instruction of the accelerator.
    """
    return _Analysis(dict(_extents(nest.body))).finished(nest.body)


def operations(node: Node) -> Iterator[Operation]:
    """Iterate over all operations of a nest."""
    match node:
        case TileLoop() | Scope() | Condition():
            yield from operations(node.body)
        case Parts():
            for part in node.nodes:
                yield from operations(part)
        case Operation():
            yield node
        case _:
            assert_never(node)


def _extents(statement: Statement) -> Iterator[tuple[str, int]]:
    match statement:
        case For():
            yield statement.var.name, statement.extent
            yield from _extents(statement.body)
        case If() | Allocate():
            yield from _extents(statement.body)
        case Seq():
            for part in statement.statements:
                yield from _extents(part)
        case Store() | IntrinsicCall():
            return
        case _:
            assert_never(statement)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """An operation whose loops are still being collected."""

    call: IntrinsicCall
    loops: tuple[tuple[For, tuple[Expr, ...]], ...] = ()
    guards: tuple[Expr, ...] = ()
    run: "_Draft | None" = None

    def within(self, loop: For) -> "_Draft":
        """Return the operation with one more loop around it."""
        own = tuple(guard for guard in self.guards if loop.var.name in variables(guard))
        rest = tuple(guard for guard in self.guards if guard not in own)
        limits = tuple(_limit(guard, loop.var) for guard in own)
        return replace(self, loops=((loop, limits), *self.loops), guards=rest)


def _limit(guard: Expr, var: Var) -> Expr:
    """Return n of ``var < n``, which is what a guard says of a loop."""
    if isinstance(guard, Binary) and guard.operator is Operator.LESS:
        room = difference(guard.right, guard.left)
        factor = dict(room.terms).get(var, 0)
        rest = room + Linear(((var, -factor),), 0)
        if factor < 0 and var.name not in variables(from_linear(rest)):
            return (from_linear(rest) + (-factor - 1)) // -factor
    raise CompileError(
        f"the guard {format_expression(guard)} leaves gaps in the loop {var.name!r},"
        " which an instruction cannot"
    )


@dataclass(frozen=True, slots=True)
class _Analysis:
    """The walk over a nest whose loops have these extents."""

    extents: Mapping[str, int]

    def finished(self, statement: Statement) -> Node:
        """Return a statement as a node of its own."""
        found = self.parsed(statement)
        return self.operation(found) if isinstance(found, _Draft) else found

    def parsed(self, statement: Statement) -> Node | _Draft:
        """Return a statement as a node, or as an operation that may be part of a larger one."""
        match statement:
            case For():
                body = self.parsed(statement.body)
                threads = statement.kind is LoopKind.VIRTUAL_THREAD
                if isinstance(body, _Draft) and _takes_loops(body) and not threads:
                    return body.within(statement)
                node = self.operation(body) if isinstance(body, _Draft) else body
                return TileLoop(name=statement.var.name, extent=statement.extent, body=node)
            case If():
                body = self.parsed(statement.body)
                if isinstance(body, _Draft):
                    return replace(body, guards=(*conjuncts(statement.condition), *body.guards))
                return Condition(holds=self.table(statement.condition), body=body)
            case Allocate(tensor=tensor) if tensor.scope == RUN_SCOPE:
                return self.whole_run(statement)
            case Allocate():
                return Scope(tensor=statement.tensor, body=self.finished(statement.body))
            case Seq():
                return Parts(nodes=tuple(map(self.finished, statement.statements)))
            case IntrinsicCall():
                return _Draft(call=statement)
            case Store():
                raise CompileError(
                    f"{statement.tensor.name!r} is computed element by element, "
                    "the accelerator has no such instruction",
                    hint="let an intrinsic do the innermost loops, with tensorize",
                )
            case _:
                assert_never(statement)

    def whole_run(self, allocation: Allocate) -> _Draft:
        """Join what combines the operands of a run and what writes its result."""
        match allocation.body:
            case Seq(statements=(first, second)):
                combining, writing = self.parsed(first), self.parsed(second)
                if isinstance(combining, _Draft) and isinstance(writing, _Draft):
                    if not (writing.loops or combining.guards):
                        return replace(writing, run=combining)
        raise CompileError(
            f"{allocation.tensor.name!r} in scope {RUN_SCOPE!r} must be one entry, combined and "
            "written within the same loops",
            hint="compute it at the innermost loop of the stage that reads it",
        )

    def operation(self, draft: _Draft, around: frozenset[str] = frozenset()) -> Operation:
        """Tabulate what a finished operation needs to know; `around` names a run's outer loops."""
        call, intrinsic = draft.call, draft.call.intrinsic
        if not isinstance(intrinsic, EngineIntrinsic):
            raise CompileError(f"intrinsic {intrinsic.name!r} is none of the accelerator's")
        names = around | {loop.var.name for loop, _ in draft.loops}
        inputs = zip(intrinsic.operands, call.inputs, strict=True)
        values = zip(intrinsic.parameters, call.parameters, strict=True)
        return Operation(
            intrinsic=intrinsic,
            loops=tuple(self.loop(loop, limits) for loop, limits in draft.loops),
            extents=tuple(map(self.table, call.extents)),
            output=self.access(call.output, names),
            inputs={
                operand.name: self.access(region, names)
                for operand, region in inputs
                if region.tensor.scope != RUN_SCOPE
            },
            parameters={
                var.name: value.name
                if isinstance(value, Var) and value.dtype is not ScalarType.INDEX
                else self.table(value)
                for var, value in values
            },
            first=None if call.first is None else self.table(_at_start(call.first, names)),
            run=None if draft.run is None else self.operation(draft.run, names),
            conditions=tuple(map(self.table, draft.guards)),
        )

    def loop(self, loop: For, limits: tuple[Expr, ...]) -> InnerLoop:
        return InnerLoop(
            name=loop.var.name,
            extent=loop.extent,
            unrolled=loop.kind is LoopKind.UNROLL,
            limits=tuple(map(self.table, limits)),
        )

    def access(self, region: Region, inner: frozenset[str]) -> Access:
        """Split the offsets of a region in what the loops `inner` add evenly, and the rest."""
        bases: list[Table] = []
        steps: list[dict[str, int]] = []
        for offset in region.offsets:
            linear = to_linear(offset)
            even = {
                atom: factor
                for atom, factor in linear.terms
                if isinstance(atom, Var) and atom.name in inner
            }
            rest = tuple((atom, factor) for atom, factor in linear.terms if atom not in even)
            bases.append(self.table(from_linear(Linear(rest, linear.constant))))
            steps.append({atom.name: factor for atom, factor in even.items()})
        return Access(
            tensor=region.tensor, bases=tuple(bases), steps=tuple(steps), axes=region.axes
        )

    def table(self, expr: Expr) -> Table:
        """Tabulate an expression."""
        return tabulate(expr, self.extents)


def _at_start(condition: Expr, loops: frozenset[str]) -> Expr:
    """Return a condition where the first iterations of `loops` run."""
    return substitute(condition, {name: Const(0, ScalarType.INDEX) for name in loops})


def _takes_loops(operation: _Draft) -> bool:
    intrinsic = operation.call.intrinsic
    return isinstance(intrinsic, EngineIntrinsic) and intrinsic.engine in (
        Engine.GEMM,
        Engine.VECTOR,
    )
