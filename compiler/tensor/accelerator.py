"""The accelerator's instructions as intrinsics: what each of them does to entries of scratchpads.

Scopes are the scratchpads of `tilewright.isa` in small letters; ``global`` is DRAM. The last axes
of a tensor in a scratchpad are those of one entry. The vector engine combines the operands of a run
in scope ``run``, a register, before it finishes the result.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.tensor.build import (
    cast,
    clip,
    parameter,
    reduce_max,
    reduce_min,
    reduce_sum,
)
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Operand, Tensor
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.operators.elementwise import requantized
from tilewright.compiler.tensor.realisation import RUN_SCOPE
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.transfers import BORDER, bordered
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import EXTENT_BITS, VECTOR_OPERAND_BITS, VectorOperation
from tilewright.isa.memo import memoize
from tilewright.isa.memories import LUT_LENGTH, Engine, Memory

INDEX, INT8, INT16 = ScalarType.INDEX, ScalarType.INT8, ScalarType.INT16
INT32, INT64 = ScalarType.INT32, ScalarType.INT64

#: Largest extent of an axis of a transfer.
_LONGEST = (1 << EXTENT_BITS) - 1
#: Axes in front of those of an entry: of a tile of activations; of a constant, at most.
_TILE_AXES, _CONSTANT_AXES = 4, 9
#: Most steps that take off a zero point.
_CORRECTIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineIntrinsic(Intrinsic):
    """An intrinsic that is an instruction, or a step of one, of an engine."""

    engine: Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorIntrinsic(EngineIntrinsic):
    """A step of the vector engine: an operand joins a run, or the result of a run is written.

    Operands are known by their names in the pattern: ``value`` and ``other`` are operands of the
    run, ``run`` is the run itself, ``coef``, ``prm`` and ``table`` are entries of `coef`, `prm`
    and `lut`; the parameters are ``zero_point``, ``low`` and ``high``.
    """

    engine: Engine = Engine.VECTOR
    operation: VectorOperation = VectorOperation.SUM
    #: The steps of a run of two operands: operand, and number of its entry of ``coef``.
    terms: tuple[tuple[str, int], ...] = (("value", 0), ("other", 1))


def scope_of(memory: Memory) -> str:
    """Return the scope that stands for a scratchpad."""
    return memory.name.lower()


def memory_of(scope: str) -> Memory:
    """Return the scratchpad that a scope stands for."""
    return Memory[scope.upper()]


def narrowed(value: Expr) -> Expr:
    """Return an int32 as the multiplier of the vector engine sees it."""
    unseen = INT32.numpy.itemsize * 8 - VECTOR_OPERAND_BITS
    return (value << unseen) >> unseen


@memoize
def instruction_set(config: AcceleratorConfig) -> tuple[Intrinsic, ...]:
    """Return all instructions of a machine as intrinsics."""
    return (
        gemm_tile(config.batch, config.block_in, config.block_out),
        _load(Memory.INP, (config.batch, config.block_in)),
        _load(Memory.VEC, (config.batch, config.block_out)),
        _copy("copy_vec", Engine.LOAD, "global", scope_of(Memory.VEC), config),
        _copy("store", Engine.STORE, scope_of(Memory.OUT), "global", config),
        _copy("store_interleaved", Engine.STORE, scope_of(Memory.OUT), "global", config, axes=6),
        *_constant_loads(config),
        *_combinations(config),
        *_results(config),
        *(_product(corrections, config) for corrections in range(_CORRECTIONS + 1)),
        *(_shared_sum(times, config) for times in range(1, _CORRECTIONS + 1)),
    )


def gemm_tile(batch: int, block_in: int, block_out: int) -> Intrinsic:
    """Declare one tile of a matrix product of int8 values, the weights transposed.

    ``acc[b, o] (+)= sum(int32(inp[b, c]) * int32(wgt[o, c]) over c)``
    """
    inp = placeholder((batch, block_in), INT8, "inp", scope=scope_of(Memory.INP))
    wgt = placeholder((block_out, block_in), INT8, "wgt", scope=scope_of(Memory.WGT))
    c = reduce_axis(block_in, "c")
    acc = compute(
        (batch, block_out),
        lambda b, o: reduce_sum(cast(inp[b, c.var], INT32) * cast(wgt[o, c.var], INT32), c),
        "acc",
        scope=scope_of(Memory.ACC),
    )
    return EngineIntrinsic(name="gemm", pattern=acc, emitter="gemm", engine=Engine.GEMM)


def _load(memory: Memory, entry: tuple[int, int]) -> Intrinsic:
    """Declare the load of planes, rows and columns of activations, with a border of one value."""
    shape = (*(_LONGEST,) * _TILE_AXES, *entry)
    source = placeholder(shape, INT8, "source")

    def element(plane: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr) -> Expr:
        return bordered(row, column, source[plane, row, column, part, image, lane], INT8)

    name = f"load_{scope_of(memory)}"
    return EngineIntrinsic(
        name=name,
        pattern=compute(shape, element, "target", scope=scope_of(memory), parameters=BORDER),
        emitter=name,
        engine=Engine.LOAD,
        flexible=("plane", "row", "column", "part"),
    )


def _copy(
    name: str,
    engine: Engine,
    source: str,
    target: str,
    config: AcceleratorConfig,
    axes: int = _TILE_AXES,
) -> Intrinsic:
    """Declare the load or the store of planes, rows and columns without a border.

    With six axes in front of those of an entry, rows and columns are given by two each.
    """
    shape = (*(_LONGEST,) * axes, config.batch, config.block_out)
    origin = placeholder(shape, INT8, "source", scope=source)
    return EngineIntrinsic(
        name=name,
        pattern=compute(shape, lambda *at: origin[at], "target", scope=target),
        emitter=name,
        engine=engine,
        flexible=tuple(f"i{axis}" for axis in range(axes)),
    )


def _constant_loads(config: AcceleratorConfig) -> tuple[Intrinsic, ...]:
    """Declare loads of constants, by scratchpad and number of axes in front of the entry's."""
    lanes = config.block_out
    kinds = (
        (Memory.INP, INT8, (config.batch, config.block_in)),
        (Memory.WGT, INT8, (lanes, config.block_in)),
        (Memory.PRM, INT32, (lanes, 3)),
        (Memory.COEF, INT16, (lanes,)),
        (Memory.LUT, INT8, (LUT_LENGTH,)),
    )
    return tuple(
        _constant_load(memory, dtype, entry, axes)
        for memory, dtype, entry in kinds
        for axes in range(_CONSTANT_AXES + 1)
    )


def constant_load(memory: Memory, axes: int) -> str:
    """Name the load of a constant with `axes` axes in front of those of an entry."""
    return f"load_{scope_of(memory)}_{axes}"


def _constant_load(
    memory: Memory, dtype: ScalarType, entry: tuple[int, ...], axes: int
) -> Intrinsic:
    shape = (*(_LONGEST,) * axes, *entry)
    source = placeholder(shape, dtype, "source")
    name = constant_load(memory, axes)
    return EngineIntrinsic(
        name=name,
        pattern=compute(shape, lambda *at: source[at], "target", scope=scope_of(memory)),
        emitter=name,
        engine=Engine.LOAD,
        flexible=tuple(f"i{axis}" for axis in range(axes)),
    )


def combination(
    name: str,
    operation: VectorOperation,
    combine: Callable[[Expr], Expr],
    term: Callable[[Expr, Expr], Expr],
    memory: Memory,
    config: AcceleratorConfig,
) -> VectorIntrinsic:
    """Declare how an operand joins a run of the vector engine.

    Parameters
    ----------
    combine
        The reduction, without axes: one step adds one term.
    term
        The term, from the operand as int32 and its coefficient as int32.
    memory
        Where the operand lies: `vec` or `acc`.
    """
    value = _value("value", memory, config)
    coef = placeholder((config.block_out,), INT16, "coef", scope=scope_of(Memory.COEF))
    pattern = compute(
        (config.batch, config.block_out),
        lambda b, lane: combine(term(cast(value[b, lane], INT32), cast(coef[lane], INT32))),
        "run",
        scope=RUN_SCOPE,
    )
    return VectorIntrinsic(name=name, pattern=pattern, emitter=name, operation=operation)


def _value(name: str, memory: Memory, config: AcceleratorConfig) -> Tensor:
    dtype = INT8 if memory is Memory.VEC else INT32
    entry = (config.batch, config.block_out)
    return placeholder(entry, dtype, name, scope=scope_of(memory))


def _combinations(config: AcceleratorConfig) -> tuple[Intrinsic, ...]:
    reductions: tuple[tuple[VectorOperation, Callable[[Expr], Expr]], ...] = (
        (VectorOperation.SUM, reduce_sum),
        (VectorOperation.MAX, reduce_max),
        (VectorOperation.MIN, reduce_min),
    )
    plain = tuple(
        combination(
            f"{operation.name.lower()}_{scope_of(memory)}",
            operation,
            combine,
            lambda value, _: value,
            memory,
            config,
        )
        for operation, combine in reductions
        for memory in (Memory.VEC, Memory.ACC)
    )
    operation = VectorOperation.MAC
    return (
        *plain,
        combination("mac_vec", operation, reduce_sum, lambda v, k: v * k, Memory.VEC, config),
        combination(
            "mac_acc", operation, reduce_sum, lambda v, k: narrowed(v) * k, Memory.ACC, config
        ),
    )


def _results(config: AcceleratorConfig) -> tuple[Intrinsic, ...]:
    """Declare what a run becomes, for runs of one or two operands without the register."""
    entry = (config.batch, config.block_out)
    run = placeholder(entry, INT32, "run", scope=RUN_SCOPE)
    vec, acc = _value("value", Memory.VEC, config), _value("value", Memory.ACC, config)
    other = _value("other", Memory.VEC, config)
    coef = placeholder((2, config.block_out), INT16, "coef", scope=scope_of(Memory.COEF))

    def pair(first: Expr, second: Expr, lane: Expr) -> Expr:
        factors = (cast(coef[0, lane], INT32), cast(coef[1, lane], INT32))
        return first * factors[0] + cast(second, INT32) * factors[1]

    single, double = VectorOperation.SUM, VectorOperation.MAC
    sources: tuple[tuple[str, VectorOperation, Callable[[Expr, Expr], Expr]], ...] = (
        ("run", single, lambda b, lane: run[b, lane]),
        ("vec", single, lambda b, lane: cast(vec[b, lane], INT32)),
        ("acc", single, lambda b, lane: acc[b, lane]),
        (
            "vec_vec",
            double,
            lambda b, lane: pair(cast(vec[b, lane], INT32), other[b, lane], lane),
        ),
        ("acc_vec", double, lambda b, lane: pair(narrowed(acc[b, lane]), other[b, lane], lane)),
    )
    return tuple(
        _result(f"{name}_{source}", operation, memory, value, finish, config)
        for source, operation, value in sources
        for name, memory, finish in _finishes(config)
    )


def product_result(corrections: int) -> str:
    """Name the product of two operands with `corrections` steps that take off a zero point."""
    return f"requantise_product_{corrections}"


def shared_sum(times: int) -> str:
    """Name the end of a sum of one accumulator and `times` another one."""
    return f"requantise_acc_acc_{times}"


def _shared_sum(times: int, config: AcceleratorConfig) -> Intrinsic:
    acc, other = _value("value", Memory.ACC, config), _value("other", Memory.ACC, config)
    finish = next(done for name, _, done in _finishes(config) if name == "requantise")

    def element(b: Expr, lane: Expr) -> Expr:
        total: Expr = acc[b, lane]
        for _ in range(times):
            total = total + other[b, lane]
        return finish(total, lane)

    entry = (config.batch, config.block_out)
    return VectorIntrinsic(
        name=shared_sum(times),
        pattern=compute(entry, element, "result", scope=scope_of(Memory.OUT)),
        emitter=shared_sum(times),
        operation=VectorOperation.SUM,
        terms=(("value", 0), *(("other", 0),) * times),
    )


def _product(corrections: int, config: AcceleratorConfig) -> Intrinsic:
    """Declare a product of activations: a further operand times the same factor corrects it."""
    vec, other = _value("value", Memory.VEC, config), _value("other", Memory.VEC, config)
    coef = placeholder((config.block_out,), INT16, "coef", scope=scope_of(Memory.COEF))
    finish = next(done for name, _, done in _finishes(config) if name == "requantise")

    def element(b: Expr, lane: Expr) -> Expr:
        factor = cast(coef[lane], INT32)
        total = cast(vec[b, lane], INT32) * factor
        for _ in range(corrections):
            total = total + cast(other[b, lane], INT32) * factor
        return finish(total, lane)

    entry = (config.batch, config.block_out)
    return VectorIntrinsic(
        name=product_result(corrections),
        pattern=compute(entry, element, "result", scope=scope_of(Memory.OUT)),
        emitter=product_result(corrections),
        operation=VectorOperation.MAC,
        terms=(("value", 0), *(("other", 0),) * corrections),
    )


#: From a value and its lane to the result.
_Finish = Callable[[Expr, Expr], Expr]


def _finishes(config: AcceleratorConfig) -> tuple[tuple[str, Memory, _Finish], ...]:
    prm = placeholder((config.block_out, 3), INT32, "prm", scope=scope_of(Memory.PRM))
    table = placeholder((LUT_LENGTH,), INT8, "table", scope=scope_of(Memory.LUT))

    def scaled(value: Expr, lane: Expr) -> Expr:
        zero_point, low, high = (parameter(name, INT64) for name in ("zero_point", "low", "high"))
        fields = (prm[lane, 0], prm[lane, 1], prm[lane, 2])
        return requantized(value, *fields, zero_point=zero_point, low=low, high=high)

    def limited(value: Expr, lane: Expr) -> Expr:
        return clipped(value, parameter("low", INT32), parameter("high", INT32))

    return (
        ("requantise", Memory.OUT, scaled),
        ("requantise_keep", Memory.ACC, lambda value, lane: cast(scaled(value, lane), INT32)),
        (
            "requantise_look_up",
            Memory.OUT,
            lambda value, lane: looked_up(table, scaled(value, lane)),
        ),
        ("clip", Memory.OUT, limited),
        ("look_up", Memory.OUT, lambda value, lane: looked_up(table, limited(value, lane))),
        ("keep", Memory.ACC, lambda value, lane: value),
    )


def _result(
    name: str,
    operation: VectorOperation,
    memory: Memory,
    value: Callable[[Expr, Expr], Expr],
    finish: _Finish,
    config: AcceleratorConfig,
) -> Intrinsic:
    pattern = compute(
        (config.batch, config.block_out),
        lambda b, lane: finish(value(b, lane), lane),
        "result",
        scope=scope_of(memory),
    )
    return VectorIntrinsic(name=name, pattern=pattern, emitter=name, operation=operation)


def clipped(value: Expr, low: Operand, high: Operand) -> Expr:
    """Return an int32 limited to the range from `low` to `high`, as int8."""
    return cast(clip(value, low, high), INT8)


def looked_up(table: Tensor, value: Expr) -> Expr:
    """Return the entry of a table of 256 for an int8 value."""
    return table[cast(value, INDEX) + LUT_LENGTH // 2]
