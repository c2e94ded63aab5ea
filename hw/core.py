"""The accelerator without its registers: fetch, dispatch, engines and scratchpads."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.axi import ReadPort, WritePort
from tilewright.hw.component import Unit
from tilewright.hw.fetch import COUNT_BITS, Fetch
from tilewright.hw.gemm import GemmEngine
from tilewright.hw.layouts import instruction_layout
from tilewright.hw.load import LoadEngine
from tilewright.hw.load_writer import loadable
from tilewright.hw.queue import Queue
from tilewright.hw.scratchpads import (
    block_shape,
    connect_bank,
    connect_load,
    connect_reader,
    connect_writer,
)
from tilewright.hw.store import StoreEngine
from tilewright.hw.tokens import TokenCounters
from tilewright.hw.vector import VectorEngine
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import OPCODE_BITS, encoded_bits
from tilewright.isa.instructions import ADDRESS_BITS, INSTRUCTION_CLASSES, Opcode
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.timing import FINISH_CYCLES, QUEUE_CYCLES, TOKEN_CYCLES

assert (QUEUE_CYCLES, TOKEN_CYCLES, FINISH_CYCLES) == (1, 1, 1), "as the core is built"

#: Width of the cycle counter.
CYCLE_BITS = 64
#: Instructions that an engine may hold between dispatch and finish, as a width.
_UNFINISHED_BITS = 12


class Core(Unit):
    """Runs a program: fetches it, hands its instructions to the engines, and says when it is done.

    The cycle after `start` is cycle 0 of the timing rules; `cycle` counts from there and stays when
    the program ends.

    Attributes
    ----------
    start, address, count
        Begin the program at a DRAM address with a number of instructions.
    running, done, cycle
        A program runs; it ends in this cycle; number of this cycle.
    dispatched, started, finished
        Per engine, an instruction enters its queue, starts or finishes in this cycle.
    queued, waits
        Per engine, whether its queue holds an instruction, and which tokens the first one lacks.
    active, busy
        Per engine, whether an instruction has started whose last step has not been made, and
        whether a step is made or the fixed start-up of one passes.
    fetch, load, store
        The memory ports.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self.config = config
        engines = len(Engine)
        super().__init__(
            {
                "start": In(1),
                "address": In(ADDRESS_BITS),
                "count": In(COUNT_BITS),
                "running": Out(1),
                "done": Out(1),
                "cycle": Out(CYCLE_BITS),
                "dispatched": Out(engines),
                "started": Out(engines),
                "finished": Out(engines),
                "queued": Out(engines),
                "waits": Out(engines).array(engines),
                "active": Out(engines),
                "busy": Out(engines),
                "fetch": Out(ReadPort(config.port_bits)),
                "load": Out(ReadPort(config.port_bits)),
                "store": Out(WritePort(config.port_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        config = self.config
        m.submodules.fetch = fetch = Fetch(config)
        m.submodules.load_engine = load = LoadEngine(config)
        m.submodules.gemm_engine = gemm = GemmEngine(config)
        m.submodules.vector_engine = vector = VectorEngine(config)
        m.submodules.store_engine = store = StoreEngine(config)
        wiring.connect(m, fetch.port, wiring.flipped(self.fetch))
        wiring.connect(m, load.port, wiring.flipped(self.load))
        wiring.connect(m, store.port, wiring.flipped(self.store))
        engines: dict[Engine, Any] = {
            Engine.LOAD: load,
            Engine.GEMM: gemm,
            Engine.VECTOR: vector,
            Engine.STORE: store,
        }
        for engine, unit in engines.items():
            m.d.comb += [self.active[engine].eq(unit.active), self.busy[engine].eq(unit.busy)]
        self._connect_scratchpads(m, load, gemm, vector, store)
        queues = self._dispatch(m, fetch)
        self._start_and_finish(m, queues, engines)
        return m

    def _connect_scratchpads(
        self,
        m: Module,
        load: LoadEngine,
        gemm: GemmEngine,
        vector: VectorEngine,
        store: StoreEngine,
    ) -> None:
        pads = {memory: block_shape(memory, self.config).make() for memory in Memory}
        for memory, blocks in pads.items():
            for number, block in enumerate(blocks):
                m.submodules[block_name(memory, number)] = block
        for memory in loadable(self.config):
            connect_load(m, load.write, memory, pads[memory], self.config)
        for memory, port in (
            (Memory.INP, gemm.inp),
            (Memory.WGT, gemm.wgt),
            (Memory.GUOP, gemm.guop),
            (Memory.VEC, vector.vec),
            (Memory.COEF, vector.coef),
            (Memory.PRM, vector.prm),
            (Memory.VUOP, vector.vuop),
            (Memory.OUT, store.out),
        ):
            connect_reader(m, port, pads[memory][0])
        for lane, block in enumerate(pads[Memory.LUT]):
            connect_reader(m, vector.lut[lane], block)
        connect_writer(m, vector.out, pads[Memory.OUT][0])
        for bank, block in enumerate(pads[Memory.ACC]):
            connect_bank(
                m,
                block,
                (gemm.acc_read[bank], vector.acc_read[bank]),
                (gemm.acc_write[bank], vector.acc_write[bank]),
            )

    def _dispatch(self, m: Module, fetch: Fetch) -> dict[Engine, Queue]:
        """Move fetched instructions into the queues of their engines; end at `Finish`."""
        word = fetch.instruction.payload
        opcode = word[:OPCODE_BITS]
        m.d.comb += [
            fetch.start.eq(self.start),
            fetch.address.eq(self.address),
            fetch.count.eq(self.count),
        ]
        queues = {}
        for kind, cls in INSTRUCTION_CLASSES.items():
            if cls.engine is None:
                continue
            engine = cls.engine
            queue = Queue(instruction_layout(cls, self.config), self.config.queue_entries)
            m.submodules[f"{engine.name.lower()}_queue"] = queues[engine] = queue
            valid = fetch.instruction.valid & (opcode == kind)
            m.d.comb += [
                queue.write.valid.eq(valid),
                queue.write.payload.eq(word[OPCODE_BITS : encoded_bits(cls, self.config)]),
                self.dispatched[engine].eq(valid & queue.write.ready),
            ]
        m.d.comb += fetch.instruction.ready.eq(self.dispatched.any())
        at_finish = fetch.instruction.valid & (opcode == Opcode.FINISH)
        m.d.comb += self.done.eq(self.running & at_finish & ~self._unfinished(m))
        with m.If(self.start):
            m.d.sync += [self.running.eq(1), self.cycle.eq(0)]
        with m.Elif(self.done):
            m.d.sync += self.running.eq(0)
        with m.Elif(self.running):
            m.d.sync += self.cycle.eq(self.cycle + 1)
        return queues

    def _unfinished(self, m: Module) -> Value:
        """Whether any engine has an instruction that has not finished."""
        busy = []
        for engine in Engine:
            count = Signal(_UNFINISHED_BITS, name=f"{engine.name.lower()}_unfinished")
            m.d.sync += count.eq(count + self.dispatched[engine] - self.finished[engine])
            busy.append(count != 0)
        return Cat(busy).any()

    def _start_and_finish(
        self, m: Module, queues: dict[Engine, Queue], engines: dict[Engine, Any]
    ) -> None:
        """Start the head of each queue once its tokens are there; pass its own tokens on."""
        m.submodules.tokens = tokens = TokenCounters(self.config)
        for engine, unit in engines.items():
            head = queues[engine].read
            supplied = Signal(name=f"{engine.name.lower()}_supplied")
            wait = head.payload.wait
            m.d.comb += [
                self.waits[engine].eq(wait & ~tokens.present[engine]),
                supplied.eq(self.waits[engine] == 0),
                unit.instruction.valid.eq(head.valid & supplied),
                unit.instruction.payload.eq(head.payload),
                head.ready.eq(unit.instruction.ready & supplied),
                self.queued[engine].eq(head.valid),
                self.started[engine].eq(head.valid & head.ready),
                tokens.take[engine].eq(Mux(self.started[engine], wait, 0)),
                self.finished[engine].eq(unit.finish),
                tokens.give[engine].eq(Mux(unit.finish, unit.signal, 0)),
            ]


def block_name(memory: Memory, number: int) -> str:
    """Name of the submodule that is a block memory of a scratchpad."""
    return f"{memory.name.lower()}_{number}"
