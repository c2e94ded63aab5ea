"""Instructions of the vector engine for an operation in one tile."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.compiler.lowering.buffers import Placed
from tilewright.compiler.lowering.emitter import Emitter
from tilewright.compiler.lowering.loops import Level, instructions, levels
from tilewright.compiler.lowering.nests import InnerLoop, Operation
from tilewright.compiler.lowering.operands import Area, Operand, even_areas, locate
from tilewright.compiler.lowering.tables import Indices
from tilewright.compiler.tensor.accelerator import VectorIntrinsic
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.instructions import (
    Vector,
    VectorLoop,
    VectorTarget,
    VectorUop,
)
from tilewright.isa.memories import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operands:
    """The operands of a vector operation: destination, source, coefficients, parameters."""

    dst: Operand
    src: Operand
    coef: Operand
    prm: Operand

    def steps(self, name: str) -> tuple[int, ...]:
        return tuple(operand.step(name) for operand in (self.dst, self.src, self.coef, self.prm))


_NOTHING = Operand(entry=0, steps={})
_NOWHERE = (0, 0, 0, 0)


def emit_vector(
    operation: Operation,
    indices: Indices,
    numbers: Mapping[str, int],
    inputs: Mapping[str, Placed],
    output: Placed,
    emitter: Emitter,
) -> None:
    """Append the instructions that an operation of the vector engine takes in a tile.

    Parameters
    ----------
    numbers
        The parameters of its intrinsic.
    inputs
        Where the operands lie, by their names in the intrinsic's pattern.
    output
        Where the result goes.
    """
    config = emitter.config
    vector = _vector(operation, numbers, inputs, output)
    reduce_loops = () if operation.run is None else operation.run.loops
    looped = tuple(loop for loop in reduce_loops if not loop.unrolled)
    operands = operation.operands
    spans = tuple(place.span for place in inputs.values())
    single = _uneven(operation, inputs, indices)
    accesses = (*operands.values(), operation.output)
    for area in even_areas(accesses, operation.loops, indices, single):
        at = {**indices, **area.first}
        found = {name: locate(access, inputs[name], at) for name, access in operands.items()}
        own = _Operands(
            dst=locate(operation.output, output, at),
            src=_source(found["value"], inputs["value"], config),
            coef=found.get("coef", _NOTHING),
            prm=found.get("prm", _NOTHING),
        )
        steps = _micro_ops(own, operation, found, inputs, area, indices, config)
        uops, first = emitter.load_uops(VectorUop, steps), _offsets(own, area)
        for added, inner in instructions(_levels(own, operation.loops, looped, area, indices)):
            dst, src, coef, prm = map(sum, zip(first, added or _NOWHERE, strict=True))
            part = replace(vector, uop_begin=uops.begin, uop_count=uops.entries, dst=dst, src=src)
            part = replace(part, coef=coef, prm=prm, loops=_loops(inner))
            emitter.vector(part, reads=(*spans, uops), write=output.span)


def _uneven(
    operation: Operation, inputs: Mapping[str, Placed], indices: Indices
) -> tuple[str, ...]:
    """Name the loops in which the operands of a run advance differently: an instruction has one
    step for both.
    """
    if "other" not in operation.operands:
        return ()
    value, other = (
        locate(operation.operands[name], inputs[name], indices) for name in ("value", "other")
    )
    return tuple(
        loop.name
        for loop in operation.loops
        if value.step(loop.name) != other.step(loop.name) and loop.count(indices) > 1
    )


def _vector(
    operation: Operation,
    numbers: Mapping[str, int],
    inputs: Mapping[str, Placed],
    output: Placed,
) -> Vector:
    """Return the instruction without what it goes over."""
    intrinsic = (operation.run or operation).intrinsic
    assert isinstance(intrinsic, VectorIntrinsic), "the caller tells engines apart"
    table = inputs.get("table")
    return Vector(
        operation=intrinsic.operation,
        target=_target(output),
        requantise="prm" in inputs,
        lookup=table is not None,
        lut=0 if table is None else table.span.begin,
        zero_point=numbers.get("zero_point", 0),
        low=numbers.get("low", -128),
        high=numbers.get("high", 127),
    )


def _target(output: Placed) -> VectorTarget:
    return VectorTarget.ACC if output.span.memory is Memory.ACC else VectorTarget.OUT


def _offsets(own: _Operands, area: Area) -> tuple[int, ...]:
    """Return the entries of all operands where the iterations of an area begin."""
    entries = [operand.entry for operand in (own.dst, own.src, own.coef, own.prm)]
    for name, begin in area.first.items():
        steps = own.steps(name)
        entries = [entry + begin * step for entry, step in zip(entries, steps, strict=True)]
    return tuple(entries)


def _levels(
    own: _Operands,
    loops: tuple[InnerLoop, ...],
    reducing: tuple[InnerLoop, ...],
    area: Area,
    indices: Indices,
) -> tuple[Level, ...]:
    outer = [Level(count=area.counts[loop.name], steps=own.steps(loop.name)) for loop in loops]
    inner = [Level(count=loop.count(indices), steps=own.steps(loop.name)) for loop in reducing]
    found = levels((*outer, *inner))
    if len(levels(inner)) > 3:
        names = ", ".join(loop.name for loop in reducing)
        raise CompileError(f"the reduce loops {names} are more than an instruction has")
    return found


def _loops(inner: tuple[Level, ...]) -> tuple[VectorLoop, ...]:
    missing = (VectorLoop(),) * (3 - len(inner))
    loops = []
    for level in inner:
        dst, src, coef, prm = level.steps
        loops.append(VectorLoop(extent=level.count, dst=dst, src=src, coef=coef, prm=prm))
    return (*missing, *loops)


def _source(operand: Operand, place: Placed, config: AcceleratorConfig) -> Operand:
    """Turn an entry of `vec` or `acc` into an operand address."""
    if place.span.memory is not Memory.ACC:
        return operand
    return Operand(entry=config.acc_operand_base + operand.entry, steps=operand.steps)


def _micro_ops(
    own: _Operands,
    operation: Operation,
    found: Mapping[str, Operand],
    inputs: Mapping[str, Placed],
    area: Area,
    indices: Indices,
    config: AcceleratorConfig,
) -> list[tuple[int, int, int]]:
    """Return the operands of a run: the positions of a window, or the two of a sum."""
    intrinsic = operation.intrinsic
    assert isinstance(intrinsic, VectorIntrinsic), "the caller tells engines apart"
    if "other" in found:
        other = _source(found["other"], inputs["other"], config)
        ahead = sum(
            first * (other.step(name) - own.src.step(name)) for name, first in area.first.items()
        )
        distance = (other.entry - own.src.entry + ahead) % (1 << config.operand_bits)
        places = {"value": 0, "other": distance}
        return [(0, places[name], coef) for name, coef in intrinsic.terms]
    unrolled = [loop for loop in operation.run.loops if loop.unrolled] if operation.run else []
    return [
        (
            0,
            sum(own.src.step(loop.name) * index for loop, index in zip(unrolled, at, strict=True)),
            sum(own.coef.step(loop.name) * index for loop, index in zip(unrolled, at, strict=True)),
        )
        for at in itertools.product(*(range(loop.count(indices)) for loop in unrolled))
    ]
