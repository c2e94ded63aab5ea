"""Configurations: what they refuse, how they change, and the presets."""

import pytest

from tilewright.isa.config import differing_fields
from tilewright.isa.encoding import encoded_bits, instruction_bytes
from tilewright.isa.errors import ConfigError
from tilewright.isa.instructions import INSTRUCTION_CLASSES, GemmUop, VectorUop
from tilewright.isa.memories import UOP_BYTES, Memory, memory_shapes
from tilewright.isa.presets import PRESETS

TINY = PRESETS["tiny"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_in": 0}, "block_in must be an integer from 1 to 256, not 0"),
        ({"batch": True}, "batch must be an integer from 1 to 256, not True"),
        ({"inp_entries": 2.5}, "inp_entries must be an integer from 2 to 65536, not 2.5"),
        ({"acc_entries": 63}, "acc_entries must be even (two banks), not 63"),
        ({"port_bits": 48}, "port_bits must be 32, 64, 128, 256 or 512, not 48"),
        ({"burst_beats": 12}, "burst_beats must be a power of two, not 12"),
        (
            {"port_bits": 512, "burst_beats": 128},
            "burst_beats must keep a burst within 4096 bytes, not 8192",
        ),
        (
            {"port_bits": 32, "burst_beats": 4},
            "burst_beats must give bursts of at least one instruction (32 bytes), not 16 bytes",
        ),
        (
            {"batch": 2, "block_in": 8},
            "block_in must equal block_out (4) where batch is above 1, not 8",
        ),
        ({"clock_mhz": 0.5}, "clock_mhz must be between 1 and 2000, not 0.5"),
        (
            {"block_out": 6},
            (
                "port_bits must give whole entries per beat or whole beats per entry: an entry of 6"
                " bytes does not fit 8-byte beats"
            ),
        ),
        (
            {"dram.read_latency_cycles": 1},
            "dram.read_latency_cycles must be an integer from 2 to 4095, not 1",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_machine_that_cannot_be_built(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TINY.replace(**changes)
    assert str(caught.value) == message


@pytest.mark.parametrize("field", ["inp_depth", "dram.latency"])
def test_an_unknown_field_is_refused_with_the_known_ones(field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TINY.replace(**{field: 3})
    assert str(caught.value) == f"a configuration has no field {field!r}"
    known = "dram.read_latency_cycles" if field.startswith("dram.") else "inp_entries"
    assert known in (caught.value.hint or "")


def test_differing_fields_are_named_with_those_of_the_memory() -> None:
    other = TINY.replace(**{"queue_entries": 9, "dram.write_gap_cycles": 7})
    assert differing_fields(TINY, other) == ("queue_entries", "dram.write_gap_cycles")
    assert differing_fields(TINY, TINY.replace()) == ()


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_consistent(name: str) -> None:
    config = PRESETS[name]
    assert config.name == name
    assert max(encoded_bits(c, config) for c in INSTRUCTION_CLASSES.values()) <= (
        8 * instruction_bytes(config)
    )
    assert max(encoded_bits(uop, config) for uop in (GemmUop, VectorUop)) <= 8 * UOP_BYTES
    for shape in memory_shapes(config).values():
        assert not shape.entry_bytes % config.port_bytes or not (
            config.port_bytes % shape.entry_bytes
        )


def test_preset_sizes_are_those_of_their_boards() -> None:
    """VTA's scratchpads in bytes, and 64-bit ports on the Zynq-7000."""
    sizes = {m: s.entries * s.entry_bytes for m, s in memory_shapes(PRESETS["vta"]).items()}
    assert sizes[Memory.INP] == 32 << 10
    assert sizes[Memory.WGT] == 256 << 10
    assert sizes[Memory.ACC] == 128 << 10
    assert sizes[Memory.OUT] == 32 << 10
    assert PRESETS["pynq"].macs_per_cycle == 256
    assert PRESETS["pynq"].port_bits == 64
    assert PRESETS["ultra96"].macs_per_cycle == 512
