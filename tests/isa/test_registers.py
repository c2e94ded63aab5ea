"""The register map: no two registers share bytes, and the digest tells bitstreams apart."""

import pytest

from tilewright.isa.memories import Engine
from tilewright.isa.presets import PRESETS, PYNQ, TINY
from tilewright.isa.registers import (
    REGISTER_SPACE_BYTES,
    EngineRegister,
    Register,
    digest_words,
    engine_register,
    hardware_digest,
    token_wait_register,
)


def test_registers_are_apart_and_aligned() -> None:
    offsets = [int(register) for register in Register]
    offsets += [engine_register(engine, part) for engine in Engine for part in EngineRegister]
    assert len(set(offsets)) == len(offsets)
    assert all(offset % 4 == 0 and offset < REGISTER_SPACE_BYTES for offset in offsets)


@pytest.mark.parametrize("giver", Engine)
def test_token_wait_is_counted_by_the_register_of_the_giver(giver: Engine) -> None:
    assert token_wait_register(giver).name == f"TOKEN_WAIT_{giver.name}"


def test_digest_is_that_of_the_hardware_alone() -> None:
    same = PYNQ.replace(name="other", clock_mhz=90.0, **{"dram.read_latency_cycles": 99})
    assert hardware_digest(same) == hardware_digest(PYNQ)
    for change in ({"block_out": 32}, {"port_bits": 128}, {"dram.write_gap_cycles": 9}):
        assert hardware_digest(PYNQ.replace(**change)) != hardware_digest(PYNQ)
    assert len({digest_words(preset) for preset in PRESETS.values()}) == len(PRESETS)


def test_digest_words_are_the_digest_little_endian() -> None:
    joined = b"".join(word.to_bytes(4, "little") for word in digest_words(TINY))
    assert joined.hex() == hardware_digest(TINY)[:32]
