"""Generation of code from a loop nest: its tiles in order, and the tasks of each."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from typing_extensions import assert_never

from tilewright.compiler.lowering.array_code import ArrayCode
from tilewright.compiler.lowering.bindings import Bindings, DramView
from tilewright.compiler.lowering.buffers import (
    Buffer,
    ConstantLoad,
    Placed,
    TileLoad,
    WeightLoad,
    placed,
)
from tilewright.compiler.lowering.emitter import Emitter
from tilewright.compiler.lowering.nests import (
    Condition,
    Node,
    Operation,
    Parts,
    Scope,
    TileLoop,
    analyse,
    operations,
)
from tilewright.compiler.lowering.operands import reach
from tilewright.compiler.lowering.scratchpads import Span
from tilewright.compiler.lowering.steps import RowRange, TileStep
from tilewright.compiler.lowering.tables import Indices
from tilewright.compiler.lowering.transfer_code import emit_store, evaluate_load
from tilewright.compiler.lowering.vector_code import emit_vector
from tilewright.compiler.tensor.accelerator import memory_of
from tilewright.compiler.tensor.statements import LoopNest
from tilewright.isa.errors import CompileError
from tilewright.isa.memories import Engine, Memory

#: Axes of an entry, by scratchpad.
_ENTRY_AXES: Mapping[Memory, int] = {
    Memory.INP: 2,
    Memory.WGT: 2,
    Memory.VEC: 2,
    Memory.COEF: 1,
    Memory.PRM: 2,
    Memory.LUT: 1,
    Memory.ACC: 2,
    Memory.OUT: 2,
}


#: Operands of the vector engine in the order in which they are loaded.
_LOAD_ORDER = ("value", "other", "coef", "prm", "table")


class NestCode:
    """A loop nest whose operations are known; serves every kernel with this nest."""

    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.root = analyse(nest)
        self.operations = tuple(operations(self.root))
        readers: dict[str, int] = {}
        for operation in self.operations:
            for access in operation.operands.values():
                readers[access.tensor.name] = readers.get(access.tensor.name, 0) + 1
        #: Tensors that nothing but one operation reads.
        self.read_once = frozenset(name for name, count in readers.items() if count == 1)
        #: The innermost loops that store something: an iteration of theirs is a tile.
        self.storing = frozenset(_storing_loops(self.root))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Enter:
    """A tensor in a scratchpad begins to exist."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Do:
    """An operation is carried out."""

    operation: Operation
    indices: Indices
    #: The parameters of its intrinsic.
    numbers: Mapping[str, int]
    #: What a load brings in.
    loaded: Buffer | None


_Action = _Enter | _Do


class NestTiles:
    """The tiles of a nest on tensors that have their places.

    Parameters
    ----------
    bindings
        What the nest's inputs and outputs stand for, by name.
    scalars
        The values of its scalars.
    """

    def __init__(self, code: NestCode, bindings: Bindings, scalars: Mapping[str, int]) -> None:
        self._code = code
        self._scalars = scalars
        self._bindings = bindings
        self._buffers: dict[str, Buffer] = {}
        self._arrays: dict[int, ArrayCode] = {}

    def steps(self) -> Iterator[TileStep]:
        """Iterate over the tiles in order; what comes before a tile belongs to it."""
        waiting: list[_Action] = []
        for action in self._actions(self._code.root, {}):
            if action is not None:
                waiting.append(action)
            else:
                yield self._step(tuple(waiting))
                waiting = []
        if waiting:
            yield self._step(tuple(waiting))

    def _actions(self, node: Node, indices: Indices) -> Iterator[_Action | None]:
        """Iterate over what is done; None ends a tile."""
        match node:
            case TileLoop():
                for index in range(node.extent):
                    yield from self._actions(node.body, {**indices, node.name: index})
                    if node.name in self._code.storing:
                        yield None
            case Scope():
                yield _Enter(name=node.tensor.name)
                yield from self._actions(node.body, indices)
            case Condition():
                if node.holds.at(indices):
                    yield from self._actions(node.body, indices)
            case Parts():
                for part in node.nodes:
                    yield from self._actions(part, indices)
            case Operation():
                yield from self._operation(node, indices)
            case _:
                assert_never(node)

    def _operation(self, operation: Operation, indices: Indices) -> Iterator[_Do]:
        if all(condition.at(indices) for condition in operation.conditions):
            numbers = operation.numbers(indices, self._scalars)
            loaded = self._load(operation, indices, numbers)
            yield _Do(operation=operation, indices=indices, numbers=numbers, loaded=loaded)

    def _load(
        self, operation: Operation, indices: Indices, numbers: Mapping[str, int]
    ) -> Buffer | None:
        if operation.intrinsic.engine is not Engine.LOAD:
            return None
        source = operation.inputs["source"].tensor.name
        rank = _rank(operation.output.tensor.scope, len(operation.output.tensor.shape))
        return evaluate_load(operation, indices, numbers, self._bindings[source], rank)

    def _step(self, actions: tuple[_Action, ...]) -> TileStep:
        reads: list[RowRange] = []
        writes: list[tuple[RowRange, int]] = []
        for action in actions:
            if isinstance(action, _Do) and isinstance(action.loaded, TileLoad):
                load = action.loaded
                reads.append(_rows(load.view, load.group, load.row, load.rows))
            elif isinstance(action, _Do) and action.operation.intrinsic.engine is Engine.STORE:
                writes.append(self._written(action))
        ((written, share),) = writes
        return TileStep(
            reads=tuple(reads), writes=written, share=share, emit=partial(self._emit, actions)
        )

    def _written(self, action: _Do) -> tuple[RowRange, int]:
        target = action.operation.output
        view = self._bindings[target.tensor.name]
        assert isinstance(view, DramView), "a store goes to DRAM"
        group, _, row, *_ = (base.at(action.indices) for base in target.bases)
        planes, rows, columns, *_ = (e.at(action.indices) for e in action.operation.extents)
        return _rows(view, group, row, rows), planes * columns

    def _emit(self, actions: tuple[_Action, ...], emitter: Emitter) -> None:
        for action in actions:
            match action:
                case _Enter():
                    self._buffers.pop(action.name, None)
                case _Do():
                    self._carry_out(action, emitter)
                case _:
                    assert_never(action)

    def _carry_out(self, action: _Do, emitter: Emitter) -> None:
        operation, indices = action.operation, action.indices
        name = operation.output.tensor.name
        match operation.intrinsic.engine:
            case Engine.LOAD:
                assert action.loaded is not None, "evaluated with the tile"
                self._buffers[name] = action.loaded
            case Engine.GEMM:
                self._multiply(operation, indices, emitter)
            case Engine.VECTOR:
                inputs = self._bring(operation, emitter)
                output = self._output(operation, indices, emitter)
                emit_vector(operation, indices, action.numbers, inputs, output, emitter)
            case Engine.STORE:
                source = self._buffers[operation.inputs["source"].tensor.name]
                view = self._bindings[name]
                assert isinstance(source, Placed), "`out` is written by the vector engine"
                assert isinstance(view, DramView), "a store goes to DRAM"
                emit_store(operation, indices, view, source, emitter)
            case _:
                assert_never(operation.intrinsic.engine)

    def _multiply(self, operation: Operation, indices: Indices, emitter: Emitter) -> None:
        if id(operation) not in self._arrays:
            self._arrays[id(operation)] = ArrayCode(operation)
        tile = self._buffers[operation.inputs["inp"].tensor.name]
        weights = self._buffers[operation.inputs["wgt"].tensor.name]
        if not isinstance(tile, TileLoad) or not isinstance(weights, WeightLoad):
            raise CompileError("the array multiplies activations from DRAM with constant weights")
        output = self._output(operation, indices, emitter)
        self._arrays[id(operation)].emit(indices, tile, weights, output, emitter)

    def _bring(self, operation: Operation, emitter: Emitter) -> dict[str, Placed]:
        """Load the operands that are not on chip yet."""
        inputs: dict[str, Placed] = {}
        operands = operation.operands
        for name in (name for name in _LOAD_ORDER if name in operands):
            access = operands[name]
            spans = tuple(place.span for place in inputs.values())
            buffer = self._buffers[access.tensor.name]
            match buffer:
                case Placed():
                    inputs[name] = buffer
                case TileLoad() | ConstantLoad():
                    inputs[name] = buffer.bring(emitter, spans)
                case WeightLoad():
                    raise CompileError(f"{access.tensor.name!r} holds weights of the array")
                case _:
                    assert_never(buffer)
        return inputs

    def _output(self, operation: Operation, indices: Indices, emitter: Emitter) -> Placed:
        """Return where the result of an operation lies, and make room if it is new."""
        tensor, access = operation.output.tensor, operation.output
        known = self._buffers.get(tensor.name)
        if isinstance(known, Placed):
            return known
        rank = _rank(tensor.scope, len(tensor.shape))
        counts = {loop.name: loop.count(indices) for loop in operation.loops}
        # What loops over tiles add to is there as a whole, the rest as far as this tile goes.
        sizes = tuple(
            tensor.shape[axis] if access.bases[axis].names else extent
            for axis, extent in enumerate(reach(access, counts, rank))
        )
        memory = memory_of(tensor.scope)
        entries = math.prod(sizes)
        if memory is Memory.OUT:
            span = emitter.take_out(entries)
        else:
            span = self._in_place(operation, sizes) or emitter.take_bank(entries)
        self._buffers[tensor.name] = placed(span, sizes)
        return placed(span, sizes)

    def _in_place(self, operation: Operation, sizes: tuple[int, ...]) -> Span | None:
        """Return the entries of `acc` that the result may overwrite element by element."""
        value = operation.operands.get("value")
        if value is None or value.tensor.name not in self._code.read_once:
            return None
        source = self._buffers[value.tensor.name]
        if not isinstance(source, Placed) or source.span.memory is not Memory.ACC:
            return None
        same = source.sizes == sizes and value.steps == operation.output.steps
        return source.span if same else None


def _rank(scope: str, axes: int) -> int:
    """Return how many axes of a tensor in a scratchpad are in front of those of an entry."""
    return axes - _ENTRY_AXES[memory_of(scope)]


def _rows(view: DramView, group: int, row: int, rows: int) -> RowRange:
    return RowRange(tensor=view.name, group=group, begin=view.row + row, count=rows)


def _storing_loops(node: Node) -> Iterator[str]:
    match node:
        case TileLoop():
            inner = tuple(_storing_loops(node.body))
            stores = any(one.intrinsic.engine is Engine.STORE for one in operations(node))
            yield from inner or ((node.name,) if stores else ())
        case Scope() | Condition():
            yield from _storing_loops(node.body)
        case Parts():
            for part in node.nodes:
                yield from _storing_loops(part)
        case Operation():
            return
        case _:
            assert_never(node)
