"""A machine that ticks: the timing rules as state machines, counters and queues.

It is written as hardware would be, after `docs/microarchitecture.md`: units see each other's state
of the cycle before. It shares no code with the simulator and holds no data.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

from tilewright.isa import timing
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.instructions import Gemm, Load, Store, Vector, VectorTarget
from tilewright.isa.memories import Engine, Memory, memory_shape
from tilewright.isa.program import Program

KINDS = ("busy", "memory_wait", "token_wait", "fetch_wait", "drain")


class Fifo:
    """A queue whose output and fill level change in the cycle after a push or pop."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.items: deque[Any] = deque()
        self.pushed: list[Any] = []
        self.popped = 0

    @property
    def has_room(self) -> bool:
        return len(self.items) < self.depth

    def push(self, item: Any) -> None:
        self.pushed.append(item)

    def pop(self) -> Any:
        self.popped += 1
        return self.items[self.popped - 1]

    @property
    def waiting(self) -> bool:
        return len(self.items) > self.popped

    @property
    def head(self) -> Any:
        return self.items[self.popped]

    def clock(self) -> None:
        for _ in range(self.popped):
            self.items.popleft()
        self.items.extend(self.pushed)
        self.pushed, self.popped = [], 0
        assert len(self.items) <= self.depth, "a queue overflows"


class Counter:
    """A register that changes at the end of the cycle."""

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.change = 0

    def clock(self) -> None:
        self.value += self.change
        self.change = 0
        assert self.value >= 0, "a counter underflows"


class ReadPort:
    """Memory behind a read port: a latency, beats in consecutive cycles, a gap after each burst."""

    def __init__(self, config: AcceleratorConfig) -> None:
        self.latency = config.dram.read_latency_cycles
        self.gap_cycles = config.dram.read_gap_cycles
        self.addresses: deque[tuple[int, int]] = deque()
        self.beats_left = 0
        self.gap = 0

    def send(self, cycle: int, beats: int) -> None:
        self.addresses.append((cycle, beats))

    def tick(self, cycle: int) -> bool | None:
        """Return None, or for the beat of this cycle whether it is the last of its burst."""
        if self.gap:
            self.gap -= 1
            return None
        if not self.beats_left and self.addresses:
            sent, beats = self.addresses[0]
            if cycle >= sent + self.latency:
                self.addresses.popleft()
                self.beats_left = beats
        if not self.beats_left:
            return None
        self.beats_left -= 1
        if not self.beats_left:
            self.gap = self.gap_cycles
        return self.beats_left == 0


class Fetch:
    """Fetch address, fetch buffer and dispatch."""

    def __init__(self, machine: "Machine") -> None:
        self.machine = machine
        config = machine.config
        self.port = ReadPort(config)
        self.group = timing.fetch_burst_instructions(config)
        self.room = Counter(config.fetch_entries)
        self.buffer = Fifo(config.fetch_entries)
        self.size, self.beat = instruction_bytes(config), config.port_bytes
        self.to_request = len(machine.program.instructions)
        self.bursts: deque[int] = deque()
        self.bytes = 0
        self.arrived = 0
        self.arrived_of_burst = 0

    def tick(self, cycle: int) -> None:
        self.request(cycle)
        self.receive(cycle)
        self.dispatch(cycle)

    def request(self, cycle: int) -> None:
        if self.to_request and self.room.value >= self.group:
            count = min(self.group, self.to_request)
            self.to_request -= count
            self.room.change -= self.group
            self.bursts.append(count)
            self.port.send(cycle, -(-count * self.size // self.beat))

    def receive(self, cycle: int) -> None:
        last = self.port.tick(cycle)
        if last is None:
            return
        self.bytes += self.beat
        while self.arrived_of_burst < self.bursts[0] and self.bytes >= self.size:
            self.bytes -= self.size
            self.buffer.push(self.arrived)
            self.arrived += 1
            self.arrived_of_burst += 1
        if last:
            self.bursts.popleft()
            self.bytes = self.arrived_of_burst = 0

    def dispatch(self, cycle: int) -> None:
        if not self.buffer.waiting:
            return
        position = self.buffer.head
        engine = self.machine.program.instructions[position].engine
        if engine is None:
            if self.machine.unfinished.value == 0:
                self.machine.end = cycle
        elif self.machine.queues[engine].has_room:
            self.machine.queues[engine].push(self.buffer.pop())
            self.room.change += 1
            self.machine.unfinished.change += 1
            self.machine.dispatch[position] = cycle


class Unit:
    """What all engines share: the head of their queue, its tokens, its start and its finish."""

    def __init__(self, machine: "Machine", engine: Engine) -> None:
        self.machine = machine
        self.engine = engine
        self.config = machine.config
        self.counted = dict.fromkeys(KINDS, 0)
        self.uncommitted = dict.fromkeys(KINDS, 0)

    def tick(self, cycle: int) -> None:
        """Start the next instruction if it can start, work, and count the cycle."""
        reason = self.blocked()
        if reason is None:
            self.start(cycle)
        kind = self.work(cycle)
        if kind is None:
            assert reason is not None, "a started instruction is busy or waits for memory"
            self.uncommitted[reason] += 1
        else:
            for name, count in self.uncommitted.items():
                self.counted[name] += count
            self.uncommitted = dict.fromkeys(KINDS, 0)
            self.counted[kind] += 1

    def blocked(self) -> str | None:
        queue = self.machine.queues[self.engine]
        if not queue.waiting:
            return "fetch_wait"
        instruction = self.machine.program.instructions[queue.head]
        tokens = self.machine.tokens[self.engine]
        if any(instruction.wait >> giver & 1 and not tokens[giver].value for giver in Engine):
            return "token_wait"
        return None if self.ready() else "drain"

    def start(self, cycle: int) -> None:
        position = self.machine.queues[self.engine].pop()
        instruction = self.machine.program.instructions[position]
        for giver in Engine:
            self.machine.tokens[self.engine][giver].change -= instruction.wait >> giver & 1
        self.machine.start[position] = cycle
        self.accept(position, instruction, cycle)

    def finish(self, position: int, cycle: int) -> None:
        instruction = self.machine.program.instructions[position]
        for taker in Engine:
            self.machine.tokens[taker][self.engine].change += instruction.signal >> taker & 1
        self.machine.unfinished.change -= 1
        self.machine.finish[position] = cycle

    def ready(self) -> bool:
        raise NotImplementedError

    def accept(self, position: int, instruction: Any, cycle: int) -> None:
        raise NotImplementedError

    def work(self, cycle: int) -> str | None:
        """Work for a cycle; return what it was, None if nothing has started."""
        raise NotImplementedError


class Issue(Unit):
    """Gemm and vector: nested counters that issue into a pipeline of fixed length."""

    def __init__(self, machine: "Machine", engine: Engine, stages: int) -> None:
        super().__init__(machine, engine)
        self.pipeline: deque[int | None] = deque([None] * stages)
        self.setup = 0
        self.steps: Iterator[bool] = iter(())
        self.issuing = False
        self.position = -1
        self.acc_in_pipeline = False

    def ready(self) -> bool:
        return not self.issuing and not self.acc_in_pipeline

    def accept(self, position: int, instruction: Gemm | Vector, cycle: int) -> None:
        self.position = position
        self.issuing = True
        self.setup = timing.ISSUE_START_CYCLES
        self.steps = last_flags(
            itertools.product(
                *(range(loop.extent) for loop in instruction.loops), range(instruction.uop_count)
            )
        )
        if isinstance(instruction, Vector):
            self.acc_in_pipeline = instruction.target is VectorTarget.ACC

    def work(self, cycle: int) -> str | None:
        leaving = self.pipeline.popleft()
        entering = None
        kind = "busy" if self.issuing else None
        if self.issuing and self.setup:
            self.setup -= 1
        elif self.issuing and next(self.steps):
            entering = self.position
            self.issuing = False
        self.pipeline.append(entering)
        if leaving is not None:
            self.finish(leaving, cycle)
            self.acc_in_pipeline &= leaving != self.position
        return kind


def last_flags(items: Iterator[Any]) -> Iterator[bool]:
    """Yield False for every item but the last, and True for that."""
    next(items)
    for _ in items:
        yield False
    yield True


def row_begins(transfer: Load | Store) -> Iterator[int]:
    for plane in range(transfer.planes):
        for row in range(transfer.rows):
            address = transfer.address + plane * transfer.plane_stride + row * transfer.row_stride
            yield address % 2**32


def bursts_of(
    transfer: Load | Store, entry_bytes: int, config: AcceleratorConfig, unit: int
) -> Iterator[int]:
    """Units of each burst, found byte by byte: a new burst at every row and every boundary."""
    for begin in row_begins(transfer):
        touched = range(begin, begin + transfer.entries * entry_bytes)
        for _, burst in itertools.groupby(touched, lambda byte: byte // config.burst_bytes):
            yield len({byte // unit for byte in burst})


class LoadUnit(Unit):
    """Address stage, data buffer and write stage."""

    def __init__(self, machine: "Machine") -> None:
        super().__init__(machine, Engine.LOAD)
        self.port = ReadPort(self.config)
        self.in_buffer = Counter()
        self.unwritten = Counter()
        self.beats = Fifo(self.config.load_bursts * self.config.burst_beats)
        self.addresses: Iterator[int] = iter(())
        self.next_burst: int | None = None
        self.setup = 0
        self.started: deque[tuple[int, int, Iterator[tuple[bool, bool]]]] = deque()
        self.next_step: tuple[bool, bool] | None = None
        self.writes: deque[int | None] = deque([None] * timing.LOAD_WRITE_CYCLES)

    def ready(self) -> bool:
        idle = not self.setup and self.next_burst is None
        return idle and self.unwritten.value < timing.LOADS_AHEAD

    def accept(self, position: int, load: Load, cycle: int) -> None:
        entry_bytes = memory_shape(load.memory, self.config).entry_bytes
        self.addresses = bursts_of(load, entry_bytes, self.config, self.config.port_bytes)
        self.setup = timing.LOAD_START_CYCLES
        self.unwritten.change += 1
        self.started.append((position, cycle, steps_of(load, entry_bytes, self.config.port_bytes)))

    def work(self, cycle: int) -> str | None:
        last = self.port.tick(cycle)
        if last is not None:
            self.beats.push(last)
        kind = self.write(cycle)
        self.send(cycle)
        return kind

    def send(self, cycle: int) -> None:
        if self.setup:
            self.setup -= 1
            if not self.setup:
                self.next_burst = next(self.addresses, None)
        elif self.next_burst is not None and self.in_buffer.value < self.config.load_bursts:
            self.port.send(cycle, self.next_burst)
            self.in_buffer.change += 1
            self.next_burst = next(self.addresses, None)

    def write(self, cycle: int) -> str | None:
        leaving = self.writes.popleft()
        if leaving is not None:
            self.finish(leaving, cycle)
        self.writes.append(None)
        if not self.started:
            return None
        position, start, steps = self.started[0]
        if cycle < start + timing.LOAD_START_CYCLES:
            return "busy"
        if self.next_step is None:
            self.next_step = next(steps)
        needs_beat, frees_beat = self.next_step
        if needs_beat and not self.beats.waiting:
            return "memory_wait"
        if frees_beat and self.beats.pop():
            self.in_buffer.change -= 1
        self.next_step = next(steps, None)
        if self.next_step is None:
            self.writes[-1] = position
            self.unwritten.change -= 1
            self.started.popleft()
        return "busy"


def steps_of(load: Load, entry_bytes: int, beat: int) -> Iterator[tuple[bool, bool]]:
    """Steps of the write stage: whether each needs a beat, and whether it was that beat's last."""
    width = load.pad_left + load.entries + load.pad_right
    padding = (False, False)
    begins = row_begins(load)
    for _ in range(load.planes):
        yield from [padding] * (load.pad_top * width)
        for address in itertools.islice(begins, load.rows):
            yield from [padding] * load.pad_left
            end = address + load.entries * entry_bytes
            while address < end:
                address += min(entry_bytes, beat)
                yield True, address % beat == 0 or address == end
            yield from [padding] * load.pad_right
        yield from [padding] * (load.pad_bottom * width)


class StoreUnit(Unit):
    """Read stage, data stages, and memory behind a write port that answers every burst."""

    def __init__(self, machine: "Machine") -> None:
        super().__init__(machine, Engine.STORE)
        self.outstanding = Counter()
        self.bursts: deque[int] = deque()
        self.position = -1
        self.setup = 0
        self.steps_left = 0
        self.gap = 0
        self.streamed: deque[tuple[int, int | None]] = deque()

    def ready(self) -> bool:
        return not self.bursts and not self.steps_left

    def accept(self, position: int, store: Store, cycle: int) -> None:
        entry_bytes = memory_shape(Memory.OUT, self.config).entry_bytes
        step_bytes = min(entry_bytes, self.config.port_bytes)
        self.position = position
        self.setup = timing.STORE_START_CYCLES
        self.bursts = deque(bursts_of(store, entry_bytes, self.config, step_bytes))

    def work(self, cycle: int) -> str | None:
        self.respond(cycle)
        if self.setup:
            self.setup -= 1
            self.gap = max(0, self.gap - 1)
            return "busy"
        if self.steps_left:
            return self.step(cycle)
        if self.gap:
            self.gap -= 1
            return "memory_wait" if self.bursts else None
        if not self.bursts:
            return None
        if self.outstanding.value >= self.config.store_bursts:
            return "memory_wait"
        self.steps_left = self.bursts.popleft()
        self.outstanding.change += 1
        return self.step(cycle)

    def step(self, cycle: int) -> str:
        self.steps_left -= 1
        if not self.steps_left:
            self.gap = self.config.dram.write_gap_cycles
            last = self.position if not self.bursts else None
            self.streamed.append((cycle + timing.STORE_DATA_CYCLES, last))
        return "busy"

    def respond(self, cycle: int) -> None:
        latency = self.config.dram.write_latency_cycles
        if self.streamed and cycle == self.streamed[0][0] + latency:
            _, last = self.streamed.popleft()
            self.outstanding.change -= 1
            if last is not None:
                self.finish(last, cycle)


def clocked(item: Any) -> bool:
    return isinstance(item, Fifo | Counter)


class Machine:
    """All units, and the queues and counters between them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.config = program.config
        self.queues = [Fifo(self.config.queue_entries) for _ in Engine]
        self.tokens = [[Counter() for _ in Engine] for _ in Engine]
        self.unfinished = Counter()
        self.dispatch: dict[int, int] = {}
        self.start: dict[int, int] = {}
        self.finish: dict[int, int] = {}
        self.end: int | None = None
        self.fetch = Fetch(self)
        self.units = [
            LoadUnit(self),
            Issue(self, Engine.GEMM, timing.gemm_stages(self.config)),
            Issue(self, Engine.VECTOR, timing.VECTOR_STAGES),
            StoreUnit(self),
        ]
        owners = [self, self.fetch, *self.units]
        self.registers = [
            *itertools.chain(*self.tokens),
            *self.queues,
            *(item for owner in owners for item in vars(owner).values() if clocked(item)),
        ]

    def run(self) -> int:
        for cycle in itertools.count():
            self.fetch.tick(cycle)
            if self.end is not None:
                return self.end
            for unit in self.units:
                unit.tick(cycle)
            for register in self.registers:
                register.clock()
        raise AssertionError("the clock does not stop")
