"""A stand-in for the package pynq on a PYNQ-Z2 whose accelerator is the simulator.

Memory and caches are apart: what the processor writes reaches the accelerator by a flush alone, and
the other way round by an invalidate, so a missing call shows as wrong data. The accelerator runs
what lies in memory, not what the driver believes to have put there.
"""

from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest
from tilewright.isa.encoding import decode_program, instruction_bytes
from tilewright.isa.memories import Engine
from tilewright.isa.port_registers import PORT_REGISTERS_OFFSET, PortRegister
from tilewright.isa.program import Program
from tilewright.isa.registers import (
    IDENTIFICATION,
    ISA_VERSION,
    Control,
    EngineRegister,
    Register,
    Status,
    engine_base,
)
from tilewright.sim.simulator import simulate
from tilewright.sim.timeline import Timeline

CONTROL_ADDRESS = 0x43C0_0000
#: Registers of the processor: PLLs, clock 0 and its lock.
ARM_PLL, DDR_PLL, IO_PLL = 0xF800_0100, 0xF800_0104, 0xF800_0108
CLOCK, UNLOCK = 0xF800_0170, 0xF800_0008
MEMORY_ADDRESS = 0x1000_0000


class FakeBuffer(np.ndarray[Any, np.dtype[np.uint8]]):
    """What `allocate` returns: the processor's view of a piece of memory."""

    board: "FakeBoard"
    device_address: int

    def flush(self) -> None:
        begin = self.device_address - MEMORY_ADDRESS
        self.board.memory[begin : begin + self.size] = self

    def invalidate(self) -> None:
        begin = self.device_address - MEMORY_ADDRESS
        self[:] = self.board.memory[begin : begin + self.size]

    def freebuffer(self) -> None:
        self.board.buffers.remove(self.device_address)


@dataclass(eq=False)
class FakeBoard:
    """The board: bitstream, registers, memory. Faults are attributes that a test sets."""

    config: AcceleratorConfig
    memory: npt.NDArray[np.uint8] = field(default_factory=lambda: np.full(1 << 20, 0xA5, np.uint8))
    processor: dict[int, int] = field(default_factory=dict)
    registers: dict[int, int] = field(default_factory=dict)
    buffers: list[int] = field(default_factory=list)
    downloads: int = 0
    resets: int = 0
    #: What `Overlay` raises.
    download_error: Exception | None = None
    #: What `allocate` raises.
    memory_error: Exception | None = None
    #: Registers that a start leaves, in the place of a run.
    outcome: dict[int, int] | None = None
    #: Writes of the clock have no effect.
    clock_is_stuck: bool = False

    def __post_init__(self) -> None:
        self.processor |= {IO_PLL: 20 << 12, ARM_PLL: 26 << 12, DDR_PLL: 21 << 12}
        self.processor[CLOCK] = 10 << 8 | 1 << 20

    def module(self) -> ModuleType:
        """The package."""
        module: Any = ModuleType("pynq")
        module.__spec__ = ModuleSpec("pynq", None)
        module.Overlay = self.download
        module.MMIO = lambda address, length: FakeWindow(self, address)
        module.allocate = self.allocate
        return module

    def download(self, path: str) -> None:
        if self.download_error is not None:
            raise self.download_error
        self.downloads += 1
        digest = bytes.fromhex(config_digest(self.config))
        self.registers = {
            Register.IDENTIFICATION: IDENTIFICATION,
            Register.ISA_VERSION: ISA_VERSION,
            **{
                Register.CONFIG_DIGEST_0 + 4 * word: int.from_bytes(
                    digest[4 * word : 4 * word + 4], "big"
                )
                for word in range(4)
            },
        }

    def allocate(self, *, shape: tuple[int], dtype: type) -> FakeBuffer:
        if self.memory_error is not None:
            raise self.memory_error
        assert dtype is np.uint8
        address = MEMORY_ADDRESS + 0x2000 + 0x1000 * len(self.buffers)
        buffer = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8).view(FakeBuffer)
        buffer.board, buffer.device_address = self, address
        self.buffers.append(address)
        return buffer

    def write_register(self, offset: int, value: int) -> None:
        if offset != Register.CONTROL:
            self.registers[offset] = value
            return
        if value & (Control.CLEAR | Control.RESET | Control.START):
            self.registers[Register.STATUS] = 0
        if value & Control.RESET:
            self.resets += 1
        if value & Control.START:
            if self.outcome is None:
                self.start()
            else:
                self.registers |= self.outcome

    def start(self) -> None:
        """Run what lies in memory."""
        base = self.registers[PORT_REGISTERS_OFFSET + PortRegister.BASE_LOW]
        assert self.registers[PORT_REGISTERS_OFFSET + PortRegister.BASE_HIGH] == 0
        dram = self.memory[base - MEMORY_ADDRESS :]
        code_address = self.registers[Register.CODE_ADDRESS]
        count = self.registers[Register.INSTRUCTION_COUNT]
        size = count * instruction_bytes(self.config)
        program = Program(
            config=self.config,
            instructions=decode_program(dram[code_address : code_address + size], self.config),
            code_address=code_address,
            dram_bytes=dram.size,
        )
        result = simulate(program, dram)
        dram[:] = result.dram
        self.registers[Register.STATUS] = Status.DONE
        self.registers[Register.CYCLES_LOW] = result.timeline.cycles & 0xFFFF_FFFF
        self.registers[Register.CYCLES_HIGH] = result.timeline.cycles >> 32
        for engine in Engine:
            for part, value in engine_counts(result.timeline, engine).items():
                self.registers[engine_base(engine) + part] = value


def engine_counts(timeline: Timeline, engine: Engine) -> dict[EngineRegister, int]:
    """What an engine's registers hold at the end of a run."""
    account = timeline.account(engine)
    count = int((timeline.engine == engine).sum())
    return {
        EngineRegister.STARTED: count,
        EngineRegister.FINISHED: count,
        EngineRegister.BUSY: account.busy,
        EngineRegister.MEMORY_WAIT: account.memory_wait,
        EngineRegister.TOKEN_WAIT: sum(account.token_wait),
        EngineRegister.FETCH_WAIT: account.fetch_wait,
        EngineRegister.DRAIN: account.drain,
    }


@dataclass
class FakeWindow:
    """Registers from an address on."""

    board: FakeBoard
    address: int

    def read(self, offset: int) -> int:
        if self.address == CONTROL_ADDRESS:
            return self.board.registers.get(offset, 0)
        return self.board.processor.get(self.address + offset, 0)

    def write(self, offset: int, value: int) -> None:
        assert 0 <= value < 1 << 32
        if self.address == CONTROL_ADDRESS:
            self.board.write_register(offset, value)
        elif self.address + offset != CLOCK:
            self.board.processor[self.address + offset] = value
        elif self.board.processor.get(UNLOCK) == 0xDF0D and not self.board.clock_is_stuck:
            self.board.processor[CLOCK] = value
