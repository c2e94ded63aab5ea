from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from golden import check_golden
from loop_nests import run

from tilewright.compiler.tensor.build import cast, equal, maximum, reduce_sum, select
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.lower import lower, lowering_stages
from tilewright.compiler.tensor.primitives import (
    Primitive,
    ScheduleError,
    trace_from_json,
    trace_to_json,
)
from tilewright.compiler.tensor.printing import format_nest
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopKind

INT32, FLOAT32 = ScalarType.INT32, ScalarType.FLOAT32
GOLDEN = Path(__file__).parent / "golden"


def stencil(size: int = 10) -> Tensor:
    """Three stages: a doubled input, sums of three neighbours, and their positive part."""
    x = placeholder((size,), INT32, "x")
    twice = compute((size,), lambda i: x[i] * 2, "twice")
    k = reduce_axis(3, "k")
    total = compute((size - 2,), lambda i: reduce_sum(twice[i + k.var], k), "total")
    return compute((size - 2,), lambda i: maximum(total[i], 0), "y")


def matmul(rows: int = 6, columns: int = 8, inner: int = 10) -> Tensor:
    a, b = placeholder((rows, inner), FLOAT32, "A"), placeholder((inner, columns), FLOAT32, "B")
    k = reduce_axis(inner, "k")
    return compute((rows, columns), lambda i, j: reduce_sum(a[i, k.var] * b[k.var, j], k), "C")


Use = Callable[[Schedule], object]


def after(*uses: Use) -> Use:
    def all_uses(schedule: Schedule) -> None:
        for use in uses:
            use(schedule)

    return all_uses


REFUSALS: list[tuple[str, Use, str]] = [
    (
        "unknown stage",
        lambda s: s.unroll("q", "i"),
        "the schedule has no stage 'q', its stages are twice, total, y",
    ),
    (
        "unknown loop",
        lambda s: s.split("y", "q", 2),
        "split of stage 'y': 'q' is none of its loops, which are i",
    ),
    ("factor", lambda s: s.split("y", "i", 0), "split of stage 'y': axis 'i' cannot be split by 0"),
    (
        "factor and parts",
        lambda s: s.split("y", "i", 2, parts=2),
        "split of stage 'y': axis 'i' takes either a factor or parts",
    ),
    (
        "name",
        lambda s: s.split("y", "i", 2, names=("i", "ii")),
        "split of stage 'y': there is an axis 'i' already",
    ),
    (
        "split again",
        after(lambda s: s.split("y", "i", 2), lambda s: s.split("y", "i", 2)),
        "split of stage 'y': 'i' is none of its loops, which are i.outer, i.inner",
    ),
    (
        "annotated",
        after(lambda s: s.parallel("y", "i"), lambda s: s.split("y", "i", 2)),
        "split of stage 'y': axis 'i' is parallel already",
    ),
    (
        "occupied",
        after(lambda s: s.compute_at("total", "y", "i"), lambda s: s.split("y", "i", 2)),
        "split of stage 'y': stage 'total' is computed in axis 'i'",
    ),
    ("tile", lambda s: s.tile("y", ["i"], [2, 3]), "tile of stage 'y': 1 axes and 2 factors"),
    (
        "fuse apart",
        lambda s: s.fuse("total", "k", "i"),
        "fuse of stage 'total': axis 'i' is not directly inside axis 'k'",
    ),
    (
        "fuse kinds",
        lambda s: s.fuse("total", "i", "k"),
        "fuse of stage 'total': only one of axes 'i' and 'k' is a reduce axis",
    ),
    (
        "reorder twice",
        lambda s: s.reorder("total", "i", "i"),
        "reorder of stage 'total': axis 'i' is named twice",
    ),
    (
        "parallel reduction",
        lambda s: s.parallel("total", "k"),
        "parallel of stage 'total': axis 'k' is a reduce axis, its iterations depend on each other",
    ),
    (
        "annotated twice",
        after(lambda s: s.unroll("y", "i"), lambda s: s.vectorize("y", "i")),
        "vectorize of stage 'y': axis 'i' is unroll already",
    ),
    (
        "bind",
        lambda s: s.bind("y", "i", LoopKind.UNROLL),
        "bind of stage 'y': unroll is neither a block nor a thread axis",
    ),
    (
        "bound twice",
        after(
            lambda s: s.split("y", "i", 2),
            lambda s: s.bind("y", "i.outer", LoopKind.THREAD_X),
            lambda s: s.bind("y", "i.inner", LoopKind.THREAD_X),
        ),
        "thread.x of stage 'y': another axis is bound to thread.x already",
    ),
    (
        "vectorize around",
        after(lambda s: s.compute_at("total", "y", "i"), lambda s: s.vectorize("y", "i")),
        "vectorize of stage 'y': stage 'total' is computed in axis 'i'",
    ),
    (
        "output moves",
        lambda s: s.compute_at("y", "total", "i"),
        "compute_at of stage 'y': it is an output, all of it is needed",
    ),
    (
        "no loop of consumer",
        lambda s: s.compute_at("total", "y", "k"),
        "compute_at of stage 'total': 'k' is none of the loops of stage 'y', which are i",
    ),
    (
        "not within",
        lambda s: s.compute_at("twice", "y", "i"),
        "compute_at of stage 'twice': stage 'total' reads 'twice' outside of axis 'i' of stage 'y'",
    ),
    (
        "in itself",
        lambda s: s.compute_at("total", "total", "i"),
        "compute_at of stage 'total': stage 'total' is computed within it",
    ),
    (
        "in a vector",
        after(lambda s: s.vectorize("y", "i"), lambda s: s.compute_at("total", "y", "i")),
        "compute_at of stage 'total': axis 'i' of 'y' is vectorized",
    ),
    (
        "reorder away",
        after(
            lambda s: s.split("y", "i", 2),
            lambda s: s.compute_at("total", "y", "i.outer"),
            lambda s: s.compute_at("twice", "y", "i.outer"),
            lambda s: s.compute_at("total", "y", "i.inner"),
            lambda s: s.compute_at("twice", "y", "i.inner"),
            lambda s: s.compute_at("total", "y", "i.outer"),
        ),
        (
            "compute_at of stage 'total': "
            "stage 'total' reads 'twice' outside of axis 'i.inner' of stage 'y'"
        ),
    ),
    (
        "inline output",
        lambda s: s.compute_inline("y"),
        "compute_inline of stage 'y': it is an output, all of it is needed",
    ),
    (
        "inline reduction",
        lambda s: s.compute_inline("total"),
        "compute_inline of stage 'total': it is a reduction, which is no expression of one element",
    ),
    (
        "inline host",
        after(
            lambda s: s.cache_read("x", "inp"),
            lambda s: s.compute_at("x.inp", "twice", "i"),
            lambda s: s.compute_inline("twice"),
        ),
        "compute_inline of stage 'twice': stage 'x.inp' is computed in axis 'i' of it",
    ),
    (
        "no reader",
        lambda s: s.cache_read("x", "inp", ["y"]),
        "cache_read of tensor 'x': stage 'y' does not read it",
    ),
    ("nobody", lambda s: s.cache_read("y", "inp"), "cache_read of tensor 'y': nobody reads it"),
    (
        "same name",
        after(lambda s: s.cache_read("x", "inp"), lambda s: s.cache_read("x", "inp")),
        "cache_read of tensor 'x': there is a tensor 'x.inp' already",
    ),
    (
        "late cache",
        after(lambda s: s.split("y", "i", 2), lambda s: s.cache_write("y", "acc")),
        "cache_write of stage 'y': its loops have been changed already",
    ),
    ("output scope", lambda s: s.set_scope("y", "acc"), "set_scope of stage 'y': it is an output"),
    (
        "unknown intrinsic",
        lambda s: s.tensorize("y", "i", "gemm"),
        "tensorize of stage 'y': intrinsic 'gemm' is not declared, known are none",
    ),
    (
        "no reduction",
        lambda s: s.reduce_factor("y", "i"),
        "reduce_factor of stage 'y': axis 'i' is no reduce axis",
    ),
    (
        "late factor",
        after(lambda s: s.split("total", "i", 2), lambda s: s.reduce_factor("total", "k")),
        "reduce_factor of stage 'total': loops over axes of its result have been changed already",
    ),
    (
        "annotated factor",
        after(lambda s: s.unroll("total", "k"), lambda s: s.reduce_factor("total", "k")),
        (
            "reduce_factor of stage 'total': "
            "its loops carry annotations, intrinsics or other stages already"
        ),
    ),
    (
        "stride",
        lambda s: s.storage_align("total", "i", 4),
        "storage_align of stage 'total': 'i' is none of the axes with a stride, none",
    ),
    ("two buffers", lambda s: s.double_buffer("y"), "double_buffer of stage 'y': it is an output"),
    (
        "fetched result",
        lambda s: s.prefetch("total", 8),
        "prefetch of tensor 'total': it is none of the inputs, which are x",
    ),
    ("behind", lambda s: s.prefetch("x", 0), "prefetch of tensor 'x': 0 elements are not ahead"),
]


@pytest.mark.parametrize(
    ("use", "text"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS]
)
def test_refusals_name_primitive_stage_and_reason(use: Use, text: str) -> None:
    schedule = Schedule(stencil())
    with pytest.raises(ScheduleError) as caught:
        use(schedule)
    assert str(caught.value) == text


def test_a_refusal_leaves_the_schedule_as_it_was() -> None:
    schedule = Schedule(stencil())
    schedule.split("y", "i", 3)
    before = schedule.state
    with pytest.raises(ScheduleError):
        schedule.split("y", "i.inner", 0)
    assert schedule.state is before
    assert len(schedule.trace) == 1


def test_schedules_need_distinct_computed_tensors() -> None:
    x = placeholder((3,), INT32, "x")
    with pytest.raises(ScheduleError, match=r"^output 'x' is no computation$"):
        Schedule(x)
    y = compute((3,), lambda i: x[i] + 1, "x")
    with pytest.raises(ScheduleError, match=r"^two tensors are called 'x'$"):
        Schedule(y)


def test_threads_that_do_not_suit_are_refused_on_lowering() -> None:
    schedule = Schedule(stencil())
    schedule.split("y", "i", 4)
    schedule.bind("y", "i.inner", LoopKind.THREAD_X)
    schedule.cache_read("total", "local")
    schedule.compute_at("total.local", "y", "i.inner")
    schedule.compute_at("total", "y", "i.outer")
    schedule.bind("total.local", "i", LoopKind.THREAD_X)
    with pytest.raises(ScheduleError) as caught:
        lower(schedule)
    assert str(caught.value) == (
        "stage 'total.local' binds 'i' to thread.x within a loop bound to it, but "
        "scope 'local' is not shared among its iterations"
    )


def test_a_malformed_trace_is_refused() -> None:
    for text in ("{", "[3]", '[{"primitive": "Bend"}]', '[{"primitive": "Split", "stage": "y"}]'):
        with pytest.raises(ScheduleError, match=r"^the trace of a schedule is malformed: "):
            trace_from_json(text)


def gpu_matmul() -> Schedule:
    """Tiles in shared memory that the threads of a block fill together."""
    schedule = Schedule(matmul(8, 8, 8))
    local = schedule.cache_write("C", "local")
    shared_a = schedule.cache_read("A", "shared", [local])
    shared_b = schedule.cache_read("B", "shared", [local])
    schedule.tile("C", ["i", "j"], [4, 4])
    schedule.bind("C", "i.outer", LoopKind.BLOCK_Y)
    schedule.bind("C", "j.outer", LoopKind.BLOCK_X)
    schedule.bind("C", "i.inner", LoopKind.THREAD_Y)
    schedule.bind("C", "j.inner", LoopKind.THREAD_X)
    schedule.compute_at(local, "C", "j.inner")
    schedule.split(local, "k", 2)
    schedule.reorder(local, "k.outer", "k.inner", "i", "j")
    for copy in (shared_a, shared_b):
        schedule.compute_at(copy, local, "k.outer")
        schedule.split(copy, "i0", parts=4)
        schedule.split(copy, "i1", parts=4)
        schedule.bind(copy, "i0.outer", LoopKind.THREAD_Y)
        schedule.bind(copy, "i1.outer", LoopKind.THREAD_X)
    return schedule


def cpu_matmul() -> Schedule:
    """Uneven tiles, vectors, cores, and partial sums."""
    schedule = Schedule(matmul())
    schedule.split("C", "k", 4)
    partial = schedule.reduce_factor("C", "k.inner")
    schedule.reorder(partial, "i", "j", "k.outer", "k.inner")
    schedule.vectorize(partial, "k.inner")
    schedule.tile("C", ["i", "j"], [4, 8])
    fused = schedule.fuse("C", "i.outer", "j.outer")
    schedule.parallel("C", fused)
    schedule.compute_at(partial, "C", "j.inner")
    schedule.unroll("C", "k.inner")
    return schedule


def sliding_window() -> Schedule:
    """Each tile computes the part of the stages before it that it reads, borders included."""
    x = placeholder((4, 11), INT32, "x")
    padded = compute(
        (4, 13),
        lambda r, i: select((1 <= i) & (i < 12), x[r, i - 1], 0),
        "padded",
    )
    k = reduce_axis(3, "k")
    y = compute((4, 11), lambda r, i: reduce_sum(padded[r, i + k.var], k), "y")
    schedule = Schedule(y)
    schedule.split("y", "i", 4)
    schedule.compute_at("padded", "y", "i.outer")
    schedule.double_buffer("padded")
    schedule.virtual_thread("y", "r")
    return schedule


SCHEDULES = {"gpu": gpu_matmul, "cpu": cpu_matmul, "window": sliding_window}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_pass_prints_as_recorded(name: str, update_golden: bool) -> None:
    schedule = SCHEDULES[name]()
    parts = [str(schedule)]
    parts += [f"== {name}\n{format_nest(nest)}" for name, nest in lowering_stages(schedule)]
    check_golden(GOLDEN / f"{name}.txt", "\n\n".join(parts), update=update_golden)


@pytest.mark.parametrize("build", [gpu_matmul, cpu_matmul])
def test_float_schedules_compute_the_product(
    rng: np.random.Generator, build: Callable[[], Schedule]
) -> None:
    schedule = build()
    a, b = (tensor.shape for tensor in schedule.state.inputs)
    inputs = {
        "A": rng.standard_normal(a).astype(np.float32),
        "B": rng.standard_normal(b).astype(np.float32),
    }
    expected = inputs["A"].astype(np.float64) @ inputs["B"]
    np.testing.assert_allclose(run(schedule, inputs), expected, atol=1e-5)


def test_a_window_schedule_computes_sums() -> None:
    values = np.arange(44, dtype=np.int32).reshape(4, 11)
    padded = np.pad(values, ((0, 0), (1, 1)))
    expected = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    np.testing.assert_array_equal(run(sliding_window(), {"x": values}), expected)


def test_storage_is_padded_to_the_stride() -> None:
    x = placeholder((3, 5), INT32, "x")
    y = compute((3, 5), lambda i, j: x[i, j] + 1, "y")
    schedule = Schedule(y)
    schedule.cache_read("x", "inp")
    schedule.storage_align("x.inp", "i0", 4, 1)
    assert "allocate x.inp: int32[3, 5] in inp" in format_nest(lower(schedule))
    schedule.storage_align("x.inp", "i0", 8)
    assert "allocate x.inp: int32[3, 8] in inp" in format_nest(lower(schedule))


def test_a_stride_that_no_row_has_is_refused() -> None:
    """Of an outer axis, strides are multiples of the rows further in: here of 4."""
    x = placeholder((2, 3, 4), INT32, "x")
    y = compute((2, 3, 4), lambda i, j, k: x[i, j, k] + 1, "y")
    schedule = Schedule(y)
    schedule.cache_read("x", "inp")
    schedule.storage_align("x.inp", "i0", 8, 4)
    assert "allocate x.inp: int32[2, 3, 4] in inp" in format_nest(lower(schedule))
    schedule.storage_align("x.inp", "i0", 8, 3)
    with pytest.raises(ScheduleError) as caught:
        lower(schedule)
    message = "storage_align of stage 'x.inp': no multiple of 4 is 3 modulo 8"
    assert str(caught.value) == message


def test_traces_cover_every_primitive() -> None:
    schedule = gpu_matmul()
    schedule.storage_align("A.shared", "i0", 4)
    schedule.double_buffer("A.shared")
    schedule.set_scope("A.shared", "shared")
    other = cpu_matmul()
    last = Schedule(stencil())
    last.compute_inline("twice")
    last.prefetch("x", 16)
    traces = (schedule.trace, other.trace, last.trace)
    for trace in traces:
        assert trace_from_json(trace_to_json(trace)) == trace
    used = {type(primitive) for trace in traces for primitive in trace}
    missing = {kind.__name__ for kind in Primitive.__args__} - {kind.__name__ for kind in used}
    assert missing == {"Roll", "Tensorize"}


def test_inlining_joins_conditions() -> None:
    x = placeholder((6,), INT32, "x")
    first = compute((6,), lambda i: select(equal(i % 2, 0), x[i], -x[i]), "first")
    y = compute((3,), lambda i: first[i * 2 + 1] + cast(i, INT32), "y")
    schedule = Schedule(y)
    schedule.compute_inline("first")
    assert format_nest(lower(schedule)).splitlines()[2:] == [
        "for i in 0..3:",
        "    y[i] = 0 - x[i * 2 + 1] + int32(i)",
    ]


@pytest.mark.parametrize("make", ["cache_write", "reduce_factor"])
def test_a_stage_made_from_another_runs_where_that_one_ran(make: str) -> None:
    schedule = Schedule(stencil())
    schedule.split("y", "i", 4)
    schedule.compute_at("total", "y", "i.outer")
    schedule.compute_at("twice", "y", "i.outer")
    if make == "cache_write":
        schedule.cache_write("total", "acc")
    else:
        schedule.reduce_factor("total", "k")
    values = np.arange(-5, 5, dtype=np.int32)
    expected = np.maximum(2 * (values[:-2] + values[1:-1] + values[2:]), 0)
    np.testing.assert_array_equal(run(schedule, {"x": values}), expected)


def test_threads_pass_through_nested_guards() -> None:
    a, b = placeholder((4, 3), INT32, "A"), placeholder((3, 3), INT32, "B")
    k = reduce_axis(3, "k")
    products = compute((3, 4), lambda i, j: reduce_sum(b[i, k.var] * a[j, k.var], k), "products")
    flat = compute((4, 3), lambda i, j: products[(i * 3 + j) // 4, (i * 3 + j) % 4], "flat")
    schedule = Schedule(flat)
    schedule.bind("flat", "i", LoopKind.THREAD_X)
    schedule.compute_at("products", "flat", "i")
    schedule.fuse("products", *schedule.split("products", "j", 3))
    left, right = np.arange(12, dtype=np.int32).reshape(4, 3), np.eye(3, dtype=np.int32)
    result = run(schedule, {"A": left, "B": right})
    np.testing.assert_array_equal(result, (right @ left.T).reshape(4, 3))
