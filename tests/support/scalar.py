"""A scalar interpreter of the instructions, written from their descriptions.

It works on one number at a time, in Python integers and exact fractions, and shares no code with
`tilewright.isa.semantics`.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from tilewright.isa.instructions import (
    Gemm,
    GemmUop,
    Load,
    Store,
    Vector,
    VectorOperation,
    VectorTarget,
    VectorUop,
)
from tilewright.isa.memories import Memory
from tilewright.isa.semantics import MachineState


def wrap(value: int, bits: int = 32) -> int:
    """Two's complement of the low bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


class Scalar:
    """The machine one number at a time: bytes in lists, Python integers, exact fractions."""

    def __init__(self, state: MachineState) -> None:
        self.config = state.config
        self.dram = state.dram.tolist()
        self.memories = {memory: state.bytes[memory].tolist() for memory in Memory}

    def number(self, memory: Memory, entry: int, position: int, size: int) -> int:
        data = self.memories[memory][entry][position * size : (position + 1) * size]
        return int.from_bytes(bytes(data), "little", signed=True)

    def put(self, memory: Memory, entry: int, position: int, size: int, value: int) -> None:
        data = self.memories[memory][entry]
        data[position * size : (position + 1) * size] = wrap(value, 8 * size).to_bytes(
            size, "little", signed=True
        )

    def uop(self, cls: type, memory: Memory, entry: int) -> list[int]:
        word = int.from_bytes(bytes(self.memories[memory][entry]), "little")
        config = self.config
        widths = {
            GemmUop: (config.acc_index_bits, config.inp_index_bits, config.wgt_index_bits),
            VectorUop: (config.result_index_bits, config.operand_bits, config.coef_index_bits),
        }[cls]
        fields = []
        for width in widths:
            fields.append(word % (1 << width))
            word >>= width
        return fields

    def steps(self, instruction: Any, cls: type, memory: Memory) -> Iterator[tuple[int, ...]]:
        first, second, third = instruction.loops
        third_name = "wgt" if cls is GemmUop else "coef"
        for i in range(first.extent):
            for j in range(second.extent):
                for k in range(third.extent):
                    for u in range(instruction.uop_count):
                        uop = self.uop(cls, memory, instruction.uop_begin + u)
                        yield tuple(
                            getattr(instruction, name, 0)
                            + i * getattr(first, name, 0)
                            + j * getattr(second, name, 0)
                            + k * getattr(third, name, 0)
                            + offset
                            for name, offset in zip(
                                ("dst", "src", third_name, "prm"), [*uop, 0], strict=True
                            )
                        )

    def load(self, load: Load) -> None:
        entry = load.dst
        size = len(self.memories[load.memory][0])
        padding = [load.pad_value % 256] * size
        for plane in range(load.planes):
            for row in range(-load.pad_top, load.rows + load.pad_bottom):
                for column in range(-load.pad_left, load.entries + load.pad_right):
                    address = load.address + plane * load.plane_stride + row * load.row_stride
                    address = address % 2**32 + column * size
                    inside = 0 <= row < load.rows and 0 <= column < load.entries
                    data = self.dram[address : address + size] if inside else padding
                    self.memories[load.memory][entry] = list(data)
                    entry += 1

    def store(self, store: Store) -> None:
        entry = store.src
        for plane in range(store.planes):
            for row in range(store.rows):
                for column in range(store.entries):
                    data = self.memories[Memory.OUT][entry]
                    address = store.address + plane * store.plane_stride + row * store.row_stride
                    address = address % 2**32 + column * len(data)
                    self.dram[address : address + len(data)] = data
                    entry += 1

    def gemm(self, gemm: Gemm) -> None:
        config = self.config
        steps = [
            (dst % 2**config.acc_index_bits, src % 2**config.inp_index_bits,
             wgt % 2**config.wgt_index_bits)
            for dst, src, wgt, _ in self.steps(gemm, GemmUop, Memory.GUOP)
        ]  # fmt: skip
        lanes = [(b, o) for b in range(config.batch) for o in range(config.block_out)]
        sums = dict.fromkeys(lanes, 0)
        for position, (dst, src, wgt) in enumerate(steps):
            for b, o in lanes:
                sums[b, o] += sum(
                    self.number(Memory.INP, src, b * config.block_in + i, 1)
                    * self.number(Memory.WGT, wgt, o * config.block_in + i, 1)
                    for i in range(config.block_in)
                )
            if position + 1 == len(steps) or steps[position + 1][0] != dst:
                for b, o in lanes:
                    lane = b * config.block_out + o
                    old = self.number(Memory.ACC, dst, lane, 4) if gemm.accumulate else 0
                    self.put(Memory.ACC, dst, lane, 4, old + sums[b, o])
                sums = dict.fromkeys(lanes, 0)

    def operand(self, vector: Vector, src: int, lane: int) -> int:
        base = self.config.acc_operand_base
        if src < base:
            return self.number(Memory.VEC, src, lane, 1)
        value = self.number(Memory.ACC, src - base, lane, 4)
        return wrap(value, 25) if vector.operation is VectorOperation.MAC else value

    def vector(self, vector: Vector) -> None:
        config = self.config
        before = Scalar.__new__(Scalar)
        before.config = config
        before.memories = {m: [list(e) for e in self.memories[m]] for m in (Memory.VEC, Memory.ACC)}
        steps = [
            (dst % 2**config.result_index_bits, src % 2**config.operand_bits,
             coef % 2**config.coef_index_bits, prm % 2**config.prm_index_bits)
            for dst, src, coef, prm in self.steps(vector, VectorUop, Memory.VUOP)
        ]  # fmt: skip
        for lane in range(config.batch * config.block_out):
            channel = lane % config.block_out
            run = None
            for position, (dst, src, coef, prm) in enumerate(steps):
                value = before.operand(vector, src, lane)
                match vector.operation:
                    case VectorOperation.MAC:
                        value *= self.number(Memory.COEF, coef, channel, 2)
                        run = wrap(value + (run or 0))
                    case VectorOperation.SUM:
                        run = wrap(value + (run or 0))
                    case VectorOperation.MAX:
                        run = value if run is None else max(run, value)
                    case VectorOperation.MIN:
                        run = value if run is None else min(run, value)
                if position + 1 == len(steps) or steps[position + 1][0] != dst:
                    self.write(vector, dst, lane, self.result(vector, run, prm, channel))
                    run = None

    def result(self, vector: Vector, run: int, prm: int, channel: int) -> int:
        if vector.requantise:
            bias = self.number(Memory.PRM, prm, 2 * channel, 4)
            word = self.number(Memory.PRM, prm, 2 * channel + 1, 4) % 2**32
            exact = Fraction((run + bias) * (word % 2**24), 2 ** (word >> 24 & 63))
            run = min(max(round(exact) + vector.zero_point, vector.low), vector.high)
        elif vector.target is VectorTarget.OUT:
            run = min(max(run, vector.low), vector.high)
        if vector.lookup:
            run = self.number(Memory.LUT, vector.lut, (run + 128) % 256, 1)
        return run

    def write(self, vector: Vector, dst: int, lane: int, value: int) -> None:
        if vector.target is VectorTarget.OUT:
            self.put(Memory.OUT, dst, lane, 1, value)
        else:
            self.put(Memory.ACC, dst, lane, 4, value)

    def execute(self, instruction: Any) -> None:
        match instruction:
            case Load():
                self.load(instruction)
            case Gemm():
                self.gemm(instruction)
            case Vector():
                self.vector(instruction)
            case Store():
                self.store(instruction)
