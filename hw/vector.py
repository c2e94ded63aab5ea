"""The vector engine: sequencer, lanes, requantisation, look-up, and write to `out` or `acc`."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from tilewright.hw.array import join, lanes
from tilewright.hw.booth import booth_rows, sum_tree
from tilewright.hw.component import Unit
from tilewright.hw.layouts import instruction_layout, uop_bits, uop_layout
from tilewright.hw.pipeline import delayed, staged
from tilewright.hw.requantise import REQUANTISE_STAGES, RequantiseLane, parameters_layout
from tilewright.hw.scratchpad import ReadPort, WritePort
from tilewright.hw.sequencer import Sequencer, mark_runs
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import (
    VECTOR_OPERAND_BITS,
    Vector,
    VectorOperation,
    VectorTarget,
    VectorUop,
)
from tilewright.isa.memories import LUT_LENGTH, PRM_CHANNEL_BYTES, Engine
from tilewright.isa.timing import VECTOR_STAGES

#: Widths of an accumulator and of a coefficient.
_ACC_BITS = 32
_COEF_BITS = 16
#: Multipliers of a lane's requantisation.
_REQUANTISE_MULTIPLIERS = 2
#: Stages, counted from the issue of a step, at whose beginning its data is: out of the
#: scratchpads, multiplied, combined with its run, clipped, written.
_READ_STAGE = 4
_MULTIPLIED_STAGE = 7
_COMBINED_STAGE = 8
_CLIPPED_STAGE = _COMBINED_STAGE + REQUANTISE_STAGES
_WRITE_STAGE = _CLIPPED_STAGE + 2
#: Operands of an instruction that accompany its steps.
_CARRIED = (
    "signal",
    "operation",
    "target",
    "requantise",
    "lookup",
    "lut",
    "zero_point",
    "low",
    "high",
)
assert VECTOR_STAGES == _WRITE_STAGE, "the pipeline must have the depth that isa/ states"


class VectorEngine(Unit):
    """Executes `Vector`; a step issued in cycle c is written VECTOR_STAGES later.

    Nothing stalls, but an instruction that follows one with target `acc` is not taken before that
    one has finished.

    Attributes
    ----------
    instruction
        Instructions come in; one is started in the cycle of the handshake.
    finish, signal
        In the cycle in which an instruction finishes, and the engines it gives tokens to.
    active, busy
        An instruction has started and its last step has not been issued.
    vuop, vec, coef, prm, acc_read
        Scratchpads that are read.
    lut
        Look-up tables, one copy per lane; a table is cut into words as wide as a memory port.
    acc_write, out
        Scratchpads that are written.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        self._lanes = config.batch * config.block_out
        bank = config.acc_bank_entries
        acc_bits = _ACC_BITS * self._lanes
        self._control = data.StructLayout(
            {
                "valid": unsigned(1),
                "begins_run": unsigned(1),
                "ends_run": unsigned(1),
                "finishes": unsigned(1),
                "dst": unsigned(config.result_index_bits),
                "prm": unsigned(config.prm_index_bits),
                **{name: instruction_layout(Vector, config)[name].shape for name in _CARRIED},
            }
        )
        self._finishes_acc = Signal()
        uop_width = uop_bits(VectorUop, config)
        prm_bits = 8 * PRM_CHANNEL_BYTES * config.block_out
        super().__init__(
            {
                "instruction": In(stream.Signature(instruction_layout(Vector, config))),
                "finish": Out(1),
                "signal": Out(len(Engine)),
                "active": Out(1),
                "busy": Out(1),
                "vuop": Out(ReadPort(entries=config.vector_uop_entries, entry_bits=uop_width)),
                "vec": Out(ReadPort(entries=config.vec_entries, entry_bits=8 * self._lanes)),
                "coef": Out(
                    ReadPort(entries=config.coef_entries, entry_bits=_COEF_BITS * config.block_out)
                ),
                "prm": Out(ReadPort(entries=config.prm_entries, entry_bits=prm_bits)),
                "lut": Out(ReadPort(entries=lut_words(config), entry_bits=config.port_bits)).array(
                    self._lanes
                ),
                "acc_read": Out(ReadPort(entries=bank, entry_bits=acc_bits)).array(2),
                "acc_write": Out(WritePort(entries=bank, lanes=1, lane_bits=acc_bits)).array(2),
                "out": Out(
                    WritePort(entries=config.out_entries, lanes=1, lane_bits=8 * self._lanes)
                ),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        m.submodules.sequencer = sequencer = Sequencer(Vector, self._config)
        self._issue(m, sequencer)
        addressed = self._address(m, sequencer)
        marked = mark_runs(m, addressed)
        last_use = _WRITE_STAGE - (_READ_STAGE - 1)
        controls = [marked]
        for stage in range(last_use):
            controls.append(delayed(m, controls[-1], 1, name=f"control_{stage}"))
        at = {_READ_STAGE - 1 + cycles: control for cycles, control in enumerate(controls)}
        runs = self._combine(m, at)
        results, raw = self._requantise(m, at, runs)
        self._write(m, at, results, raw)
        return m

    def _issue(self, m: Module, sequencer: Sequencer) -> None:
        """Take an instruction unless the one before has `acc` as target and is not done."""
        pending = Signal()
        taken = Signal()
        target = self.instruction.payload.target
        m.d.comb += [
            taken.eq(self.instruction.valid & self.instruction.ready),
            sequencer.instruction.valid.eq(self.instruction.valid & ~pending),
            sequencer.instruction.payload.eq(self.instruction.payload),
            self.instruction.ready.eq(sequencer.instruction.ready & ~pending),
            self.active.eq(sequencer.active),
            self.busy.eq(sequencer.active),
        ]
        with m.If(taken & (target == VectorTarget.ACC)):
            m.d.sync += pending.eq(1)
        with m.Elif(self._finishes_acc):
            m.d.sync += pending.eq(0)

    def _address(self, m: Module, sequencer: Sequencer) -> Any:
        """Read the micro-op, add its indices, select memory and bank, and read the operands."""
        config = self._config
        step, current = sequencer.step, sequencer.current
        uop = uop_layout(VectorUop, config)(self.vuop.data)
        begin: Any = Signal(step.shape())
        issued: Any = Signal(self._control)
        addressed: Any = Signal(self._control)
        source = Signal(config.operand_bits)
        coef = Signal(config.coef_index_bits)
        m.d.comb += [self.vuop.enable.eq(sequencer.valid), self.vuop.address.eq(step.uop)]
        m.d.sync += [
            begin.eq(step),
            issued.valid.eq(sequencer.valid),
            issued.begins_run.eq(step.first),
            issued.ends_run.eq(step.last),
            issued.finishes.eq(step.last),
            issued.prm.eq(step.prm),
            *(issued[name].eq(current[name]) for name in _CARRIED),
            addressed.eq(issued),
            addressed.dst.eq(uop.dst + begin.dst),
            source.eq(uop.src + begin.src),
            coef.eq(uop.coef + begin.coef),
            self.vec.enable.eq(addressed.valid & ~source[-1]),
            self.vec.address.eq(source),
            self.coef.enable.eq(addressed.valid),
            self.coef.address.eq(coef),
        ]
        bank = config.acc_bank_entries
        index = source[: config.acc_index_bits]
        for number, (first, inside) in enumerate(((0, index < bank), (bank, index >= bank))):
            m.d.sync += [
                self.acc_read[number].enable.eq(addressed.valid & source[-1] & inside),
                self.acc_read[number].address.eq(index - first),
            ]
        return addressed

    def _combine(self, m: Module, at: dict[int, Any]) -> list[Value]:
        """Multiply operands with coefficients or not, and combine the operands of a run."""
        lanes_of = [lanes(port.data, _ACC_BITS) for port in self.acc_read]
        from_acc = [delayed(m, port.enable, 1, name="from_acc") for port in self.acc_read]
        bytes_ = lanes(self.vec.data, 8)
        coefs = lanes(self.coef.data, _COEF_BITS) * self._config.batch
        control = at[_MULTIPLIED_STAGE]
        read, multiplied, selected = (at[_READ_STAGE + stage].valid for stage in range(3))
        is_mac = at[_MULTIPLIED_STAGE - 1].operation == VectorOperation.MAC
        runs: list[Value] = []
        for i in range(self._lanes):
            word = Mux(from_acc[1], lanes_of[1][i], Mux(from_acc[0], lanes_of[0][i], bytes_[i]))
            operand = staged(m, read, word, name=f"operand_{i}")
            coef = staged(m, read, coefs[i], name=f"coef_{i}")
            passed = staged(m, multiplied, operand, name=f"passed_{i}")
            narrow = operand[:VECTOR_OPERAND_BITS].as_signed()
            if self._config.lane_multipliers > _REQUANTISE_MULTIPLIERS:
                both = narrow * coef
            else:
                both = sum_tree(m, booth_rows(coef, narrow), name=f"product_{i}_sum")
            product = staged(m, multiplied, both[:_ACC_BITS].as_signed(), name=f"product_{i}")
            value = staged(m, selected, Mux(is_mac, product, passed), name=f"value_{i}")
            run = Signal(signed(_ACC_BITS), name=f"run_{i}", reset_less=True)
            m.d.sync += run.eq(Mux(control.valid, _combined(control, run, value), 0))
            runs.append(run)
        return runs

    def _requantise(
        self, m: Module, at: dict[int, Any], runs: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        """Return the int8 result of each lane and its unscaled int32, both after the clip."""
        layout = parameters_layout()
        read = at[_COMBINED_STAGE - 2]
        m.d.comb += [
            self.prm.enable.eq(_ends(read)),
            self.prm.address.eq(read.prm),
        ]
        unscaled: Any = layout.const({"bias": 0, "multiplier": 1, "shift": 0, "unused": 0})
        parameters = []
        for channel in range(self._config.block_out):
            word = self.prm.data.word_select(channel, layout.size)
            scaled = at[_COMBINED_STAGE - 1].requantise
            selected = Mux(scaled, word, unscaled.as_value())
            parameters.append(
                staged(m, _ends(at[_COMBINED_STAGE - 1]), selected, name=f"parameters_{channel}")
            )
        results, raw = [], []
        clip = at[_CLIPPED_STAGE - 1]
        rounding = at[_CLIPPED_STAGE - 2]
        valid = Cat(_ends(at[_COMBINED_STAGE + stage]) for stage in range(REQUANTISE_STAGES))
        for i, run in enumerate(runs):
            m.submodules[f"requantise_{i}"] = lane = RequantiseLane(
                min(self._config.lane_multipliers, _REQUANTISE_MULTIPLIERS)
            )
            m.d.comb += [
                lane.valid.eq(valid),
                lane.run.eq(run),
                lane.parameters.eq(parameters[i % self._config.block_out]),
                lane.zero_point.eq(Mux(rounding.requantise, rounding.zero_point, 0)),
                lane.low.eq(clip.low),
                lane.high.eq(clip.high),
            ]
            results.append(lane.result)
            raw.append(lane.raw)
        return results, raw

    def _write(self, m: Module, at: dict[int, Any], results: list[Value], raw: list[Value]) -> None:
        """Look up and write; `acc` gets int8 results with their sign, or the unscaled int32."""
        config = self._config
        clipped = at[_CLIPPED_STAGE]
        looked_up = at[_CLIPPED_STAGE + 1]
        written = at[_WRITE_STAGE]
        bank = config.acc_bank_entries
        offset_bits = (config.port_bytes - 1).bit_length()
        narrow, wide = [], []
        for i, (result, unscaled) in enumerate(zip(results, raw, strict=True)):
            index = (result ^ (LUT_LENGTH // 2))[:8]
            port = self.lut[i]
            m.d.comb += [
                port.enable.eq(clipped.valid & clipped.lookup),
                port.address.eq(Cat(index[offset_bits:], clipped.lut)),
            ]
            offset = delayed(m, index[:offset_bits], 1, name=f"lut_offset_{i}", is_data=True)
            passed = delayed(m, result, 1, name=f"result_{i}", is_data=True)
            full = delayed(m, unscaled, 1, name=f"raw_{i}", is_data=True)
            byte = Mux(looked_up.lookup, port.data.word_select(offset, 8).as_signed(), passed)
            entry = Mux(looked_up.requantise, byte, full)
            narrow.append(staged(m, _ends(looked_up), byte, name=f"final_{i}"))
            wide.append(staged(m, _ends(looked_up), entry, name=f"entry_{i}"))
        ends = _ends(written)
        to_acc = written.target == VectorTarget.ACC
        m.d.comb += [
            self.out.enable.eq(ends & ~to_acc),
            self.out.address.eq(written.dst),
            self.out.data.eq(join(narrow, 8)),
            self.finish.eq(written.valid & written.finishes),
            self.signal.eq(written.signal),
            self._finishes_acc.eq(self.finish & to_acc),
        ]
        before = at[_WRITE_STAGE - 1].dst[: config.acc_index_bits]
        for number, (first, is_inside) in enumerate(((0, before < bank), (bank, before >= bank))):
            inside = Signal(name=f"inside_{number}")
            index = Signal(range(bank), name=f"index_{number}")
            m.d.sync += [
                inside.eq(is_inside),
                index.eq(before - first),
            ]
            m.d.comb += [
                self.acc_write[number].enable.eq(ends & to_acc & inside),
                self.acc_write[number].address.eq(index),
                self.acc_write[number].data.eq(join(wide, _ACC_BITS)),
            ]


def lut_words(config: AcceleratorConfig) -> int:
    """Words as wide as a memory port that hold all look-up tables."""
    return config.lut_tables * LUT_LENGTH // config.port_bytes


def _ends(control: Any) -> Value:
    """Whether a step is the last one of a run; only such steps leave a result."""
    last: Value = control.valid & control.ends_run
    return last


def _combined(control: Any, run: Value, value: Value) -> Value:
    smaller = Mux(value < run, value, run)
    larger = Mux(value < run, run, value)
    combined = Mux(
        control.operation == VectorOperation.MAX,
        larger,
        Mux(control.operation == VectorOperation.MIN, smaller, run + value),
    )
    return Mux(control.begins_run, value, combined)
