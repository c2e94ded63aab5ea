"""The area by formula against what Yosys has mapped."""

import re
from pathlib import Path

import pytest

from tilewright.boards.area import Target, measure_area
from tilewright.boards.area_model import estimate_area
from tilewright.boards.yosys import SynthesisError, find_yosys
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.presets import PYNQ, TINY

#: Largest error of look-up tables and registers.
TOLERANCE = 0.12

#: A wider array with ports of 128 bits, as mapped: LUT, registers, DSP, block RAM.
WIDE = PYNQ.replace(block_out=32, port_bits=128, load_bursts=16, store_bursts=16)
WIDE_MAPPED = (46_970, 65_103, 352, 212.5)


def recorded(repository: Path, preset: str) -> tuple[int, int, int, float]:
    """Read the row of a preset in the page."""
    page = (repository / "docs" / "area.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{preset}` \|[^|]*\|(.*)\|$", page, re.MULTILINE)
    luts, registers, multipliers, rams = (cell.split("(")[0].strip() for cell in row.split("|"))
    numbers = [int(text.replace(",", "")) for text in (luts, registers, multipliers)]
    return (*numbers, float(rams))  # type: ignore[return-value]


@pytest.mark.parametrize("config", [TINY, PYNQ], ids=lambda config: config.name)
def test_presets_are_as_recorded(config: AcceleratorConfig, repository: Path) -> None:
    luts, registers, multipliers, block_rams = recorded(repository, config.name)
    area = estimate_area(config)
    assert area.multipliers == multipliers
    assert area.block_rams == block_rams
    assert area.luts == pytest.approx(luts, rel=TOLERANCE)
    assert area.registers == pytest.approx(registers, rel=TOLERANCE)


def test_a_wide_machine_is_as_mapped() -> None:
    luts, _, multipliers, block_rams = WIDE_MAPPED
    area = estimate_area(WIDE)
    assert (area.multipliers, area.block_rams) == (multipliers, block_rams)
    assert area.luts == pytest.approx(luts, rel=TOLERANCE)


@pytest.mark.parametrize(
    ("block_in", "block_out", "multipliers"), [(24, 16, 1), (24, 24, 3), (8, 24, 2), (16, 16, 0)]
)
def test_sizes_that_are_no_power_of_two_take_multipliers(
    block_in: int, block_out: int, multipliers: int
) -> None:
    # As Yosys maps load and store engine by themselves.
    config = PYNQ.replace(block_in=block_in, block_out=block_out)
    of_array_and_lanes = block_in * block_out // 2 + 3 * block_out
    assert estimate_area(config).multipliers - of_array_and_lanes == multipliers


@pytest.mark.parametrize("multipliers", [0, 1, 2, 3])
def test_lanes_trade_multipliers_for_tables(multipliers: int) -> None:
    whole, changed = (
        estimate_area(PYNQ.replace(lane_multipliers=number)) for number in (3, multipliers)
    )
    assert whole.multipliers - changed.multipliers == (3 - multipliers) * PYNQ.block_out
    assert (changed.luts > whole.luts) == (multipliers < 3)
    assert changed.half_block_rams == whole.half_block_rams


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        PYNQ.replace(block_in=8, block_out=8, lane_multipliers=1),
        PYNQ.replace(block_in=24, wgt_entries=512, lane_multipliers=1),
    ],
    ids=["8x8", "24x16"],
)
def test_new_machines_are_as_yosys_maps_them(config: AcceleratorConfig) -> None:
    try:
        find_yosys()
    except SynthesisError as error:
        pytest.skip(str(error))
    mapped = measure_area(config, Target.XC7).top.area
    area = estimate_area(config)
    assert area.multipliers == mapped.multipliers
    assert area.block_rams == mapped.block_rams
    assert area.luts == pytest.approx(mapped.luts, rel=TOLERANCE)
