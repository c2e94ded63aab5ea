"""From a loop nest to kernels: loops bound to blocks and threads become a launch.

Each statement at the outside of a nest is one kernel. Its loops over blocks make up the grid; its
loops over threads are gone afterwards, a thread being one value of all of them. What lies outside
of a loop over threads is done by the first thread along it. Barriers are added by
`tilewright.cpu_gpu_backends.gpu.barriers`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from typing_extensions import assert_never

from tilewright.compiler.tensor.build import all_of, equal
from tilewright.compiler.tensor.dependence import varying_tensors
from tilewright.compiler.tensor.expressions import Expr, Load, Tensor, Var
from tilewright.compiler.tensor.realisation import SHARED_SCOPE
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
from tilewright.compiler.tensor.tidy import tidy
from tilewright.compiler.tensor.traversal import loads, transform
from tilewright.cpu_gpu_backends.gpu.barriers import insert_barriers
from tilewright.cpu_gpu_backends.gpu.intrinsics import FRAGMENT_SCOPE, is_of_a_warp, written_out
from tilewright.cpu_gpu_backends.gpu.kernels import (
    BLOCK_AXES,
    THREAD_AXES,
    Arrive,
    Assign,
    Declare,
    Fetch,
    Guard,
    Kernel,
    KernelError,
    KernelStatement,
    Loop,
    Memory,
    Parameter,
    Repetition,
    Together,
    guards_of,
    in_sequence,
    leaves,
    read,
    walk,
    written,
)
from tilewright.cpu_gpu_backends.gpu.pipelining import accessed, pipelined

_REPETITIONS = {
    LoopKind.UNROLL: Repetition.UNROLLED,
    LoopKind.VECTORIZE: Repetition.VECTOR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSet:
    """The kernels of a loop nest in the order in which they run, and what passes between them."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    temporaries: tuple[Tensor, ...]
    kernels: tuple[Kernel, ...]


def bind_nest(nest: LoopNest, name: str) -> KernelSet:
    """Return the kernels of a loop nest.

    Raises
    ------
    KernelError
        If a loop over blocks lies within something that the blocks would have to wait for.
    """
    nest = tidy(replace(nest, body=pipelined(written_out(nest.body))))
    temporaries, roots = _roots(nest.body)
    kernels = tuple(
        _kernel(root, f"{name}_{number}" if len(roots) > 1 else name)
        for number, root in enumerate(roots)
    )
    return KernelSet(
        inputs=nest.inputs, outputs=nest.outputs, temporaries=temporaries, kernels=kernels
    )


def _roots(body: Statement) -> tuple[tuple[Tensor, ...], tuple[Statement, ...]]:
    temporaries = []
    while isinstance(body, Allocate):
        temporaries.append(body.tensor)
        body = body.body
    parts = body.statements if isinstance(body, Seq) else (body,)
    return tuple(temporaries), parts


def _kernel(root: Statement, name: str) -> Kernel:
    grid: dict[LoopKind, int] = {}
    body = _without_blocks(root, grid)
    sizes: dict[LoopKind, int] = {}
    for loop in _loops(body):
        if loop.kind.is_thread:
            sizes[loop.kind] = max(loop.extent, sizes.get(loop.kind, 1))
    binder = _Binder(root=body, sizes=sizes)
    statement = insert_barriers(binder.placed(body, frozenset()), tuple(binder.shared))
    return Kernel(
        name=name,
        parameters=_parameters(statement, tuple(binder.shared)),
        grid=(grid.get(BLOCK_AXES[0], 1), grid.get(BLOCK_AXES[1], 1), grid.get(BLOCK_AXES[2], 1)),
        block=(
            sizes.get(THREAD_AXES[0], 1),
            sizes.get(THREAD_AXES[1], 1),
            sizes.get(THREAD_AXES[2], 1),
        ),
        shared=tuple(binder.shared),
        body=statement,
    )


def _without_blocks(statement: Statement, grid: dict[LoopKind, int]) -> Statement:
    """Return `statement` without its loops over blocks, whose extents go to `grid`."""
    if not any(loop.kind.is_block for loop in _loops(statement)):
        return statement
    match statement:
        case For() if statement.kind.is_block:
            grid[statement.kind] = statement.extent
            return _without_blocks(statement.body, grid)
        case For() | If():
            return replace(statement, body=_without_blocks(statement.body, grid))
        case _:
            axis = next(loop.kind for loop in _loops(statement) if loop.kind.is_block)
            raise KernelError(
                f"a loop over {axis.value} stands beside other statements, "
                "for which the blocks of a kernel cannot wait",
                hint="bind the outermost loops of a stage that is computed within no other",
            )


def _loops(statement: Statement) -> Iterator[For]:
    match statement:
        case For():
            yield statement
            yield from _loops(statement.body)
        case If() | Allocate():
            yield from _loops(statement.body)
        case Seq():
            for part in statement.statements:
                yield from _loops(part)
        case Store() | IntrinsicCall():
            pass
        case _:
            assert_never(statement)


def _parameters(body: KernelStatement, shared: tuple[Tensor, ...]) -> tuple[Parameter, ...]:
    """Return the buffers of `body`, what is written last."""
    declared = (part.tensor for part in walk(body) if isinstance(part, Declare))
    private = {*shared, *declared}
    results = {written(leaf): None for leaf in leaves(body) if written(leaf) not in private}
    sources = {tensor: None for leaf in leaves(body) for tensor in read(leaf)}
    for guard in guards_of(body):
        sources |= {load.tensor: None for load in loads(guard)}
    names = [tensor for tensor in sources if tensor not in private and tensor not in results]
    return (
        *(Parameter(tensor=tensor, written=False) for tensor in names),
        *(Parameter(tensor=tensor, written=True) for tensor in results),
    )


@dataclass(slots=True, kw_only=True)
class _Binder:
    """Turns the statements of one kernel into those of one thread."""

    root: Statement
    #: The threads along each axis of the block that is used.
    sizes: dict[LoopKind, int]
    shared: list[Tensor] = field(default_factory=list)
    #: For what is kept once per thread in shared memory: that storage, and the thread's index.
    _widened: dict[Tensor, tuple[Tensor, tuple[Expr, ...]]] = field(default_factory=dict)
    _varying: dict[LoopKind, frozenset[str]] = field(default_factory=dict)
    #: Tiles in shared memory that are filled ahead of their use.
    _ahead: set[Tensor] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._varying = {axis: varying_tensors(self.root, axis.value) for axis in self.sizes}

    def placed(self, statement: Statement, opened: frozenset[LoopKind]) -> KernelStatement:
        """Return what a thread does, `opened` being the thread axes whose loops are around."""
        missing = [axis for axis in self.sizes if axis not in opened]
        if missing and not any(_spreads(statement, axis) for axis in missing):
            body = self._statement(statement, opened | set(missing))
            first = all_of(*(equal(Var(axis.value), 0) for axis in missing))
            return Guard(condition=first, body=body)
        return self._statement(statement, opened)

    def _statement(self, statement: Statement, opened: frozenset[LoopKind]) -> KernelStatement:
        match statement:
            case For() if statement.kind.is_thread:
                body = self.placed(statement.body, opened | {statement.kind})
                if statement.extent == self.sizes[statement.kind]:
                    return body
                return Guard(condition=statement.var < statement.extent, body=body)
            case For():
                return Loop(
                    var=statement.var,
                    extent=statement.extent,
                    repetition=_REPETITIONS.get(statement.kind, Repetition.SERIAL),
                    body=self.placed(statement.body, opened),
                )
            case If():
                return Guard(
                    condition=self._redirected(statement.condition),
                    body=self.placed(statement.body, opened),
                )
            case Seq():
                return self._sequence(statement, opened)
            case Allocate():
                return self._allocation(statement, opened)
            case Store():
                return self._store(statement, opened)
            case IntrinsicCall():
                return self._call(statement, opened)
            case _:
                assert_never(statement)

    def _sequence(self, sequence: Seq, opened: frozenset[LoopKind]) -> KernelStatement:
        """Return statements in order; those that fill tiles ahead of their use are a fetch."""
        if not accessed(sequence)[1] & self._ahead:
            return in_sequence(*(self.placed(part, opened) for part in sequence.statements))
        parts: list[KernelStatement] = []
        fills: list[KernelStatement] = []
        fetched = False
        for part in sequence.statements:
            written_here, read_here = accessed(part)
            fills_tiles = bool(written_here & self._ahead) and not read_here & self._ahead
            if fills and not fills_tiles:
                parts.append(Fetch(body=in_sequence(*fills)))
                fills, fetched = [], True
            if fetched and read_here & self._ahead and not written_here & self._ahead:
                parts.append(Arrive())
                fetched = False
            (fills if fills_tiles else parts).append(self.placed(part, opened))
        assert not fills, "what is fetched is used"
        return in_sequence(*parts)

    def _allocation(self, allocation: Allocate, opened: frozenset[LoopKind]) -> KernelStatement:
        tensor = allocation.tensor
        if tensor.scope == FRAGMENT_SCOPE:
            memory = Memory.FRAGMENT
        elif tensor.scope == SHARED_SCOPE:
            memory = Memory.SHARED
        elif all(axes == opened for axes in _accesses(allocation.body, tensor, opened)):
            memory = Memory.PRIVATE
        else:
            memory = Memory.SHARED
            order = [axis for axis in THREAD_AXES if axis in opened and axis in self.sizes]
            extents = tuple(self.sizes[axis] for axis in order)
            tensor = replace(tensor, shape=(*extents, *tensor.shape))
            prefix = tuple(Var(axis.value) for axis in order)
            self._widened[allocation.tensor] = (tensor, prefix)
        if memory is Memory.SHARED:
            self.shared.append(tensor)
            self._ahead |= {tensor} if allocation.double_buffer else set()
            return self.placed(allocation.body, opened)
        body = self.placed(allocation.body, opened)
        return Declare(tensor=tensor, memory=memory, body=body)

    def _store(self, store: Store, opened: frozenset[LoopKind]) -> KernelStatement:
        tensor, prefix = self._widened.get(store.tensor, (store.tensor, ()))
        indices = tuple(map(self._redirected, store.indices))
        value = self._redirected(store.value)
        assign = Assign(tensor=tensor, indices=(*prefix, *indices), value=value)
        return self._once(assign, store.tensor, opened)

    def _call(self, call: IntrinsicCall, opened: frozenset[LoopKind]) -> KernelStatement:
        together = Together(
            call=replace(
                call,
                output=self._region(call.output),
                inputs=tuple(map(self._region, call.inputs)),
                extents=tuple(map(self._redirected, call.extents)),
                parameters=tuple(map(self._redirected, call.parameters)),
                first=None if call.first is None else self._redirected(call.first),
            )
        )
        if is_of_a_warp(call.intrinsic):
            return together
        return self._once(together, call.output.tensor, opened)

    def _once(
        self, leaf: Assign | Together, target: Tensor, opened: frozenset[LoopKind]
    ) -> KernelStatement:
        """Return `leaf` for one thread only, where all would write the same to a shared place."""
        if written(leaf) not in self.shared:
            return leaf
        prefixed = () if target not in self._widened else self._widened[target][1]
        same = [
            axis
            for axis in self.sizes
            if axis in opened
            and target.name not in self._varying[axis]
            and Var(axis.value) not in prefixed
        ]
        if not same:
            return leaf
        first = all_of(*(equal(Var(axis.value), 0) for axis in same))
        return Guard(condition=first, body=leaf)

    def _redirected(self, expr: Expr) -> Expr:
        def step(node: Expr) -> Expr:
            if isinstance(node, Load) and node.tensor in self._widened:
                tensor, prefix = self._widened[node.tensor]
                return Load(tensor, (*prefix, *node.indices))
            return node

        return transform(expr, step) if self._widened else expr

    def _region(self, region: Region) -> Region:
        tensor, prefix = self._widened.get(region.tensor, (region.tensor, ()))
        offsets = (*prefix, *map(self._redirected, region.offsets))
        axes = tuple(axis + len(prefix) for axis in region.axes)
        return Region(tensor=tensor, offsets=offsets, axes=axes)


def _spreads(statement: Statement, axis: LoopKind) -> bool:
    """Whether the threads along `axis` share the work of `statement`."""
    if any(loop.kind is axis for loop in _loops(statement)):
        return True
    return axis is LoopKind.THREAD_X and any(
        is_of_a_warp(call.intrinsic) for call in _calls(statement)
    )


def _calls(statement: Statement) -> Iterator[IntrinsicCall]:
    match statement:
        case For() | If() | Allocate():
            yield from _calls(statement.body)
        case Seq():
            for part in statement.statements:
                yield from _calls(part)
        case IntrinsicCall():
            yield statement
        case Store():
            pass
        case _:
            assert_never(statement)


def _accesses(  # noqa: C901
    statement: Statement, tensor: Tensor, opened: frozenset[LoopKind]
) -> Iterator[frozenset[LoopKind]]:
    """Iterate over the thread axes that are open where `tensor` is read or written."""
    match statement:
        case For():
            inside = opened | {statement.kind} if statement.kind.is_thread else opened
            yield from _accesses(statement.body, tensor, inside)
        case If():
            if _uses(tensor, statement.condition):
                yield opened
            yield from _accesses(statement.body, tensor, opened)
        case Allocate():
            yield from _accesses(statement.body, tensor, opened)
        case Seq():
            for part in statement.statements:
                yield from _accesses(part, tensor, opened)
        case Store():
            if statement.tensor is tensor or _uses(tensor, *statement.indices, statement.value):
                yield opened
        case IntrinsicCall():
            regions = (statement.output, *statement.inputs)
            if any(region.tensor is tensor for region in regions):
                yield opened
        case _:
            assert_never(statement)


def _uses(tensor: Tensor, *exprs: Expr) -> bool:
    return any(load.tensor is tensor for expr in exprs for load in loads(expr))
