"""Hypothesis strategies: random computations, and random schedules of them."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
from hypothesis import strategies as st

from tilewright.compiler.tensor.build import (
    all_of,
    cast,
    constant,
    maximum,
    minimum,
    reduce_max,
    reduce_sum,
    round_shift,
    select,
)
from tilewright.compiler.tensor.declare import compute, inputs_of, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Load, Tensor
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.primitives import ScheduleError
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopKind
from tilewright.compiler.tensor.transfers import transfer

INT8, INT32 = ScalarType.INT8, ScalarType.INT32
BOUND_KINDS = [kind for kind in LoopKind if kind.is_block or kind.is_thread]


@st.composite
def computations(draw: st.DrawFn) -> Tensor:
    """A tensor of two axes computed from others in two to four stages."""
    sizes = st.integers(2, 6)
    tensors = [
        placeholder((draw(sizes), draw(sizes)), dtype, name)
        for name, dtype in (("A", INT8), ("B", INT32))
    ]
    stages = draw(st.integers(2, 4))
    for number in range(stages):
        # Later stages tend to read the one before, so that little is left unused.
        source = tensors[-1] if number and draw(st.booleans()) else draw(st.sampled_from(tensors))
        other = draw(st.sampled_from(tensors))
        kind = draw(st.sampled_from(_KINDS))
        tensors.append(kind(draw, source, other, f"S{number}"))
    return tensors[-1]


def _wide(tensor: Tensor, *at: Expr) -> Expr:
    return cast(tensor.at(*at), INT32)


def _inside(tensor: Tensor, i: Expr, j: Expr) -> Expr:
    rows, columns = tensor.shape
    return all_of(0 <= i, i < rows, 0 <= j, j < columns)


def _elementwise(draw: st.DrawFn, source: Tensor, other: Tensor, name: str) -> Tensor:
    factor, shift = draw(st.integers(-(2**31), 2**31 - 1)), draw(st.integers(0, 9))
    row, column = draw(st.integers(-2, 2)), draw(st.integers(-2, 2))

    def body(i: Expr, j: Expr) -> Expr:
        moved = (i + row, j + column)
        value = select(_inside(other, *moved), _wide(other, *moved), 7)
        return round_shift(_wide(source, i, j) * factor, shift) + maximum(value, -100)

    return compute(source.shape, body, name)


def _transposed(draw: st.DrawFn, source: Tensor, other: Tensor, name: str) -> Tensor:
    rows, columns = source.shape
    return compute((columns, rows), lambda i, j: _wide(source, j, i) - cast(i * 3 - j, INT32), name)


def _strided(draw: st.DrawFn, source: Tensor, other: Tensor, name: str) -> Tensor:
    stride = draw(st.integers(1, 3))
    begin = draw(st.integers(0, 1)) if source.shape[0] > 1 else 0
    rows = (source.shape[0] - begin - 1) // stride + 1

    def body(i: Expr, j: Expr) -> Expr:
        return minimum(_wide(source, i * stride + begin, j), constant(2**30, INT32))

    return compute((rows, source.shape[1]), body, name)


def _reshaped(draw: st.DrawFn, source: Tensor, other: Tensor, name: str) -> Tensor:
    rows, columns = source.shape
    shape = draw(st.sampled_from([(rows * columns, 1), (1, rows * columns), (columns, rows)]))

    def body(i: Expr, j: Expr) -> Expr:
        position = i * shape[1] + j
        return source[position // columns, position % columns]

    return compute(shape, body, name)


def _window(draw: st.DrawFn, source: Tensor, other: Tensor, name: str) -> Tensor:
    height, width = (draw(st.integers(1, extent)) for extent in source.shape)
    ky, kx = reduce_axis(height, "ky"), reduce_axis(width, "kx")
    reduce = draw(st.sampled_from([reduce_sum, reduce_max]))
    shape = (source.shape[0] - height + 1, source.shape[1] - width + 1)
    return compute(shape, lambda i, j: reduce(_wide(source, i + ky.var, j + kx.var), ky, kx), name)


def _product(draw: st.DrawFn, source: Tensor, other: Tensor, name: str) -> Tensor:
    k = reduce_axis(min(source.shape[1], other.shape[1]), "k")
    return compute(
        (source.shape[0], other.shape[0]),
        lambda i, j: reduce_sum(_wide(source, i, k.var) * _wide(other, j, k.var), k),
        name,
    )


_KINDS = [_elementwise, _transposed, _strided, _reshaped, _window, _product]


def _dot(overwrites: bool) -> Intrinsic:
    """A product of rows, of any size."""
    a, b = placeholder((40, 40), INT32, "a"), placeholder((40, 40), INT32, "b")
    k = reduce_axis(40, "k")
    pattern = compute((40, 40), lambda i, j: reduce_sum(a[i, k.var] * b[j, k.var], k), "dot")
    return Intrinsic(
        name=f"dot{'' if overwrites else '_add'}",
        pattern=pattern,
        emitter="dot",
        flexible=("i", "j", "k"),
        overwrites=overwrites,
    )


INTRINSICS = [
    _dot(overwrites=True),
    _dot(overwrites=False),
    *(
        transfer(f"{dtype}_{source}_to_{target}", dtype, source, target, 40, 40)
        for dtype in (INT8, INT32)
        for source, target in (
            ("global", "inp"),
            ("global", "shared"),
            ("global", "local"),
            ("acc", "global"),
            ("shared", "global"),
        )
    ),
]


def schedule_randomly(draw: st.DrawFn, tensor: Tensor, primitives: int = 12) -> Schedule:
    """Return a schedule after some random primitives; what is refused is left out."""
    schedule = Schedule(tensor, intrinsics=INTRINSICS)
    for _ in range(primitives):
        apply = draw(st.sampled_from(_PRIMITIVES))
        with suppress(ScheduleError):
            apply(draw, schedule)
    return schedule


def _stage(draw: st.DrawFn, schedule: Schedule) -> str:
    return draw(st.sampled_from([stage.name for stage in schedule.state]))


def _loop(draw: st.DrawFn, schedule: Schedule) -> tuple[str, str]:
    stage = _stage(draw, schedule)
    return stage, draw(st.sampled_from(schedule.loops(stage)))


def _split(draw: st.DrawFn, schedule: Schedule) -> None:
    stage, loop = _loop(draw, schedule)
    size = draw(st.integers(1, 5))
    if draw(st.booleans()):
        schedule.split(stage, loop, size)
    else:
        schedule.split(stage, loop, parts=size)


def _fuse(draw: st.DrawFn, schedule: Schedule) -> None:
    stage = _stage(draw, schedule)
    loops = schedule.loops(stage)
    at = draw(st.integers(0, len(loops) - 1))
    schedule.fuse(stage, loops[at], loops[(at + 1) % len(loops)])


def _reorder(draw: st.DrawFn, schedule: Schedule) -> None:
    stage = _stage(draw, schedule)
    schedule.reorder(stage, *draw(st.permutations(schedule.loops(stage))))


def _annotate(draw: st.DrawFn, schedule: Schedule) -> None:
    stage, loop = _loop(draw, schedule)
    kinds = [schedule.unroll, schedule.vectorize, schedule.parallel, schedule.virtual_thread]
    draw(st.sampled_from(kinds))(stage, loop)


def _bind(draw: st.DrawFn, schedule: Schedule) -> None:
    schedule.bind(*_loop(draw, schedule), draw(st.sampled_from(BOUND_KINDS)))


def _compute_at(draw: st.DrawFn, schedule: Schedule) -> None:
    schedule.compute_at(_stage(draw, schedule), *_loop(draw, schedule))


def _compute_inline(draw: st.DrawFn, schedule: Schedule) -> None:
    schedule.compute_inline(_stage(draw, schedule))


def _cache_read(draw: st.DrawFn, schedule: Schedule) -> None:
    tensor = draw(st.sampled_from(schedule.state.names))
    scope = draw(st.sampled_from(["inp", "shared", "local"]))
    readers = [stage.name for stage in schedule.state.readers(tensor)]
    if readers and draw(st.booleans()):
        readers = draw(st.lists(st.sampled_from(readers), min_size=1, unique=True))
    schedule.cache_read(tensor, scope, readers)


def _cache_write(draw: st.DrawFn, schedule: Schedule) -> None:
    schedule.cache_write(_stage(draw, schedule), draw(st.sampled_from(["acc", "shared"])))


def _set_scope(draw: st.DrawFn, schedule: Schedule) -> None:
    schedule.set_scope(_stage(draw, schedule), draw(st.sampled_from(["shared", "local"])))


def _reduce_factor(draw: st.DrawFn, schedule: Schedule) -> None:
    schedule.reduce_factor(*_loop(draw, schedule))


def _roll(draw: st.DrawFn, schedule: Schedule) -> None:
    schedule.roll(_stage(draw, schedule), *_loop(draw, schedule))


def _tensorize(draw: st.DrawFn, schedule: Schedule) -> None:
    """Try every intrinsic on some of the innermost loops of a copy or a reduction."""
    stages = [
        stage
        for stage in schedule.state
        if isinstance(stage.body, Load) or (stage.reduce is not None and len(stage.loops) > 2)
    ]
    if not stages:
        return
    stage = draw(st.sampled_from(stages))
    loop = stage.loops[-min(draw(st.integers(2, 3)), len(stage.loops))]
    for intrinsic in INTRINSICS:
        with suppress(ScheduleError):
            schedule.tensorize(stage.name, loop, intrinsic.name)


def _storage(draw: st.DrawFn, schedule: Schedule) -> None:
    stage, loop = _loop(draw, schedule)
    schedule.prefetch(draw(st.sampled_from(schedule.state.inputs)).name, draw(st.integers(1, 99)))
    schedule.double_buffer(stage)
    schedule.storage_align(stage, loop, draw(st.integers(1, 8)), draw(st.integers(0, 3)))


_PRIMITIVES: list[Callable[[st.DrawFn, Schedule], None]] = [
    _split,
    _split,
    _fuse,
    _reorder,
    _annotate,
    _bind,
    _compute_at,
    _compute_at,
    _compute_at,
    _compute_inline,
    _cache_read,
    _cache_write,
    _set_scope,
    _reduce_factor,
    _roll,
    _storage,
    _tensorize,
    _tensorize,
]


def random_inputs(tensor: Tensor, seed: int) -> dict[str, np.ndarray]:
    """Values of all placeholders that `tensor` depends on."""
    rng = np.random.default_rng(seed)
    values: dict[str, np.ndarray] = {}

    def visit(current: Tensor) -> None:
        for source in inputs_of(current):
            visit(source)
        if current.definition is None:
            low, high = current.dtype.limits
            array = rng.integers(low, high + 1, current.shape)
            values[current.name] = array.astype(current.dtype.numpy)

    visit(tensor)
    return values
