"""Every board with every toolchain that serves it: a whole project, as the driver wants it."""

from pathlib import Path

import pytest
from typing_extensions import assert_never

from tilewright.boards.board import MEMORY_PORTS, Board
from tilewright.boards.catalogue import BOARDS
from tilewright.boards.project import make_project
from tilewright.boards.toolchains import TOOLCHAINS, Toolchain
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.presets import TINY
from tilewright.runtime.board_record import RECORD_NAME, BoardRecord, load_config

#: Of boards that differ in facts alone, one is enough to see with every change.
USUAL = ("pynq-z2", "ultra96-v2", "ulx3s-85f")
PAIRS = [
    pytest.param(
        board,
        toolchain,
        id=f"{name}-{toolchain.value}",
        marks=[] if name in USUAL else pytest.mark.slow,
    )
    for name, board in BOARDS.items()
    for toolchain in TOOLCHAINS[board.part.family]
]


def small(board: Board) -> AcceleratorConfig:
    """A machine for the board whose design is written in little time."""
    changes = {"dram.size_bytes": min(TINY.dram.size_bytes, board.memory.size_bytes)}
    return TINY.replace(name="small", clock_mhz=50.0, **changes)


def expected_files(toolchain: Toolchain) -> set[str]:
    zynq = {"config.json", "tilewright.v", "tilewright.hwh", "tilewright.xdc"}
    match toolchain:
        case Toolchain.VIVADO:
            return zynq | {"build.tcl"}
        case Toolchain.OPENXC7:
            return zynq | {"build.sh"}
        case Toolchain.TRELLIS:
            return {"config.json", "tilewright.il", "tilewright.lpf", "build.sh"}
        case _:
            assert_never(toolchain)


@pytest.mark.parametrize(("board", "toolchain"), PAIRS)
def test_the_project_is_whole_and_the_driver_reads_its_description(
    board: Board, toolchain: Toolchain, tmp_path: Path
) -> None:
    folder = tmp_path
    config = small(board)
    project = make_project(board, config, toolchain)
    assert set(project.files) == expected_files(toolchain)
    project.write(folder)
    assert load_config(folder / RECORD_NAME) == config
    if board.part.family in MEMORY_PORTS:
        record = BoardRecord.load(folder)
        assert (record.board, record.config) == (board.name, config)
        assert record.control_address == board.control_address
        assert record.pll in {pll.name for pll in board.plls}
