"""What the tests of hardware units share: running them in Amaranth's simulator."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from amaranth.hdl import Elaboratable
from amaranth.sim import Simulator

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import OPCODE_BITS, encode
from tilewright.isa.instructions import AnyInstruction

Bytes: TypeAlias = npt.NDArray[np.uint8]
#: Whether a run goes on.
Running: TypeAlias = Callable[[], bool]
#: Runs test benches beside a unit until all of them have ended.
RunBenches = Callable[..., None]


@pytest.fixture
def run_benches() -> RunBenches:
    """A function of a unit and test benches, which are async functions of the context."""

    def run(unit: Elaboratable, *benches: Any) -> None:
        simulator = Simulator(unit)
        simulator.add_clock(1e-6)
        for bench in benches:
            simulator.add_testbench(bench)
        simulator.run()

    return run


class ScratchpadModel:
    """A scratchpad whose reads that meet a write, or are not asked for, return noise.

    Parameters
    ----------
    contents
        uint8, (entries, bytes of an entry); changed by writes.
    """

    def __init__(self, contents: Bytes, rng: np.random.Generator) -> None:
        self.contents = contents
        self._rng = rng

    def bench(self, running: Running, read: Any, write: Any = None) -> Any:
        """Make a test bench that answers a read port and a write port, where there are some."""

        async def serve(ctx: Any) -> None:
            while running():
                written = self._write(ctx, write)
                answer = None if read is None else self._read(ctx, read, written)
                await ctx.tick()
                if answer is not None:
                    ctx.set(read.data, answer)

        return serve

    def _write(self, ctx: Any, port: Any) -> int | None:
        """Write, and return the entry."""
        if port is None or not ctx.get(port.enable):
            return None
        entry: int = ctx.get(port.address)
        data = ctx.get(port.data).to_bytes(self.contents.shape[1], "little")
        self.contents[entry] = np.frombuffer(data, np.uint8)
        return entry

    def _read(self, ctx: Any, port: Any, written: int | None) -> int:
        entry = ctx.get(port.address)
        known = ctx.get(port.enable) and entry != written
        data = self.contents[entry].tobytes() if known else self._noise()
        return int.from_bytes(data, "little") & (1 << len(port.data)) - 1

    def _noise(self) -> bytes:
        return self._rng.bytes(self.contents.shape[1])


@pytest.fixture
def scratchpad(rng: np.random.Generator) -> Callable[[Bytes], ScratchpadModel]:
    """A function that makes a scratchpad of its contents."""
    return lambda contents: ScratchpadModel(contents, rng)


class EngineRecord:
    """Gives instructions to an engine and notes when they start and finish."""

    def __init__(
        self, engine: Any, instructions: Sequence[AnyInstruction], config: AcceleratorConfig
    ) -> None:
        self.starts: list[int] = []
        self.finishes: list[int] = []
        #: Tokens that were given with each finish.
        self.signals: list[int] = []
        self._engine = engine
        self._instructions = instructions
        self._config = config

    def running(self) -> bool:
        return len(self.signals) < len(self._instructions)

    async def give(self, ctx: Any) -> None:
        port = self._engine.instruction
        for instruction in self._instructions:
            word = int.from_bytes(encode(instruction, self._config), "little") >> OPCODE_BITS
            ctx.set(port.payload.as_value(), word)
            ctx.set(port.valid, 1)
            await ctx.tick().until(port.ready)
            ctx.set(port.valid, 0)

    async def watch(self, ctx: Any) -> None:
        engine, cycle = self._engine, 0
        while self.running():
            if ctx.get(engine.instruction.valid) and ctx.get(engine.instruction.ready):
                self.starts.append(cycle)
            finished, signal = ctx.get(engine.finish), ctx.get(engine.signal)
            await ctx.tick()
            if finished:
                self.finishes.append(cycle)
                self.signals.append(signal)
            cycle += 1


@pytest.fixture
def record_engine() -> type[EngineRecord]:
    """The class of records of an engine."""
    return EngineRecord
