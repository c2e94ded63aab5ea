"""The gemm engine: sequencer, multiplier array, and accumulation into `acc`."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.array import MultiplierArray, join, lanes
from tilewright.hw.component import Unit
from tilewright.hw.layouts import instruction_layout, uop_bits, uop_layout
from tilewright.hw.pipeline import delayed, staged
from tilewright.hw.scratchpad import ReadPort, WritePort
from tilewright.hw.sequencer import Sequencer, mark_runs
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import Gemm, GemmUop
from tilewright.isa.memories import Engine
from tilewright.isa.timing import GEMM_FIXED_STAGES

#: Width of an accumulator.
_ACC_BITS = 32
#: Stages, counted from the issue of a step: its operands leave the scratchpads, its products have
#: passed an adder tree without levels, its run is written.
_READ_STAGE = 3
_SUM_STAGE = 6
assert GEMM_FIXED_STAGES == _SUM_STAGE + 3, "the pipeline must have the depth that isa/ states"


class GemmEngine(Unit):
    """Multiplies blocks as `Gemm` says; a step issued in cycle c is written `gemm_stages` later.

    Nothing stalls. Products of one run are summed in a register; a run that returns to an
    accumulator whose last write the read has missed takes that value from the pipeline.

    Attributes
    ----------
    instruction
        Instructions come in; one is started in the cycle of the handshake.
    finish, signal
        In the cycle in which an instruction finishes, and the engines it gives tokens to.
    active, busy
        An instruction has started and its last step has not been issued.
    guop, inp, wgt
        Scratchpads that are read.
    acc_read, acc_write
        Banks of `acc`.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        self._control = data.StructLayout(
            {
                "valid": unsigned(1),
                "begins_run": unsigned(1),
                "ends_run": unsigned(1),
                "finishes": unsigned(1),
                "accumulate": unsigned(1),
                "signal": unsigned(len(Engine)),
                "dst": unsigned(config.acc_index_bits),
            }
        )
        acc_bits = _ACC_BITS * config.batch * config.block_out
        bank = config.acc_bank_entries
        uop_width = uop_bits(GemmUop, config)
        row_bits = 8 * config.block_in
        super().__init__(
            {
                "instruction": In(stream.Signature(instruction_layout(Gemm, config))),
                "finish": Out(1),
                "signal": Out(len(Engine)),
                "active": Out(1),
                "busy": Out(1),
                "guop": Out(ReadPort(entries=config.gemm_uop_entries, entry_bits=uop_width)),
                "inp": Out(
                    ReadPort(entries=config.inp_entries, entry_bits=row_bits * config.batch)
                ),
                "wgt": Out(
                    ReadPort(entries=config.wgt_entries, entry_bits=row_bits * config.block_out)
                ),
                "acc_read": Out(ReadPort(entries=bank, entry_bits=acc_bits)).array(2),
                "acc_write": Out(WritePort(entries=bank, lanes=1, lane_bits=acc_bits)).array(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        config = self._config
        m.submodules.sequencer = sequencer = Sequencer(Gemm, config)
        m.submodules.array = array = MultiplierArray(config)
        wiring.connect(m, wiring.flipped(self.instruction), sequencer.instruction)
        m.d.comb += [
            self.active.eq(sequencer.active),
            self.busy.eq(sequencer.active),
        ]
        addressed = self._address(m, sequencer)
        for target, port, name in (
            (array.operands, self.inp, "operands"),
            (array.weights, self.wgt, "weights"),
        ):
            m.d.comb += target.eq(delayed(m, port.data, 1, name=name, is_data=True))
        read = mark_runs(m, addressed)
        tree_levels = (config.block_in - 1).bit_length()
        nearing = delayed(m, read, _SUM_STAGE + tree_levels - _READ_STAGE - 1, name="control")
        self._accumulate(m, nearing, list(array.sums))
        return m

    def _address(self, m: Module, sequencer: Sequencer) -> Any:
        """Read the micro-op, add its indices, and read the scratchpads."""
        step, current = sequencer.step, sequencer.current
        uop = uop_layout(GemmUop, self._config)(self.guop.data)
        begin: Any = Signal(step.shape())
        issued: Any = Signal(self._control)
        addressed: Any = Signal(self._control)
        m.d.comb += [
            self.guop.enable.eq(sequencer.valid),
            self.guop.address.eq(step.uop),
            self.inp.enable.eq(addressed.valid),
            self.wgt.enable.eq(addressed.valid),
        ]
        m.d.sync += [
            begin.eq(step),
            issued.valid.eq(sequencer.valid),
            issued.accumulate.eq(current.accumulate),
            issued.signal.eq(current.signal),
            issued.begins_run.eq(step.first),
            issued.ends_run.eq(step.last),
            issued.finishes.eq(step.last),
            addressed.eq(issued),
            addressed.dst.eq(uop.dst + begin.dst),
            self.inp.address.eq(uop.src + begin.src),
            self.wgt.address.eq(uop.wgt + begin.wgt),
        ]
        return addressed

    def _accumulate(self, m: Module, nearing: Any, sums: list[Value]) -> None:
        """Sum the products of a run, then add them to the accumulators, or overwrite these.

        `nearing` is what is to be done with the sums of the next cycle.
        """
        summed = delayed(m, nearing, 1, name="summed")
        runs = [
            Signal(signed(_ACC_BITS), name=f"run_{i}", reset_less=True) for i in range(len(sums))
        ]
        for run, term in zip(runs, sums, strict=True):
            m.d.sync += run.eq(Mux(summed.begins_run, 0, run) + term)
        ended: Any = Signal(self._control)
        added: Any = Signal(self._control)
        written: Any = Signal(self._control)
        m.d.sync += [
            ended.eq(summed),
            ended.valid.eq(summed.valid & summed.ends_run),
            added.eq(ended),
            written.eq(added),
        ]
        results = Signal(_ACC_BITS * len(sums))
        index, upper = self._place(m, nearing)
        stored = self._read(m, summed, added, written, results, upper)
        old = staged(m, ended.valid & ended.accumulate, stored, name="old")
        held = [staged(m, ended.valid, run, name="held") for run in runs]
        totals = [before + run for before, run in zip(lanes(old, _ACC_BITS), held, strict=True)]
        m.d.comb += results.eq(staged(m, added.valid, join(totals, _ACC_BITS), name="results"))
        write_index = delayed(m, index, 3, name="write_index")
        write_upper = delayed(m, upper, 3, name="write_upper")
        for number in range(2):
            m.d.comb += [
                self.acc_read[number].enable.eq(summed.valid & summed.ends_run & (upper == number)),
                self.acc_read[number].address.eq(index),
                self.acc_write[number].enable.eq(written.valid & (write_upper == number)),
                self.acc_write[number].address.eq(write_index),
                self.acc_write[number].data.eq(results),
            ]
        m.d.comb += [
            self.finish.eq(written.valid & written.finishes),
            self.signal.eq(written.signal),
        ]

    def _place(self, m: Module, nearing: Any) -> tuple[Signal, Signal]:
        """Return the entry within a bank that a run ends in, and whether it is the upper bank."""
        bank = self._config.acc_bank_entries
        index, upper = Signal(range(bank)), Signal()
        m.d.sync += [
            upper.eq(nearing.dst >= bank),
            index.eq(Mux(nearing.dst >= bank, nearing.dst - bank, nearing.dst)),
        ]
        return index, upper

    def _read(
        self, m: Module, summed: Any, added: Any, written: Any, results: Value, upper: Value
    ) -> Value:
        """Return the accumulators of the run that has ended, read in the cycle of its last sums.

        The read misses what is written in that cycle or in the next one. Of two runs that follow
        each other directly the accumulators differ, else they would be one run.
        """
        previous_results = staged(m, written.valid, results, name="previous_results")
        misses_last, misses_previous = Signal(), Signal()
        m.d.sync += [
            misses_last.eq(added.valid & (added.dst == summed.dst)),
            misses_previous.eq(written.valid & (written.dst == summed.dst)),
        ]
        read_upper = delayed(m, upper, 1, name="read_upper")
        read = Mux(read_upper, self.acc_read[1].data, self.acc_read[0].data)
        return Mux(misses_last, results, Mux(misses_previous, previous_results, read))
