"""Loads and stores of tensor elements: scalars, contiguous vectors, and lanes far apart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

from llvmlite import ir

from tilewright.compiler.tensor.expressions import Binary, Const, Expr, Tensor, Var
from tilewright.compiler.tensor.linear import Linear, to_linear
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.codegen.byte_tables import emit_byte_lookup, is_byte_table
from tilewright.cpu_gpu_backends.codegen.failures import emit_bounds_check
from tilewright.cpu_gpu_backends.codegen.frame import Frame, Lanes, Storage
from tilewright.cpu_gpu_backends.codegen.target import LINE_BYTES
from tilewright.cpu_gpu_backends.codegen.types import (
    BYTE,
    INDEX,
    POINTER,
    declare_intrinsic,
    index,
    lanes_of,
    memory_type,
    number,
    scalar_type,
    splat,
    suffix,
    with_lanes,
)

#: To read, into all levels of the cache, of data.
_PREFETCH_NAME, _PREFETCH = "llvm.prefetch.p0", (0, 3, 1)
#: Elements of which one is read, where every other one is.
_PAIR = 2
#: Size of the numbers that `Memory.load_as` reads side by side.
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Place:
    """``terms + constant``, and per lane `step` further, or wherever `spread` says.

    With a `period`, lanes go on from the first place again after so many.
    """

    terms: tuple[tuple[ir.Value, int], ...]
    constant: int
    step: int
    spread: ir.Value | None
    period: int = 0


class Memory:
    """Emits accesses to the tensors of a frame."""

    def __init__(self, frame: Frame, evaluate: "IndexEmitter") -> None:
        self._frame = frame
        self._evaluate = evaluate

    def load(self, tensor: Tensor, indices: tuple[Expr, ...]) -> ir.Value:
        """Return an element: a scalar where all lanes read the same one, else a vector."""
        frame, b = self._frame, self._frame.builder
        storage = frame.storages[tensor.name]
        self._check(tensor, indices)
        place = self._place(storage, indices)
        key = (id(storage.pointer), _key(place), frame.lanes)
        if key in frame.values:
            return frame.values[key]
        element = memory_type(tensor.dtype)
        if place.period:
            value = self._repeated(storage, place)
        elif place.spread is None and place.step in (0, 1):
            kind = with_lanes(element, frame.lanes if place.step else 0)
            value = b.load(self._address(storage, place), typ=kind, align=_size(tensor.dtype))
            self._fetch_ahead(storage, place, max(1, lanes_of(value)) * _size(tensor.dtype))
        elif place.spread is None and place.step == _PAIR and self._is_own(storage, place):
            value = self._every_other(storage, place)
        elif place.spread is not None and self._is_lookup(storage, place):
            value = emit_byte_lookup(b, self._address(storage, place), place.spread)
        else:
            value = self._gather(storage, place, element)
        if tensor.dtype is ScalarType.BOOL:
            value = b.trunc(value, with_lanes(scalar_type(tensor.dtype), lanes_of(value)))
        frame.values[key] = value
        return value

    def store(self, tensor: Tensor, indices: tuple[Expr, ...], value: ir.Value) -> None:
        """Set an element, or one per lane."""
        frame, b = self._frame, self._frame.builder
        storage = frame.storages[tensor.name]
        self._check(tensor, indices)
        place = self._place(storage, indices)
        if tensor.dtype is ScalarType.BOOL:
            value = b.zext(value, with_lanes(memory_type(tensor.dtype), lanes_of(value)))
        spread = place.spread is not None or place.step not in (0, 1) or place.period > 0
        if spread:
            self._scatter(storage, place, splat(b, value, frame.lanes))
        else:
            if place.step:
                value = splat(b, value, frame.lanes)
            elif lanes_of(value):  # every lane writes the same element: any of them may win
                value = b.extract_element(value, ir.Constant(ir.IntType(32), 0))
            b.store(value, self._address(storage, place), align=_size(tensor.dtype))
        self._forget(storage)
        if not spread:
            key = (id(storage.pointer), _key(place), frame.lanes)
            frame.values[key] = self._as_loaded(value, tensor)

    def _repeated(self, storage: Storage, place: _Place) -> ir.Value:
        """Return the elements of one period, over and over."""
        b, lanes = self._frame.builder, self._frame.lanes
        kind = with_lanes(memory_type(storage.tensor.dtype), place.period)
        value = b.load(self._address(storage, place), typ=kind, align=_size(storage.tensor.dtype))
        return _shuffled(b, value, value, [lane % place.period for lane in range(lanes)])

    def _every_other(self, storage: Storage, place: _Place) -> ir.Value:
        """Return every other element of an own tensor, from whole vectors as they were written."""
        b, frame, start = self._frame.builder, self._frame, place.constant - place.constant % _PAIR
        width = min(frame.lanes * _PAIR, frame.target.vector_bytes // _size(storage.tensor.dtype))
        kind = with_lanes(memory_type(storage.tensor.dtype), width)
        parts = [
            b.load(
                self._address(storage, replace(place, constant=start + part)),
                typ=kind,
                align=_size(storage.tensor.dtype),
            )
            for part in range(0, frame.lanes * _PAIR, width)
        ]
        places = [lane * _PAIR + place.constant - start for lane in range(frame.lanes)]
        return _shuffled(b, parts[0], parts[-1], places)

    def _is_own(self, storage: Storage, place: _Place) -> bool:
        """Whether pairs lie in one vector or in two, in registers, of this function's own."""
        vector = self._frame.target.vector_bytes // _size(storage.tensor.dtype)
        elements = _PAIR * self._frame.lanes
        begin = place.constant - place.constant % _PAIR
        inside = begin + elements <= prod(storage.tensor.shape)
        return storage.own and not place.terms and elements in (vector, 2 * vector) and inside

    def load_as(self, tensor: Tensor, indices: tuple[Expr, ...], kind: ir.Type) -> ir.Value:
        """Return what lies at an element, read as a value of type `kind`."""
        frame, storage = self._frame, self._frame.storages[tensor.name]
        place = self._place(storage, indices)
        key = (id(storage.pointer), _key(place), suffix(kind))
        if key not in frame.values:
            address, size = self._address(storage, place), _size(tensor.dtype)
            frame.values[key] = frame.builder.load(address, typ=kind, align=size)
            self._fetch_ahead(storage, place, lanes_of(frame.values[key]) * _WORD_BYTES)
        return frame.values[key]

    def store_as(self, tensor: Tensor, indices: tuple[Expr, ...], value: ir.Value) -> None:
        """Write a value of any type over the elements from `indices` on."""
        frame, storage = self._frame, self._frame.storages[tensor.name]
        place = self._place(storage, indices)
        self._forget(storage)
        frame.builder.store(value, self._address(storage, place), align=_size(tensor.dtype))

    def _fetch_ahead(self, storage: Storage, place: _Place, size_bytes: int) -> None:
        """Fetch the line that lies some way behind what was read, if so much begins one."""
        b, element = self._frame.builder, _size(storage.tensor.dtype)
        distance = self._frame.ahead.get(storage.tensor.name, 0) * element
        begins_line = place.constant * element % LINE_BYTES == 0
        if not distance or not (begins_line or size_bytes >= LINE_BYTES):
            return
        address = b.gep(self._address(storage, place), [index(distance)], source_etype=BYTE)
        operands = (address, *(ir.Constant(ir.IntType(32), value) for value in _PREFETCH))
        kinds = tuple(operand.type for operand in operands)
        b.call(declare_intrinsic(b.module, _PREFETCH_NAME, ir.VoidType(), kinds), operands)

    def _is_lookup(self, storage: Storage, place: _Place) -> bool:
        """Whether lanes read a table of bytes, each wherever a byte says."""
        anywhere = not place.terms and not place.constant and not place.step
        table = is_byte_table(storage.tensor) and storage.strides == (1,)
        return anywhere and table and self._frame.target.permutes_bytes

    def _as_loaded(self, value: ir.Value, tensor: Tensor) -> ir.Value:
        if tensor.dtype is not ScalarType.BOOL:
            return value
        return self._frame.builder.trunc(
            value, with_lanes(scalar_type(tensor.dtype), lanes_of(value))
        )

    def _forget(self, storage: Storage) -> None:
        values, place = self._frame.values, id(storage.pointer)
        stale = [key for key in values if isinstance(key, tuple) and key[0] == place]
        for key in stale:
            del values[key]

    def _check(self, tensor: Tensor, indices: tuple[Expr, ...]) -> None:
        if not self._frame.check_bounds:
            return
        for position, extent in zip(indices, tensor.shape, strict=True):
            emit_bounds_check(self._frame, self._evaluate.index(position), extent)

    def _place(self, storage: Storage, indices: tuple[Expr, ...]) -> _Place:
        frame = self._frame
        key = (id(indices), storage.tensor.name)
        if key not in frame.positions:
            total = Linear((), 0)
            for position, stride in zip(indices, storage.strides, strict=True):
                total = total + to_linear(position).scaled(stride)
            frame.positions[key] = (indices, total)
        return self._evaluated(frame.positions[key][1])

    def _evaluated(self, linear: Linear) -> _Place:
        frame, constant, step = self._frame, linear.constant, 0
        repeated: Expr | None = None
        terms: list[tuple[ir.Value, int]] = []
        spread: ir.Value | None = None
        for atom, factor in linear.terms:
            if factor == 1 and self._period(atom):
                repeated = atom
                continue
            binding = frame.variables[atom.name] if isinstance(atom, Var) else None
            if isinstance(binding, Lanes):
                constant, step = constant + factor * binding.start, step + factor
                if binding.base is not None:
                    terms.append((binding.base, factor))
                continue
            value = self._evaluate.index(atom) if binding is None else binding
            if isinstance(value, int):
                constant += factor * value
            elif lanes_of(value):
                part = value
                if factor != 1:
                    part = frame.builder.mul(value, number(factor, INDEX, frame.lanes))
                spread = part if spread is None else frame.builder.add(spread, part)
            else:
                terms.append((value, factor))
        if repeated is None:
            return _Place(tuple(terms), constant, step, spread)
        if not step and spread is None:
            return _Place(tuple(terms), constant, 0, None, self._period(repeated))
        value = self._evaluate.index(repeated)
        spread = value if spread is None else frame.builder.add(spread, value)
        return _Place(tuple(terms), constant, step, spread)

    def _period(self, atom: Expr) -> int:
        """Return after how many lanes ``lane % n`` is 0 again, if it is so in the first; else 0."""
        match atom:
            case Binary(Operator.MODULO, Var() as var, Const(value)):
                lanes = self._frame.variables[var.name]
                if not isinstance(lanes, Lanes) or lanes.base is not None:
                    return 0
                return 0 if lanes.start % value or lanes.count % value else int(value)
            case _:
                return 0

    def _address(self, storage: Storage, place: _Place) -> ir.Value:
        frame, b = self._frame, self._frame.builder
        element = memory_type(storage.tensor.dtype)
        key = (".base", id(storage.pointer), tuple((id(v), f) for v, f in place.terms))
        base = frame.values.get(key)
        if base is None:
            base = storage.pointer
            total: ir.Value | None = None
            for value, factor in place.terms:
                part = value if factor == 1 else b.mul(value, index(factor))
                total = part if total is None else b.add(total, part)
            if total is not None:
                base = b.gep(base, [total], inbounds=True, source_etype=element)
            frame.values[key] = base
        if not place.constant:
            return base
        return b.gep(base, [index(place.constant)], inbounds=True, source_etype=element)

    def _lane_offsets(self, place: _Place) -> ir.Value:
        frame, b = self._frame, self._frame.builder
        lanes = frame.lanes
        steps = [place.step * lane for lane in range(lanes)]
        offsets: ir.Value = ir.Constant(ir.VectorType(INDEX, lanes), steps)
        return offsets if place.spread is None else b.add(offsets, place.spread)

    def _pointers(self, storage: Storage, place: _Place) -> ir.Value:
        """Return one address per lane."""
        frame, b = self._frame, self._frame.builder
        start = self._address(storage, place)
        size = _size(storage.tensor.dtype)
        scaled = b.mul(self._lane_offsets(place), number(size, INDEX, frame.lanes))
        origin = splat(b, b.ptrtoint(start, INDEX), frame.lanes)
        return b.inttoptr(b.add(origin, scaled), ir.VectorType(POINTER, frame.lanes))

    def _gather(self, storage: Storage, place: _Place, element: ir.Type) -> ir.Value:
        b, lanes = self._frame.builder, self._frame.lanes
        kind = ir.VectorType(element, lanes)
        mask = ir.VectorType(ir.IntType(1), lanes)
        pointers = self._pointers(storage, place)
        function = declare_intrinsic(
            b.module,
            f"llvm.masked.gather.{suffix(kind)}.v{lanes}p0",
            kind,
            (pointers.type, mask, kind),
        )
        everywhere = ir.Constant(mask, [1] * lanes)
        return b.call(function, (pointers, everywhere, ir.Constant(kind, ir.Undefined)))

    def _scatter(self, storage: Storage, place: _Place, value: ir.Value) -> None:
        b, lanes = self._frame.builder, self._frame.lanes
        mask = ir.VectorType(ir.IntType(1), lanes)
        pointers = self._pointers(storage, place)
        function = declare_intrinsic(
            b.module,
            f"llvm.masked.scatter.{suffix(value.type)}.v{lanes}p0",
            ir.VoidType(),
            (value.type, pointers.type, mask),
        )
        b.call(function, (value, pointers, ir.Constant(mask, [1] * lanes)))


class IndexEmitter(Protocol):
    """What emits index expressions; the emitter of expressions is one."""

    def index(self, expr: Expr) -> "int | ir.Value":
        """Return an index: a number where it is known, else a scalar or one per lane."""


def _shuffled(
    b: ir.IRBuilder, first: ir.Value, second: ir.Value, places: Sequence[int]
) -> ir.Value:
    """Return the elements at `places` of two vectors, one behind the other."""
    word = ir.IntType(32)
    mask = ir.Constant(ir.VectorType(word, len(places)), list(places))
    return b.shuffle_vector(first, second, mask)


def _key(place: _Place) -> tuple[object, ...]:
    terms = tuple((id(value), factor) for value, factor in place.terms)
    spread = id(place.spread) if place.spread else None
    return (terms, place.constant, place.step, spread, place.period)


def _size(dtype: ScalarType) -> int:
    return int(dtype.numpy.itemsize)
