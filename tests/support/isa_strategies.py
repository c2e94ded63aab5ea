"""Hypothesis strategies for configurations, instructions and micro-ops with fitting values."""

from typing import Any

from hypothesis import strategies as st

from tilewright.isa.config import AcceleratorConfig, DramModel
from tilewright.isa.encoding import layout
from tilewright.isa.instructions import (
    INSTRUCTION_CLASSES,
    LOOP_LEVELS,
    AnyInstruction,
    AnyUop,
    GemmLoop,
    GemmUop,
    Opcode,
    VectorLoop,
    VectorUop,
)
from tilewright.isa.presets import PRESETS

_LOOPS = {Opcode.GEMM: GemmLoop, Opcode.VECTOR: VectorLoop}


@st.composite
def odd_configs(draw: st.DrawFn) -> AcceleratorConfig:
    """Machines that no preset has: depths of no power of two, batches, one-entry look-ups."""
    depth = st.integers(2, 1 << 16)
    block_in, block_out = draw(st.tuples(*[st.sampled_from([1, 2, 4, 8, 16, 64, 256])] * 2))
    batch = draw(st.sampled_from([1, 2, 8])) if block_in == block_out else 1
    port_bits = draw(st.sampled_from([32, 64, 128, 256, 512]))
    return AcceleratorConfig(
        name="odd",
        batch=batch,
        block_in=block_in,
        block_out=block_out,
        inp_entries=draw(depth),
        wgt_entries=draw(depth),
        acc_entries=2 * draw(st.integers(1, 1 << 15)),
        vec_entries=draw(depth),
        coef_entries=draw(depth),
        prm_entries=draw(depth),
        out_entries=draw(depth),
        gemm_uop_entries=draw(depth),
        vector_uop_entries=draw(depth),
        lut_tables=draw(st.integers(1, 16)),
        queue_entries=draw(st.integers(2, 64)),
        port_bits=port_bits,
        burst_beats=draw(st.sampled_from([n for n in (1, 2, 16, 64) if n * port_bits >= 8 * 64])),
        fetch_entries=draw(st.integers(2, 64)),
        packed_multipliers=draw(st.booleans()),
        clock_mhz=draw(st.sampled_from([1.0, 33.3, 150])),
        dram=DramModel(
            read_latency_cycles=draw(st.integers(2, 200)),
            write_latency_cycles=draw(st.integers(2, 200)),
            read_gap_cycles=draw(st.integers(0, 8)),
            write_gap_cycles=draw(st.integers(0, 8)),
            size_bytes=1 << draw(st.integers(12, 32)),
        ),
    )


def configs() -> st.SearchStrategy[AcceleratorConfig]:
    """Presets and odd machines."""
    return st.sampled_from(list(PRESETS.values())) | odd_configs()


@st.composite
def instructions(draw: st.DrawFn, config: AcceleratorConfig) -> AnyInstruction:
    """Instructions whose values fit their fields, most of them at a limit."""
    opcode = draw(st.sampled_from(list(Opcode)))
    values = _values(draw, INSTRUCTION_CLASSES[opcode], config)
    values.pop("opcode")
    if opcode in _LOOPS:
        values["loops"] = tuple(
            _LOOPS[opcode](**values.pop(f"loops.{level}")) for level in range(LOOP_LEVELS)
        )
    return INSTRUCTION_CLASSES[opcode](**values)


@st.composite
def uops(draw: st.DrawFn, config: AcceleratorConfig) -> AnyUop:
    """Micro-ops of either engine."""
    cls = draw(st.sampled_from([GemmUop, VectorUop]))
    return cls(**_values(draw, cls, config))


def _values(draw: st.DrawFn, cls: type[Any], config: AcceleratorConfig) -> dict[str, Any]:
    """Draw a value per field; those of ``loops.0.extent`` and the like go to a dictionary."""
    result: dict[str, Any] = {}
    for item in layout(cls, config):
        integers = st.integers(item.low, item.high) | st.sampled_from([item.low, item.high])
        value = draw(
            integers if item.field.kind in (int, bool) else st.sampled_from(item.field.kind)
        )
        *holder, name = item.field.path.rsplit(".", 1)
        target = result.setdefault(holder[0], {}) if holder else result
        target[name] = bool(value) if item.field.kind is bool else value
    return result
