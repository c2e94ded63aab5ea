"""The boards: their configurations fit, and their clocks are what the dividers can make."""

from fractions import Fraction

import pytest

from tilewright.boards.board import MEMORY_PORTS, Board, check_ports
from tilewright.boards.catalogue import BOARDS, KV260, PYNQ_Z2, ULTRA96_V2, ULX3S, parse_board
from tilewright.boards.parts import XC7Z020, check_fit, least_use
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import ConfigError, InputError
from tilewright.isa.presets import PYNQ, TINY, ULTRA96

boards = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


@boards
def test_the_recommended_configuration_fits(board: Board) -> None:
    check_fit(board.config, board.part)
    check_ports(board.config, board)
    bandwidth = board.config.port_bytes * board.config.clock_mhz
    gap = board.config.dram.read_gap_cycles
    assert bandwidth * 16 / (16 + gap) < board.memory.peak_megabytes_per_second


@boards
def test_the_recommended_clock_can_be_made(board: Board) -> None:
    if board.part.family in MEMORY_PORTS:
        assert board.clock(board.config.clock_mhz).mhz == pytest.approx(board.config.clock_mhz)


@pytest.mark.parametrize("mhz", [50, 99, 100.1, 142.8, 143, 149.9, 150, 151, 200])
def test_clock_is_the_nearest_one_below(mhz: float) -> None:
    divisors = {first * second for first in range(1, 64) for second in range(1, 64)}
    every = {Fraction(pll, divisor) for pll in (1000, 1300, 1050) for divisor in divisors}
    clock = PYNQ_Z2.clock(mhz)
    assert clock.mhz == pytest.approx(float(max(item for item in every if item <= mhz)))
    assert all(1 <= divisor <= 63 for divisor in clock.divisors)


def test_a_clock_below_all_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^PYNQ-Z2 has no clock of 0\.2 MHz or less$"):
        PYNQ_Z2.clock(0.2)


def test_an_unknown_board_is_named_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"^there is no board 'pynq-z9'$") as caught:
        parse_board("pynq-z9")
    assert caught.value.hint is not None
    assert "pynq-z2" in caught.value.hint


def test_block_rams_of_a_known_memory() -> None:
    # Of 128 bits, 1024 entries are four blocks of 1024 x 36; 4096 entries are 15 of 4096 x 9.
    base = least_use(PYNQ.replace(inp_entries=1024), XC7Z020).block_rams
    assert least_use(PYNQ.replace(inp_entries=4096), XC7Z020).block_rams == base - 4 + 15


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            PYNQ.replace(packed_multipliers=False),
            "the array of 'pynq' takes 256 DSP blocks, xc7z020clg400-1 has 220",
        ),
        (
            PYNQ.replace(wgt_entries=4096),
            "the scratchpads of 'pynq' take 282 block RAMs, xc7z020clg400-1 has 140",
        ),
    ],
)
def test_what_cannot_fit_is_refused(config: AcceleratorConfig, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_fit(config, XC7Z020)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("config", "board", "message"),
    [
        (ULTRA96, PYNQ_Z2, "port_bits must be 32 or 64 on PYNQ-Z2, not 128"),
        (
            PYNQ.replace(burst_beats=32),
            PYNQ_Z2,
            "burst_beats must be at most 16 on PYNQ-Z2 (AXI3), not 32",
        ),
        (TINY, ULX3S, "dram.size_bytes must be at most 65536 on ULX3S-85F, not 16777216"),
        (
            PYNQ.replace(**{"dram.size_bytes": 1 << 30}),
            PYNQ_Z2,
            "dram.size_bytes must be at most 536870912 on PYNQ-Z2, not 1073741824",
        ),
    ],
)
def test_ports_that_the_board_lacks_are_refused(
    config: AcceleratorConfig, board: Board, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_ports(config, board)
    assert str(caught.value) == message


def test_long_bursts_and_small_machines_pass() -> None:
    check_ports(ULTRA96.replace(burst_beats=256), KV260)
    check_ports(TINY, ULTRA96_V2)
