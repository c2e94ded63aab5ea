"""The sequencer of the gemm and the vector engine: loops and micro-ops, one step per cycle."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from tilewright.hw.component import Unit
from tilewright.hw.layouts import instruction_layout
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import EXTENT_BITS, LOOP_LEVELS, Gemm, GemmLoop, Vector, VectorLoop


def index_kinds(cls: type[Gemm] | type[Vector]) -> tuple[str, ...]:
    """Names of the indices that the loops of an instruction class advance."""
    loop = GemmLoop if cls is Gemm else VectorLoop
    return tuple(name for name in loop.__slots__ if name != "extent")


def step_layout(cls: type[Gemm] | type[Vector], config: AcceleratorConfig) -> data.StructLayout:
    """What the sequencer says of a step: number of the micro-op, and indices to be added to it."""
    instruction = instruction_layout(cls, config)
    widths = {kind: instruction[kind].width for kind in index_kinds(cls)}
    return data.StructLayout(
        {
            "first": unsigned(1),
            "last": unsigned(1),
            "uop": unsigned(instruction["uop_begin"].width),
            **{kind: unsigned(width) for kind, width in widths.items()},
        }
    )


class Sequencer(Unit):
    """Makes the steps ``for i0: for i1: for i2: for uop`` of one instruction after the other.

    An instruction taken in cycle c makes its first step in c + ISSUE_START_CYCLES (one cycle to set
    the counters), then one per cycle; the next one is taken after the last step at the earliest.

    Attributes
    ----------
    instruction
        Instructions come in.
    active
        An instruction has started, in this cycle or before, and its last step has not been made.
    valid, step
        The step of this cycle.
    current
        The instruction of this step.
    """

    def __init__(self, cls: type[Gemm] | type[Vector], config: AcceleratorConfig) -> None:
        self._cls = cls
        self._layout = instruction_layout(cls, config)
        super().__init__(
            {
                "instruction": In(stream.Signature(self._layout)),
                "active": Out(1),
                "valid": Out(1),
                "step": Out(step_layout(cls, config)),
                "current": Out(self._layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        setting_up = Signal()
        issuing = Signal()
        m.d.comb += [
            self.instruction.ready.eq(~setting_up & ~issuing),
            self.active.eq(setting_up | issuing | self.instruction.valid),
            self.valid.eq(issuing),
        ]
        m.d.sync += setting_up.eq(self.instruction.valid & self.instruction.ready)
        # Whether an instruction starts is known late, and what is kept without one does no harm.
        with m.If(self.instruction.ready):
            m.d.sync += self.current.eq(self.instruction.payload)
        with m.If(setting_up):
            m.d.sync += issuing.eq(1)
        last_uop, advance, last = self._count(m, setting_up, issuing)
        self._index(m, setting_up, advance)
        first = Signal()
        m.d.sync += first.eq(setting_up)
        m.d.comb += [self.step.first.eq(first), self.step.last.eq(last & last_uop)]
        with m.If(issuing & last & last_uop):
            m.d.sync += issuing.eq(0)
        return m

    def _count(self, m: Module, setting_up: Signal, issuing: Signal) -> tuple[Any, list[Any], Any]:
        """Count micro-ops and iterations down.

        Returns the flag of the last micro-op, for each loop whether it advances after this step,
        and the flag of the last iteration of all loops.
        """
        count = self._layout["uop_count"].width
        last_uop = Signal()
        left = Signal(count)
        with m.If(setting_up | last_uop):
            m.d.sync += [
                self.step.uop.eq(self.current.uop_begin),
                left.eq(self.current.uop_count),
                last_uop.eq(self.current.uop_count == 1),
            ]
        with m.Else():
            m.d.sync += [
                self.step.uop.eq(self.step.uop + 1),
                left.eq(left - 1),
                last_uop.eq(left == 2),
            ]
        advance: list[Any] = [None] * LOOP_LEVELS
        inner_last: Any = last_uop
        all_last: Any = 1
        for level in reversed(range(LOOP_LEVELS)):
            extent = self.current[f"loops_{level}_extent"]
            loop_left = Signal(EXTENT_BITS, name=f"left_{level}")
            loop_last = Signal(name=f"last_{level}")
            with m.If(setting_up | (issuing & inner_last & loop_last)):
                m.d.sync += [loop_left.eq(extent), loop_last.eq(extent == 1)]
            with m.Elif(issuing & inner_last):
                m.d.sync += [loop_left.eq(loop_left - 1), loop_last.eq(loop_left == 2)]
            advance[level] = issuing & inner_last & ~loop_last
            inner_last = inner_last & loop_last
            all_last = all_last & loop_last
        return last_uop, advance, all_last

    def _index(self, m: Module, setting_up: Signal, advance: list[Any]) -> None:
        """Advance the indices: a loop that advances restarts the loops inside it."""
        for kind in index_kinds(self._cls):
            begins = [Signal.like(self.current[kind], name=f"{kind}_{i}") for i in range(3)]
            moved = Signal.like(self.current[kind], name=f"{kind}_moved")
            base, stride = begins[-1], self.current[f"loops_{LOOP_LEVELS - 1}_{kind}"]
            for level in reversed(range(LOOP_LEVELS - 1)):
                base = Mux(advance[level], begins[level], base)
                stride = Mux(advance[level], self.current[f"loops_{level}_{kind}"], stride)
            m.d.comb += [moved.eq(base + stride), self.step[kind].eq(begins[-1])]
            outer: Any = 0
            for level, begin in enumerate(begins):
                outer = outer | advance[level]
                with m.If(setting_up):
                    m.d.sync += begin.eq(self.current[kind])
                with m.Elif(outer):
                    m.d.sync += begin.eq(moved)


def mark_runs(m: Module, steps: Any) -> Any:
    """Find where runs begin and end.

    Parameters
    ----------
    steps
        View with `dst`, and `begins_run` and `ends_run` set at the first and the last step of an
        instruction, whose steps come without gaps.

    Returns
    -------
    The same one cycle later, `begins_run` and `ends_run` set at those of every run.
    """
    current: Any = Signal(steps.shape())
    marked: Any = Signal(steps.shape())
    moves = Signal()
    m.d.sync += [current.eq(steps), current.begins_run.eq(steps.begins_run | moves)]
    m.d.comb += [
        moves.eq(steps.dst != current.dst),
        marked.eq(current),
        marked.ends_run.eq(current.ends_run | moves),
    ]
    return marked
