"""The hardware description, read by PYNQ's own library."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tilewright.boards.board import MEMORY_PORTS, Board
from tilewright.boards.catalogue import BOARDS, PYNQ_Z2, ULTRA96_V2
from tilewright.boards.hwh import INSTANCE, hardware_description
from tilewright.isa.memories import Engine
from tilewright.isa.registers import EngineRegister, Register, engine_base

zynq = [board for board in BOARDS.values() if board.part.family in MEMORY_PORTS]
boards = pytest.mark.parametrize("board", zynq, ids=[board.name for board in zynq])


def parse(board: Board, folder: Path) -> Any:
    metadata = pytest.importorskip("pynqmetadata.frontends.hwh_frontend", reason="pynqmetadata")
    path = folder / "tilewright.hwh"
    path.write_text(hardware_description(board.config, board), encoding="utf-8")
    return metadata.HwhFrontend(_hwhfile=str(path))


@boards
def test_pynq_finds_every_register_at_its_address(board: Board, tmp_path: Path) -> None:
    port = parse(board, tmp_path).blocks[INSTANCE].ports["s_axi_control"]
    found = {name: register.offset for name, register in port.registers.items()}
    expected = {register.name: int(register) for register in Register}
    for engine in Engine:
        for part in EngineRegister:
            expected[f"{engine.name}_{part.name}"] = engine_base(engine) + part
    expected |= {"PORT_BASE_LOW": 0x1000, "PORT_BASE_HIGH": 0x1004, "PORT_REFUSED": 0x1008}
    assert found == expected
    assert (port.baseaddr, port.range) == (board.control_address, 0x2000)
    access = {register.name: register.access for register in port.registers.values()}
    assert access["CONTROL"] == "read-write"
    assert access["STATUS"] == "read-only"


@boards
def test_pynq_sets_the_clock(board: Board, tmp_path: Path) -> None:
    root = parse(board, tmp_path)
    (processor,) = (
        block for block in root.blocks.values() if "proc" in type(block).__name__.lower()
    )
    first, second = (processor.find_clock_divisor(0, index) for index in (0, 1))
    assert processor.find_clock_enable(0)
    assert any(
        pll.mhz / first / second == pytest.approx(board.config.clock_mhz) for pll in board.plls
    )


def test_processor_maps_the_registers(tmp_path: Path) -> None:
    ports = parse(PYNQ_Z2, tmp_path).blocks["processing_system7_0"].ports
    (region,) = ports["M_AXI_GP0"].addrmap.values()
    assert (region["baseaddr"], region["addr_range"]) == (0x43C0_0000, 0x2000)


def test_widths_of_the_ports_are_told_on_ultrascale() -> None:
    root = ElementTree.fromstring(hardware_description(ULTRA96_V2.config, ULTRA96_V2))
    values = {item.get("NAME"): item.get("VALUE") for item in root.iter("PARAMETER")}
    assert values["C_SAXIGP2_DATA_WIDTH"] == values["C_SAXIGP3_DATA_WIDTH"] == "128"
    assert values["C_MAXIGP0_DATA_WIDTH"] == "32"
