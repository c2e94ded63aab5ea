"""Work on the lanes of the vector engine: its tensor expression, and its schedules."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from typing_extensions import assert_never

from tilewright.compiler.lowering.declarations import (
    LIMITS,
    Plane,
    activations,
    bordered,
    position,
    scaled,
    tile_output,
)
from tilewright.compiler.lowering.kernels import Window
from tilewright.compiler.lowering.lane_tiling import LaneTiling
from tilewright.compiler.tensor.accelerator import (
    INDEX,
    INT8,
    INT16,
    INT32,
    clipped,
    constant_load,
    instruction_set,
    looked_up,
    scope_of,
)
from tilewright.compiler.tensor.build import (
    cast,
    constant,
    equal,
    maximum,
    minimum,
    parameter,
    reduce_max,
    reduce_min,
    reduce_sum,
    select,
)
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Axis, Expr, Tensor
from tilewright.compiler.tensor.realisation import RUN_SCOPE
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import VectorOperation
from tilewright.isa.memories import LUT_LENGTH, Memory

_VEC, _OUT, _ACC = map(scope_of, (Memory.VEC, Memory.OUT, Memory.ACC))
#: The sources and their tiles.
INPUTS, _VECS = ("x", "x1"), ("vec", "vec1")


class Sharing(Enum):
    """Whether a kernel has certain parameters, and for which channels."""

    NONE = "none"
    ALL = "the same for all channels"
    CHANNELS = "by channel"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOperation:
    """Everything about work on the lanes but its numbers, which are inputs and scalars."""

    sources: tuple[Plane, ...]
    output: Plane
    window: Window
    operation: VectorOperation
    coefficients: Sharing
    scales: Sharing
    #: Numbers of covered positions whose scale is not the first one.
    scale_counts: tuple[int, ...]
    lookup: bool
    #: Rows and columns of equal results that each computed one becomes.
    repeat: tuple[int, int]

    @property
    def has_run(self) -> bool:
        """Whether the positions of a window are combined."""
        return self.window.taps > 1 or (
            self.operation is VectorOperation.MAC and len(self.sources) == 1
        )

    @property
    def walks_window(self) -> bool:
        """Whether loops walk over the window: one output position and no coefficients."""
        single = self.output.rows == self.output.columns == 1 and len(self.sources) == 1
        return single and self.operation is not VectorOperation.MAC


def lane_operation(shape: LaneOperation, config: AcceleratorConfig) -> Tensor:
    """Declare work on the lanes: stages ``vec``, with a window ``run``, and ``y``.

    Inputs are ``x`` (and ``x1``), the coefficients ``coef[block, part, ky, kx, lane]`` or without
    block and part, the parameters ``prm[block, part, lane, field]`` or ``prm[scale, lane, field]``,
    and ``table``. Scalars are the padding value and the limits of the result. Where results are
    repeated, rows and columns of ``y`` are given by two indices each.
    """
    lanes, size = config.block_out, (shape.output.rows, shape.output.columns)
    vecs = [
        bordered(
            activations(INPUTS[number], plane, config, lanes),
            shape.window,
            size,
            _VECS[number],
        )
        for number, plane in enumerate(shape.sources)
    ]
    if len(vecs) == 2:
        coef = placeholder((2, lanes), INT16, "coef")

        def value(*at: Expr) -> Expr:
            factors = tuple(cast(coef[number, at[-1]], INT32) for number in (0, 1))
            return cast(vecs[0][at], INT32) * factors[0] + cast(vecs[1][at], INT32) * factors[1]

    elif shape.has_run:
        run = _run(vecs[0], shape, config)

        def value(*at: Expr) -> Expr:
            return run[at]

    else:
        (vec,), stride = vecs, shape.window.stride

        def value(*at: Expr) -> Expr:
            group, block, row, column, *rest = at
            return cast(vec.at(group, block, row * stride[0], column * stride[1], *rest), INT32)

    return _result(value, shape, config)


def _run(vec: Tensor, shape: LaneOperation, config: AcceleratorConfig) -> Tensor:
    lanes, window = config.block_out, shape.window
    ky, kx = (reduce_axis(window.kernel[axis], name) for axis, name in enumerate(("ky", "kx")))
    coef: Tensor | None = None
    match shape.coefficients:
        case Sharing.NONE:
            pass
        case Sharing.ALL:
            coef = placeholder((*window.kernel, lanes), INT16, "coef")
        case Sharing.CHANNELS:
            parts = config.layout_block // lanes
            coef = placeholder((shape.output.blocks, parts, *window.kernel, lanes), INT16, "coef")
        case _:
            assert_never(shape.coefficients)

    def element(
        group: Expr, block: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        y, x = position(window, (row, column), (ky.var, kx.var))
        value = cast(vec[group, block, y, x, part, image, lane], INT32)
        if coef is not None:
            own = (block, part) if shape.coefficients is Sharing.CHANNELS else ()
            value = value * cast(coef.at(*own, ky.var, kx.var, lane), INT32)
        return _combined(shape.operation, value, ky, kx)

    return compute(shape.output.shape(config, lanes), element, "run")


def _combined(operation: VectorOperation, value: Expr, *axes: Axis) -> Expr:
    match operation:
        case VectorOperation.MAC | VectorOperation.SUM:
            return reduce_sum(value, *axes)
        case VectorOperation.MAX:
            return reduce_max(value, *axes)
        case VectorOperation.MIN:
            return reduce_min(value, *axes)
        case _:
            assert_never(operation)


def _result(value: Callable[..., Expr], shape: LaneOperation, config: AcceleratorConfig) -> Tensor:
    lanes = config.block_out
    parts, count = config.layout_block // lanes, 1 + len(shape.scale_counts)
    prm: Tensor | None = None
    match shape.scales:
        case Sharing.NONE:
            pass
        case Sharing.ALL:
            prm = placeholder((count, lanes, 3), INT32, "prm")
        case Sharing.CHANNELS:
            prm = placeholder((shape.output.blocks, parts, lanes, 3), INT32, "prm")
        case _:
            assert_never(shape.scales)
    table = placeholder((LUT_LENGTH,), INT8, "table") if shape.lookup else None

    def element(
        group: Expr, block: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        total = value(group, block, row, column, part, image, lane)
        if prm is None:
            low, high = (parameter(name, INT32) for name in LIMITS[1:])
            result = clipped(total, low, high)
        else:
            own = (
                (block, part) if shape.scales is Sharing.CHANNELS else (_scale(shape, row, column),)
            )
            result = scaled(total, prm, (*own, lane))
        return result if table is None else looked_up(table, result)

    plain = shape.output.shape(config, lanes)
    if shape.repeat == (1, 1):
        return compute(plain, element, "y")

    def repeated(
        group: Expr,
        block: Expr,
        row: Expr,
        down: Expr,
        column: Expr,
        across: Expr,
        part: Expr,
        image: Expr,
        lane: Expr,
    ) -> Expr:
        return element(group, block, row, column, part, image, lane)

    rows, columns = shape.repeat
    return compute((*plain[:3], rows, plain[3], columns, *plain[4:]), repeated, "y")


def _scale(shape: LaneOperation, row: Expr, column: Expr) -> Expr:
    """Return the number of the scale by how many positions of the window lie in the image."""
    number: Expr = constant(0, INDEX)
    (source, *_), window = shape.sources, shape.window
    covered = [
        maximum(minimum(begin + window.kernel[axis], size) - maximum(begin, 0), 0)
        for axis, (at, size) in enumerate(((row, source.rows), (column, source.columns)))
        for begin in (at * window.stride[axis] - window.before[axis],)
    ]
    for index, count in enumerate(shape.scale_counts, 1):
        number = select(equal(covered[0] * covered[1], count), index, number)
    return number


def schedule_lanes(shape: LaneOperation, tiling: LaneTiling, config: AcceleratorConfig) -> Schedule:
    """Arrange work on the lanes: a tile is loaded, combined and finished in one go, and stored."""
    s = Schedule(lane_operation(shape, config), intrinsics=instruction_set(config))
    out = s.cache_write("y", _OUT, name="out")
    outer = ("row.outer", "column.outer", "block.outer")
    repeats = () if shape.repeat == (1, 1) else ("down", "across")
    tile = tile_output(s, (tiling.blocks, tiling.rows, tiling.columns), outer, repeats)
    s.compute_at(out, "y", tile)
    # One instruction goes over blocks, rows and columns, of one part each.
    s.reorder(out, *repeats, "part", "block", "row", "column", "image", "lane")
    if shape.has_run:
        _schedule_run(s, shape)
        s.compute_at("run", out, "column")
    for vec in _VECS[: len(shape.sources)]:
        s.set_scope(vec, _VEC)
        s.compute_at(vec, "y", tile)
    loads = _load_parameters(s, shape, tile, config)
    for vec in _VECS[: len(shape.sources)]:
        s.tensorize(vec, "block", "load_vec")
    for copy, intrinsic in loads:
        s.tensorize(copy, "i0", intrinsic)
    if shape.has_run:
        s.tensorize("run", "image", _combination(shape, _VEC))
    s.tensorize(out, "image", _finish(shape))
    s.tensorize("y", "block.inner", "store_interleaved" if repeats else "store")
    return s


def schedule_reduction(shape: LaneOperation, rows: int, config: AcceleratorConfig) -> Schedule:
    """Arrange the reduction of a large image: `rows` rows at a time to `acc`, and those at last."""
    s = Schedule(lane_operation(shape, config), intrinsics=instruction_set(config))
    s.split("run", "ky", rows)
    partial = s.reduce_factor("run", "ky.outer", name="partial")
    own = s.cache_write(partial, RUN_SCOPE, name="partial.run")
    s.set_scope(partial, _ACC)
    out = s.cache_write("y", _OUT, name="out")
    tile = tile_output(s, (1, 1, 1), ("row.outer", "column.outer", "block.outer"))
    s.compute_at(out, "y", tile)
    s.compute_at("run", out, "part")
    s.compute_at(partial, "y", tile)
    s.reorder(partial, "ky.outer", "part", "group", "block", "row", "column", "image", "lane")
    s.compute_at(own, partial, "column")
    s.reorder(own, "ky.inner", "kx", "image", "lane")
    _schedule_run(s, shape)
    s.set_scope("vec", _VEC)
    s.compute_at("vec", partial, "ky.outer")
    loads = _load_parameters(s, shape, tile, config)
    s.tensorize("vec", "block", "load_vec")
    for copy, intrinsic in loads:
        s.tensorize(copy, "i0", intrinsic)
    s.tensorize(own, "image", _combination(shape, _VEC))
    s.tensorize(partial, "image", "keep_run")
    s.tensorize("run", "image", _combination(shape, _ACC))
    s.tensorize(out, "image", _finish(shape))
    s.tensorize("y", "block.inner", "store")
    return s


def _combination(shape: LaneOperation, scope: str) -> str:
    return f"{shape.operation.name.lower()}_{scope}"


def _finish(shape: LaneOperation) -> str:
    names = {(True, True): "requantise_look_up", (True, False): "requantise"}
    names |= {(False, True): "look_up", (False, False): "clip"}
    source = "vec_vec" if len(shape.sources) == 2 else "run" if shape.has_run else "vec"
    return f"{names[shape.scales is not Sharing.NONE, shape.lookup]}_{source}"


def _schedule_run(s: Schedule, shape: LaneOperation) -> None:
    s.set_scope("run", RUN_SCOPE)
    taps = tuple(loop for loop in s.loops("run") if loop.startswith("k"))
    s.reorder("run", *taps, "image", "lane")
    if not shape.walks_window:
        for tap in taps:
            s.unroll("run", tap)


def _load_parameters(
    s: Schedule, shape: LaneOperation, tile: str, config: AcceleratorConfig
) -> list[tuple[str, str]]:
    """Copy parameters to their scratchpads; return the copies and the loads that make them.

    What is the same in all tiles is loaded once, by channel only where that is not too much.
    """
    entries = shape.output.blocks * (config.layout_block // config.block_out)
    taps = 1 if len(shape.sources) == 2 else 2
    loads: list[tuple[str, str]] = []
    for tensor, memory, sharing, axes, whole in (
        ("prm", Memory.PRM, shape.scales, 0, entries <= config.prm_entries // 2),
        (
            "coef",
            Memory.COEF,
            shape.coefficients,
            taps,
            entries * shape.window.taps <= config.coef_entries // 2,
        ),
    ):
        match sharing:
            case Sharing.NONE:
                continue
            case Sharing.ALL:
                own = 1 if memory is Memory.PRM else 0
            case Sharing.CHANNELS:
                own = 2
            case _:
                assert_never(sharing)
        copy = s.cache_read(tensor, scope_of(memory))
        if sharing is Sharing.CHANNELS and not whole:
            s.compute_at(copy, "y", tile)
        loads.append((copy, constant_load(memory, own + axes)))
    if shape.lookup:
        loads.append((s.cache_read("table", scope_of(Memory.LUT)), constant_load(Memory.LUT, 0)))
    return loads
