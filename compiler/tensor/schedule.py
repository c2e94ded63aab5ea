"""Schedules: how the loops of a computation are arranged, as a trace of checked primitives."""

from collections.abc import Iterable, Sequence

from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.primitives import (
    Annotate,
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    DoubleBuffer,
    Fuse,
    Prefetch,
    Primitive,
    ReduceFactor,
    Reorder,
    Roll,
    ScheduleError,
    SetScope,
    Split,
    StorageAlign,
    Tensorize,
    format_primitive,
)
from tilewright.compiler.tensor.stages import State, initial_state
from tilewright.compiler.tensor.statements import LoopKind
from tilewright.compiler.tensor.transformations import apply_primitive


class Schedule:
    """A computation and the order in which it is carried out.

    Stages and axes are known by name. A new schedule computes one tensor after the other, each in
    loops over its axes. Every method checks that it is legal and raises `ScheduleError` otherwise,
    leaving the schedule as it was.

    Parameters
    ----------
    outputs
        The tensors to compute.
    intrinsics
        The operations of the target that `tensorize` may use.
    """

    def __init__(self, *outputs: Tensor, intrinsics: Iterable[Intrinsic] = ()) -> None:
        self._state = initial_state(outputs)
        self._intrinsics = {intrinsic.name: intrinsic for intrinsic in intrinsics}
        self._trace: list[Primitive] = []

    @property
    def state(self) -> State:
        """Stages and their loops."""
        return self._state

    @property
    def trace(self) -> tuple[Primitive, ...]:
        """The primitives applied so far; the same ones give the same schedule."""
        return tuple(self._trace)

    def apply(self, *primitives: Primitive) -> None:
        """Apply primitives, for example the trace of another schedule."""
        for primitive in primitives:
            self._state = apply_primitive(self._state, primitive, self._intrinsics)
            self._trace.append(primitive)

    def loops(self, stage: str) -> tuple[str, ...]:
        """Return the names of the loops of `stage`, outermost first."""
        return self._state.stage(stage).loops

    def split(
        self,
        stage: str,
        axis: str,
        factor: int | None = None,
        *,
        parts: int | None = None,
        names: tuple[str, str] | None = None,
    ) -> tuple[str, str]:
        """Split a loop into an outer one and an inner one of `factor` iterations.

        With `parts` instead, the outer one has at most that many iterations.

        Returns
        -------
        outer, inner
            Their names; by default those of the loop with ``.outer`` and ``.inner``.
        """
        outer, inner = names or (f"{axis}.outer", f"{axis}.inner")
        self.apply(
            Split(stage=stage, axis=axis, factor=factor, parts=parts, outer=outer, inner=inner)
        )
        return outer, inner

    def tile(
        self, stage: str, axes: Sequence[str], factors: Sequence[int]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Split several loops and move all outer ones in front of all inner ones.

        Returns
        -------
        outer, inner
            Names of the outer and of the inner loops.
        """
        if len(axes) != len(factors):
            raise ScheduleError(
                f"tile of stage {stage!r}: {len(axes)} axes and {len(factors)} factors"
            )
        pairs = [
            self.split(stage, axis, factor) for axis, factor in zip(axes, factors, strict=True)
        ]
        outer, inner = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
        self.reorder(stage, *outer, *inner)
        return outer, inner

    def fuse(self, stage: str, outer: str, inner: str, *, name: str | None = None) -> str:
        """Fuse a loop with the one directly inside it; return the name of the result."""
        fused = name or f"{outer}.{inner}.fused"
        self.apply(Fuse(stage=stage, outer=outer, inner=inner, fused=fused))
        return fused

    def reorder(self, stage: str, *axes: str) -> None:
        """Put loops into the given order, in the places that they hold together."""
        self.apply(Reorder(stage=stage, axes=axes))

    def unroll(self, stage: str, axis: str) -> None:
        """Write out the iterations of a loop."""
        self.apply(Annotate(stage=stage, axis=axis, kind=LoopKind.UNROLL))

    def vectorize(self, stage: str, axis: str) -> None:
        """Carry out a loop in vector lanes."""
        self.apply(Annotate(stage=stage, axis=axis, kind=LoopKind.VECTORIZE))

    def parallel(self, stage: str, axis: str) -> None:
        """Share a loop among processor cores."""
        self.apply(Annotate(stage=stage, axis=axis, kind=LoopKind.PARALLEL))

    def bind(self, stage: str, axis: str, kind: LoopKind) -> None:
        """Let the blocks or threads of a kernel carry out a loop.

        A stage computed within a loop bound to the same thread axis shares that axis: with scope
        ``shared``, the threads fill its storage together.
        """
        if not (kind.is_block or kind.is_thread):
            raise ScheduleError(
                f"bind of stage {stage!r}: {kind.value} is neither a block nor a thread axis"
            )
        self.apply(Annotate(stage=stage, axis=axis, kind=kind))

    def virtual_thread(self, stage: str, axis: str) -> None:
        """Interleave the iterations of a loop, each with storage of its own."""
        self.apply(Annotate(stage=stage, axis=axis, kind=LoopKind.VIRTUAL_THREAD))

    def compute_at(self, stage: str, consumer: str, axis: str) -> None:
        """Compute what an iteration of `axis` of `consumer` needs of `stage` within it."""
        self.apply(ComputeAt(stage=stage, consumer=consumer, axis=axis))

    def compute_inline(self, stage: str) -> None:
        """Compute an element of `stage` wherever it is read."""
        self.apply(ComputeInline(stage=stage))

    def cache_read(
        self,
        tensor: str,
        scope: str,
        readers: Sequence[str] | None = None,
        *,
        name: str | None = None,
    ) -> str:
        """Copy `tensor` to `scope` for `readers`, by default all; return the copy's name."""
        copy = name or f"{tensor}.{scope}"
        if readers is None:
            readers = [stage.name for stage in self._state.readers(tensor)]
        self.apply(CacheRead(tensor=tensor, scope=scope, readers=tuple(readers), name=copy))
        return copy

    def cache_write(self, stage: str, scope: str, *, name: str | None = None) -> str:
        """Compute `stage` in `scope` and copy the result; return the new stage's name."""
        computed = name or f"{stage}.{scope}"
        self.apply(CacheWrite(stage=stage, scope=scope, name=computed))
        return computed

    def set_scope(self, stage: str, scope: str) -> None:
        """Keep the result of `stage` in `scope`."""
        self.apply(SetScope(stage=stage, scope=scope))

    def tensorize(self, stage: str, axis: str, intrinsic: str) -> None:
        """Carry out the loops from `axis` inwards by an intrinsic."""
        self.apply(Tensorize(stage=stage, axis=axis, intrinsic=intrinsic))

    def reduce_factor(self, stage: str, axis: str, *, name: str | None = None) -> str:
        """Reduce for each value of the reduce loop `axis` apart; return the new stage's name.

        The order of a floating-point sum changes, and with it the rounding.
        """
        partial = name or f"{stage}.partial"
        self.apply(ReduceFactor(stage=stage, axis=axis, name=partial))
        return partial

    def storage_align(self, stage: str, axis: str, factor: int, offset: int = 0) -> None:
        """Pad the storage of `stage`: the stride along `axis` is `offset` modulo `factor`."""
        self.apply(StorageAlign(stage=stage, axis=axis, factor=factor, offset=offset))

    def double_buffer(self, stage: str) -> None:
        """Keep the storage of `stage` twice."""
        self.apply(DoubleBuffer(stage=stage))

    def prefetch(self, tensor: str, elements: int) -> None:
        """Fetch what lies `elements` behind each element that is read of an input.

        A hint for processors, for what is read in the order in which it lies, once, from memory.
        """
        self.apply(Prefetch(tensor=tensor, elements=elements))

    def roll(
        self, stage: str, consumer: str, axis: str, *, names: tuple[str, str] | None = None
    ) -> tuple[str, str] | None:
        """Let `axis`, the outermost loop of the reduction `consumer`, carry on that of `stage`.

        Where sums that the loop carries depend on `stage`, which they may by a factor
        ``exp(x - stage[...])``, they are repaired in each iteration; floating-point sums change in
        their rounding.

        Returns
        -------
        before, repair
            Names of the stages with the value before an iteration and with the factor of the
            repair, by default those of the stage with ``.before`` and ``.repair``; None where
            nothing has to be repaired.
        """
        before, repair = names or (f"{stage}.before", f"{stage}.repair")
        known = len(self._state.stages)
        self.apply(Roll(stage=stage, consumer=consumer, axis=axis, before=before, repair=repair))
        return (before, repair) if len(self._state.stages) > known else None

    def __str__(self) -> str:
        return "\n".join(format_primitive(primitive) for primitive in self._trace)
