"""Random legal programs, which simulator and hardware must execute in the same cycles and bytes.

Every program is legal by construction: instructions use entries that have been written, and get the
tokens that the hazards between them require (`tilewright.sim.random_tokens`). All else is drawn at
random: shapes, strides that run backwards, indices at both ends of each scratchpad, and runs of
instructions for one engine that overflow its queue.
"""

from collections.abc import Iterator

import numpy as np

from tilewright.isa.accesses import accesses
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.data_rules import UOP_CLASSES
from tilewright.isa.encoding import Values, encode_uops, instruction_bytes
from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import (
    AnyInstruction,
    Gemm,
    GemmLoop,
    Load,
    Vector,
    VectorLoop,
    VectorOperation,
    VectorTarget,
)
from tilewright.isa.integers import MAX_SHIFT, MULTIPLIER_BITS
from tilewright.isa.memories import PRM_CHANNEL_BYTES, UOP_BYTES, Engine, Memory, memory_shape
from tilewright.isa.operands import operand_fields
from tilewright.isa.program import Program, Segment
from tilewright.isa.timing import fetch_burst_instructions
from tilewright.isa.vector_runs import read_after_own_write
from tilewright.sim.random_instructions import (
    LOADABLE,
    OFFSETS,
    REGION_BYTES,
    UOPS,
    RandomInstructions,
    Regions,
    windows,
)
from tilewright.sim.random_tokens import Step, synchronised


def random_program(config: AcceleratorConfig, seed: int, *, size: int = 40) -> Program:
    """Make a random legal program.

    Parameters
    ----------
    config
        Any machine whose DRAM has 128 KiB and whose `token_limit` is not below `size` + 20.
    seed
        Programs with equal configuration, seed and size are equal.
    size
        Instructions besides those that fill the scratchpads at the start and `Finish`.
    """
    return _Generator(config, np.random.default_rng(seed)).make(size)


class _Generator:
    """Draws instructions one after the other."""

    def __init__(self, config: AcceleratorConfig, rng: np.random.Generator) -> None:
        self._config = config
        self._rng = rng
        tables = {memory: self._draw_uops(memory) for memory in UOP_CLASSES}
        #: Micro-ops in DRAM, and those that have been loaded.
        self._uop_tables = tables
        self._loaded_uops = {
            memory: np.zeros((memory_shape(memory, config).entries, 3), np.int64)
            for memory in UOP_CLASSES
        }
        contents = {
            Memory.GUOP: self._encoded(Memory.GUOP),
            Memory.VUOP: self._encoded(Memory.VUOP),
            Memory.PRM: self._draw_parameters(),
            Memory.INP: rng.bytes(REGION_BYTES),
        }
        addresses = {memory: index * REGION_BYTES for index, memory in enumerate(contents)}
        self._constants = tuple(
            Segment(address=addresses[memory], data=data) for memory, data in contents.items()
        )
        self._regions = Regions(
            sources={m: addresses.get(m, addresses[Memory.INP]) for m in LOADABLE},
            results=len(contents) * REGION_BYTES,
        )
        self._instructions = RandomInstructions(config, rng, self._regions)

    def make(self, size: int) -> Program:
        """Draw a program."""
        config = self._config
        steps = [self._step(instruction) for instruction in self._fill()]
        size += len(steps)
        stickiness = (0.0, 0.5, 0.9)[self._rng.integers(3)]
        engine = Engine.LOAD
        while len(steps) < size:
            if self._rng.random() >= stickiness:
                engine = Engine(int(self._rng.integers(len(Engine))))
            try:
                steps.append(self._step(self._instructions.draw(engine)))
            except ProgramError:
                continue  # an index that does not exist: draw again
        burst_bytes = fetch_burst_instructions(config) * instruction_bytes(config)
        code_address = -(-(self._regions.results + REGION_BYTES) // burst_bytes) * burst_bytes
        instructions = synchronised(steps, config, self._rng, dram_bytes=code_address)
        return Program(
            config=config,
            instructions=instructions,
            code_address=code_address,
            constants=self._constants,
            dram_bytes=code_address + len(instructions) * instruction_bytes(config),
        )

    def _encoded(self, memory: Memory) -> bytes:
        uops = encode_uops(UOP_CLASSES[memory], self._uop_tables[memory], self._config)
        return uops.tobytes()

    def _draw_uops(self, memory: Memory) -> Values:
        """Micro-ops with small offsets in either direction; the first one has none."""
        config = self._config
        fields = operand_fields(UOP_CLASSES[memory])
        modulus = np.array([1 << field.operand.width(config) for field in fields])
        low, high = OFFSETS
        table = self._rng.integers(low, high + 1, (UOPS, len(fields)))
        runs = self._rng.random(UOPS) < 0.7
        runs[0] = False
        for row in np.flatnonzero(runs):
            table[row, 0] = table[row - 1, 0]
        if memory is Memory.VUOP:
            table[self._rng.random(UOPS) < 0.05, 1] += config.acc_operand_base
        table[0] = 0
        result: Values = table % modulus
        return result

    def _draw_parameters(self) -> bytes:
        """Biases, multipliers and shifts as networks have them, and arbitrary ones."""
        channels = REGION_BYTES // PRM_CHANNEL_BYTES
        rng = self._rng
        usual = rng.random(channels) < 0.7
        bias = np.where(
            usual,
            rng.integers(-1000, 1000, channels),
            rng.integers(-(1 << 31), 1 << 31, channels),
        )
        multiplier = rng.integers(0, 1 << MULTIPLIER_BITS, channels)
        shift = np.where(
            usual, rng.integers(24, 36, channels), rng.integers(0, MAX_SHIFT + 1, channels)
        )
        words = np.stack([bias & 0xFFFFFFFF, multiplier | shift << MULTIPLIER_BITS], axis=1)
        return words.astype("<u4").tobytes()

    def _fill(self) -> Iterator[AnyInstruction]:
        """Write every window once."""
        config = self._config
        for memory in LOADABLE:
            entry_bytes = memory_shape(memory, config).entry_bytes
            for first, count in windows(memory, config):
                fits = count * entry_bytes <= REGION_BYTES
                yield Load(
                    memory=memory,
                    dst=first,
                    address=self._regions.sources[memory],
                    entries=1,
                    rows=count,
                    row_stride=entry_bytes if fits else 0,
                )
        for first, count in windows(Memory.ACC, config):
            apart = int(count <= windows(Memory.INP, config)[0][1])
            gemm_loop = GemmLoop(extent=count, dst=1, src=apart)
            yield Gemm(dst=first, loops=(GemmLoop(), GemmLoop(), gemm_loop))
        for first, count in windows(Memory.OUT, config):
            apart = int(count <= windows(Memory.VEC, config)[0][1])
            vector_loop = VectorLoop(extent=count, dst=1, src=apart)
            yield Vector(
                operation=VectorOperation.SUM,
                dst=first,
                loops=(VectorLoop(), VectorLoop(), vector_loop),
            )

    def _step(self, instruction: AnyInstruction) -> Step:
        """Find what an instruction touches; raises `ProgramError` where that does not exist."""
        uops = None
        match instruction:
            case Load():
                self._note_uops(instruction)
            case Gemm() | Vector():
                memory = Memory.GUOP if isinstance(instruction, Gemm) else Memory.VUOP
                begin, count = instruction.uop_begin, instruction.uop_count
                uops = self._loaded_uops[memory][begin : begin + count]
        found = accesses(instruction, self._config, uops)
        if isinstance(instruction, Vector) and instruction.target is VectorTarget.ACC:
            assert uops is not None, "a vector instruction has micro-ops"
            if read_after_own_write(instruction, uops, self._config) is not None:
                raise ProgramError("the instruction reads what it has written")
        for access in found.reads:
            parts = windows(access.memory, self._config)
            written = np.concatenate([np.arange(first, first + n) for first, n in parts])
            if not np.isin(access.entries, written).all():
                raise ProgramError("the instruction reads what nothing has written")
        return Step(instruction=instruction, accesses=found)

    def _note_uops(self, load: Load) -> None:
        if load.memory in UOP_CLASSES:
            first = (load.address - self._regions.sources[load.memory]) // UOP_BYTES
            count = load.written_entries
            table = self._uop_tables[load.memory][first : first + count]
            self._loaded_uops[load.memory][load.dst : load.dst + count] = table
