"""Generation of code from a loop nest: its tiles in order, and the tasks of each."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from typing_extensions import assert_never

from tilewright.compiler.lowering.array_code import ArrayCode
from tilewright.compiler.lowering.bindings import Bindings, DramView
from tilewright.compiler.lowering.buffers import (
    Buffer,
    ConstantLoad,
    FillLoad,
    Placed,
    TileLoad,
    WeightLoad,
    WeightTileLoad,
)
from tilewright.compiler.lowering.emitter import Emitter
from tilewright.compiler.lowering.nests import (
    Access,
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
from tilewright.compiler.lowering.transfer_code import emit_store, evaluate_load, stored_tile
from tilewright.compiler.lowering.vector_code import emit_vector
from tilewright.compiler.tensor.accelerator import memory_of, scope_of
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


#: How many nests of kernels of one kind are remembered: more than a network has, fewer than a
#: tuner tries.
NESTS_KEPT = 128
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
        #: Axes of tensors in scratchpads of which each operation takes one index: there is a
        #: buffer for each index, as virtual threads have storage of their own.
        self.apart = _axes_apart(self.operations)
        #: Accumulators that lie behind others in their bank, because one operation reads both.
        self.behind = _accumulators_behind(self.root, self.operations)


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
        self._buffers: dict[_Key, Buffer] = {}
        self._arrays: dict[int, ArrayCode] = {}

    def steps(self) -> Iterator[TileStep]:
        """Iterate over the tiles in order; each ends with its store."""
        waiting: list[_Action] = []
        for action in self._actions(self._code.root, {}):
            waiting.append(action)
            if isinstance(action, _Do) and action.operation.intrinsic.engine is Engine.STORE:
                yield self._step(tuple(waiting), action)
                waiting = []

    def _actions(self, node: Node, indices: Indices) -> Iterator[_Action]:
        match node:
            case TileLoop():
                for index in range(node.extent):
                    yield from self._actions(node.body, {**indices, node.name: index})
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
        if operation.does_anything(indices):
            numbers = operation.numbers(indices, self._scalars)
            loaded = self._load(operation, indices, numbers)
            yield _Do(operation=operation, indices=indices, numbers=numbers, loaded=loaded)

    def _load(
        self, operation: Operation, indices: Indices, numbers: Mapping[str, int]
    ) -> Buffer | None:
        if operation.intrinsic.engine is not Engine.LOAD:
            return None
        binding = self._bindings[operation.inputs["source"].tensor.name]
        target = operation.output
        axes = range(_rank(target.tensor.scope, len(target.tensor.shape)))
        origins = self._key(target, indices).origins(len(axes))
        if any(target.bases[axis].at(indices) != origins[axis] for axis in axes):
            raise CompileError(f"a load must fill all of {target.tensor.name!r}")
        return evaluate_load(operation, indices, numbers, binding, origins)

    def _step(self, actions: tuple[_Action, ...], store: _Do) -> TileStep:
        loads = (action.loaded for action in actions if isinstance(action, _Do))
        target = store.operation.output
        view = self._bindings[target.tensor.name]
        assert isinstance(view, DramView), "a store goes to DRAM"
        tile = stored_tile(store.operation, store.indices, view)
        return TileStep(
            reads=tuple(
                _rows(load.view, load.group, load.row, load.rows)
                for load in loads
                if isinstance(load, TileLoad)
            ),
            writes=RowRange(tensor=view.name, group=tile.group, begin=tile.row, count=tile.rows),
            share=tile.blocks * tile.columns,
            emit=partial(self._emit, actions),
        )

    def _emit(self, actions: tuple[_Action, ...], emitter: Emitter) -> None:
        for action in actions:
            match action:
                case _Enter():
                    for key in [key for key in self._buffers if key.name == action.name]:
                        del self._buffers[key]
                case _Do():
                    self._carry_out(action, emitter)
                case _:
                    assert_never(action)

    def _carry_out(self, action: _Do, emitter: Emitter) -> None:
        operation, indices = action.operation, action.indices
        match operation.intrinsic.engine:
            case Engine.LOAD:
                assert action.loaded is not None, "evaluated with the tile"
                self._buffers[self._key(operation.output, indices)] = action.loaded
            case Engine.GEMM:
                self._multiply(operation, indices, emitter)
            case Engine.VECTOR:
                inputs = self._bring(operation, indices, emitter)
                output = self._output(operation, indices, emitter)
                emit_vector(operation, indices, action.numbers, inputs, output, emitter)
            case Engine.STORE:
                source = self._buffer(operation.inputs["source"], indices)
                view = self._bindings[operation.output.tensor.name]
                assert isinstance(source, Placed), "`out` is written by the vector engine"
                assert isinstance(view, DramView), "a store goes to DRAM"
                emit_store(operation, indices, view, source, emitter)
            case _:
                assert_never(operation.intrinsic.engine)

    def _multiply(self, operation: Operation, indices: Indices, emitter: Emitter) -> None:
        if id(operation) not in self._arrays:
            self._arrays[id(operation)] = ArrayCode(operation)
        tile = self._buffer(operation.inputs["inp"], indices)
        weights = self._buffer(operation.inputs["wgt"], indices)
        if not isinstance(tile, TileLoad | FillLoad) or not isinstance(
            weights, WeightLoad | WeightTileLoad
        ):
            raise CompileError("the array multiplies activations from DRAM with weights")
        output = self._output(operation, indices, emitter)
        self._arrays[id(operation)].emit(indices, tile, weights, output, emitter)

    def _bring(self, operation: Operation, indices: Indices, emitter: Emitter) -> dict[str, Placed]:
        """Load the operands that are not on chip yet."""
        inputs: dict[str, Placed] = {}
        operands = operation.operands
        for name in (name for name in _LOAD_ORDER if name in operands):
            access = operands[name]
            spans = tuple(place.span for place in inputs.values())
            buffer = self._buffer(access, indices)
            match buffer:
                case Placed():
                    inputs[name] = buffer
                case TileLoad() | FillLoad() | ConstantLoad():
                    inputs[name] = buffer.bring(emitter, spans)
                case WeightLoad() | WeightTileLoad():
                    raise CompileError(f"{access.tensor.name!r} holds weights of the array")
                case _:
                    assert_never(buffer)
        return inputs

    def _output(self, operation: Operation, indices: Indices, emitter: Emitter) -> Placed:
        """Return where the result of an operation lies, and make room if it is new."""
        tensor, access = operation.output.tensor, operation.output
        key = self._key(access, indices)
        known = self._buffers.get(key)
        if isinstance(known, Placed):
            return known
        rank = _rank(tensor.scope, len(tensor.shape))
        counts = {loop.name: loop.count(indices) for loop in operation.loops}
        # What loops over tiles add to is there as a whole, the rest as far as this tile goes.
        sizes = tuple(
            tensor.shape[axis] if access.bases[axis].names and axis not in key.axes else extent
            for axis, extent in enumerate(reach(access, counts, rank))
        )
        memory = memory_of(tensor.scope)
        entries = math.prod(sizes)
        if memory is Memory.OUT:
            span = emitter.take_out(entries)
        else:
            span = (
                self._in_place(operation, indices, sizes)
                or self._behind(tensor.name, entries, emitter)
                or emitter.take_bank(entries)
            )
        result = Placed(span=span, sizes=sizes, origins=key.origins(rank))
        self._buffers[key] = result
        return result

    def _behind(self, name: str, entries: int, emitter: Emitter) -> Span | None:
        """Return the entries of `acc` behind the accumulators that are read together with these."""
        first = self._code.behind.get(name)
        for key, buffer in self._buffers.items():
            if key.name == first and isinstance(buffer, Placed):
                return emitter.take_behind(buffer.span, entries)
        return None

    def _key(self, access: Access, indices: Indices) -> "_Key":
        """Tell which buffer of a tensor an access is to."""
        axes = self._code.apart.get(access.tensor.name, ())
        return _Key(
            name=access.tensor.name,
            axes=axes,
            at=tuple(access.bases[axis].at(indices) for axis in axes),
        )

    def _buffer(self, access: Access, indices: Indices) -> Buffer:
        key = self._key(access, indices)
        if key not in self._buffers:
            raise CompileError(f"{access.tensor.name!r} is read before it is in its scratchpad")
        return self._buffers[key]

    def _in_place(
        self, operation: Operation, indices: Indices, sizes: tuple[int, ...]
    ) -> Span | None:
        """Return the entries of `acc` that the result may overwrite element by element."""
        value = operation.operands.get("value")
        if value is None or value.tensor.name not in self._code.read_once:
            return None
        source = self._buffer(value, indices)
        if not isinstance(source, Placed) or source.span.memory is not Memory.ACC:
            return None
        same = source.sizes == sizes and value.steps == operation.output.steps
        return source.span if same else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """One of the buffers of a tensor: indices along the axes that keep them apart."""

    name: str
    axes: tuple[int, ...]
    at: tuple[int, ...]

    def origins(self, rank: int) -> tuple[int, ...]:
        """Return the first index along each of `rank` axes."""
        given = dict(zip(self.axes, self.at, strict=True))
        return tuple(given.get(axis, 0) for axis in range(rank))


def _scopes(node: Node) -> Iterator[str]:
    """Iterate over the tensors in scratchpads, in the order in which they begin to exist."""
    match node:
        case Scope():
            yield node.tensor.name
            yield from _scopes(node.body)
        case TileLoop() | Condition():
            yield from _scopes(node.body)
        case Parts():
            for part in node.nodes:
                yield from _scopes(part)
        case Operation():
            return
        case _:
            assert_never(node)


def _accumulators_behind(root: Node, operations: Iterable[Operation]) -> dict[str, str]:
    order = list(_scopes(root))
    found: dict[str, str] = {}
    for operation in operations:
        names = {
            access.tensor.name
            for name, access in operation.operands.items()
            if name in ("value", "other") and access.tensor.scope == scope_of(Memory.ACC)
        }
        if len(names) > 1:
            first, second = sorted(names, key=order.index)
            found[second] = first
    return found


def _axes_apart(operations: Iterable[Operation]) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for operation in operations:
        run = () if operation.run is None else operation.run.inputs.values()
        for access in (*operation.inputs.values(), *run, operation.output):
            moving = {
                axis
                for axis in range(len(access.bases))
                if access.bases[axis].names and not access.steps[axis] and axis not in access.axes
            }
            name = access.tensor.name
            found[name] = found.get(name, moving) & moving
    return {name: tuple(sorted(axes)) for name, axes in found.items()}


def _rank(scope: str, axes: int) -> int:
    """Return how many axes of a tensor in a scratchpad are in front of those of an entry."""
    return axes - _ENTRY_AXES[memory_of(scope)]


def _rows(view: DramView, group: int, row: int, rows: int) -> RowRange:
    return RowRange(tensor=view.name, group=group, begin=view.row + row, count=rows)
