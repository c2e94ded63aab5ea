"""Reductions that one loop carries: a softmax and its mean in one pass over the terms."""

import numpy as np
import pytest

from tilewright.compiler.tensor import (
    Schedule,
    ScheduleError,
    Tensor,
    compute,
    format_nest,
    interpret,
    lower,
    maximum,
    placeholder,
    reduce_axis,
    reduce_sum,
    trace_from_json,
    trace_to_json,
)
from tilewright.compiler.tensor.build import call, reduce_max
from tilewright.compiler.tensor.expressions import Expr
from tilewright.compiler.tensor.operations import Function
from tilewright.compiler.tensor.scalar_types import ScalarType

FLOAT = ScalarType.FLOAT32
ROWS, TERMS, COLUMNS = 5, 10, 3


def softmax_mean() -> Tensor:
    """``softmax(S) @ V`` with stages peak, weight, total, sums and out."""
    s = placeholder((ROWS, TERMS), FLOAT, "S")
    v = placeholder((TERMS, COLUMNS), FLOAT, "V")
    k = reduce_axis(TERMS, "k")
    peak = compute((ROWS,), lambda i: reduce_max(s[i, k.var], k), "peak")

    def weight(i: Expr, j: Expr) -> Expr:
        return call(Function.EXP, s[i, j] - maximum(peak[i], -3e38))

    weights = compute((ROWS, TERMS), weight, "weight")
    total = compute((ROWS,), lambda i: reduce_sum(weights[i, k.var], k), "total")

    def share(i: Expr, d: Expr) -> Expr:
        return reduce_sum(weights[i, k.var] * v[k.var, d], k)

    sums = compute((ROWS, COLUMNS), share, "sums")
    return compute((ROWS, COLUMNS), lambda i, d: sums[i, d] / total[i], "out")


def split_reductions(s: Schedule, size: int) -> None:
    for stage in ("sums", "total", "peak"):
        s.split(stage, "k", size, names=("block", "rest"))
        s.reorder(stage, "block", *(axis.name for axis in s.state.stage(stage).axes), "rest")


def in_one_pass(size: int, rows: int) -> Schedule:
    s = Schedule(softmax_mean())
    s.split("out", "i", rows)
    s.compute_at("sums", "out", "i.outer")
    split_reductions(s, size)
    assert s.roll("total", "sums", "block") is None
    s.compute_at("weight", "sums", "block")
    assert s.roll("peak", "sums", "block") == ("peak.before", "peak.repair")
    return s


def values(scale: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    return {
        "S": (rng.standard_normal((ROWS, TERMS)) * scale).astype(np.float32),
        "V": rng.standard_normal((TERMS, COLUMNS)).astype(np.float32),
    }


def expected(inputs: dict[str, np.ndarray]) -> np.ndarray:
    scores = inputs["S"].astype(np.float64)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: np.ndarray = shares / shares.sum(axis=1, keepdims=True) @ inputs["V"]
    return result


@pytest.mark.parametrize("size", [1, 3, 4, 10])
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_one_pass_is_the_softmax(size: int, rows: int, scale: float) -> None:
    inputs = values(scale)
    result = interpret(lower(in_one_pass(size, rows)), inputs)["out"]
    np.testing.assert_allclose(result, expected(inputs), rtol=1e-5, atol=1e-6)


def test_terms_that_are_masked_at_first_are_no_trouble() -> None:
    inputs = values(1.0)
    inputs["S"][:, :7] = -np.inf
    inputs["S"][3, 0] = 2.0
    result = interpret(lower(in_one_pass(3, 2)), inputs)["out"]
    np.testing.assert_allclose(result, expected(inputs), rtol=1e-5, atol=1e-6)


def test_the_loop_says_what_it_does() -> None:
    lines = [line.strip() for line in format_nest(lower(in_one_pass(5, 5))).splitlines()]
    assert lines.count("for sums.block in 0..2:") == 1
    repair = "exp(max(peak.before[peak.repair.i], -3e+38) - max(peak[peak.repair.i], -3e+38))"
    assert any(line.replace("-3.0000000054977558e+38", "-3e+38").endswith(repair) for line in lines)
    order = [
        "peak[peak.i] = -inf",
        "for sums.block in 0..2:",
        "peak.before[peak.before.i] = peak[peak.before.i]",
        "total[total.i] = total[total.i] * peak.repair[total.i]",
        "sums[sums.i, sums.d] = sums[sums.i, sums.d] * peak.repair[sums.i]",
    ]
    assert [line for line in lines if line in order] == order


def test_a_trace_holds_it() -> None:
    s = in_one_pass(4, 2)
    again = Schedule(softmax_mean())
    again.apply(*trace_from_json(trace_to_json(s.trace)))
    assert format_nest(lower(again)) == format_nest(lower(s))


def test_a_repair_may_be_inlined_and_a_copy_may_be_read() -> None:
    s = in_one_pass(4, 2)
    s.compute_inline("peak.repair")
    s.compute_at(s.cache_read("V", "shared"), "sums", "block")
    inputs = values(3.0)
    result = interpret(lower(s), inputs)["out"]
    np.testing.assert_allclose(result, expected(inputs), rtol=1e-5, atol=1e-6)


def test_what_is_rolled_stays_where_it_is() -> None:
    s = in_one_pass(4, 2)
    message = "it is rolled, or other reductions are rolled into it, already"
    for refused in (
        lambda: s.reorder("sums", "i", "block"),
        lambda: s.reorder("total", "i", "block"),
        lambda: s.cache_write("sums", "local"),
        lambda: s.reduce_factor("total", "rest"),
    ):
        with pytest.raises(ScheduleError, match=message):
            refused()
    with pytest.raises(ScheduleError, match="its reduction is carried on by another stage"):
        s.compute_at("total", "out", "i.outer")
    with pytest.raises(ScheduleError, match="axis 'block' is carried on by another stage"):
        s.unroll("total", "block")
    with pytest.raises(ScheduleError, match="axis 'block' is carried on by another stage"):
        s.split("total", "block", 2)
    with pytest.raises(ScheduleError, match="is computed in axis 'block'"):
        s.split("sums", "block", 2)


def test_what_cannot_be_rolled_says_why() -> None:
    s = Schedule(softmax_mean())
    with pytest.raises(ScheduleError, match="the outermost loop of stage 'total' must be a reduce"):
        s.roll("total", "sums", "k")
    split_reductions(s, 4)
    with pytest.raises(ScheduleError, match="stage 'weight' reads 'peak' outside of axis 'block'"):
        s.roll("peak", "sums", "block")
    with pytest.raises(ScheduleError, match="the outermost loop of stage 'out' must be a reduce"):
        s.roll("out", "sums", "block")
    other = Schedule(softmax_mean())
    split_reductions(other, 4)
    other.split("total", "block", 2)
    with pytest.raises(
        ScheduleError, match=r"axis 'block\.outer' has 2 iterations, axis 'block' of"
    ):
        other.roll("total", "sums", "block")


def test_a_stage_does_not_roll_itself() -> None:
    x = placeholder((4, 5), ScalarType.FLOAT32, "x")
    k = reduce_axis(5, "k")
    total = compute((4,), lambda i: reduce_sum(x[i, k.var], k), "total")
    s = Schedule(compute((4,), lambda i: total[i] * 2.0, "out"))
    s.reorder("total", "k", "i")
    with pytest.raises(ScheduleError, match="a stage does not carry itself on"):
        s.roll("total", "total", "k")


@pytest.mark.parametrize("kind", ["quotient", "power", "largest"])
def test_sums_that_cannot_be_repaired_are_refused(kind: str) -> None:
    """The mean of ``s / peak`` does not change by a factor when the peak grows after each block."""
    s = placeholder((ROWS, TERMS), FLOAT, "S")
    k = reduce_axis(TERMS, "k")
    peak = compute((ROWS,), lambda i: reduce_max(s[i, k.var], k), "peak")

    def term(i: Expr) -> Expr:
        value = s[i, k.var]
        if kind == "quotient":
            return reduce_sum(value / peak[i], k)
        if kind == "power":
            return reduce_sum(call(Function.EXP, value * peak[i]), k)
        return reduce_max(call(Function.EXP, value - peak[i]), k)

    schedule = Schedule(compute((ROWS,), term, "sums"))
    for stage in ("sums", "peak"):
        schedule.reorder(stage, "k", "i")
    with pytest.raises(
        ScheduleError, match=r"what 'sums' has added cannot be repaired when 'peak'"
    ):
        schedule.roll("peak", "sums", "k")
