"""The boards that tilewright knows; adding one touches this file, and `parts.py` for a new part.

Timing models of memory are those of the presets (`tilewright.isa.presets`), whose latencies are
assumptions: no board has been measured. `docs/boards.md` says how to measure one.
"""

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.boards.board import Board, ExternalMemory, Pll
from tilewright.boards.parts import LFE5U_85F, XC7Z020, XCK26, XCZU3EG_E, XCZU3EG_I, XCZU7EV
from tilewright.isa.config import DramModel
from tilewright.isa.errors import InputError
from tilewright.isa.presets import ECP5, PYNQ, TINY, ULTRA96

_LATENCIES = "latencies and gaps of the memory are the preset's assumptions, not measured"

#: First byte of M_AXI_GP0 (UG585 table 4-1) and of M_AXI_HPM0_FPD (UG1085 table 10-1); PYNQ's own
#: overlays put their first peripheral there.
_GP0_ADDRESS = 0x43C0_0000
_HPM0_ADDRESS = 0xA000_0000

#: Zynq-7000 boards with 50 MHz: I/O PLL 1000, ARM PLL 1300, DDR PLL 1050 MHz. 1050 / 7 is 150.
_ZYNQ_7000_PLLS = (
    Pll(name="IO_PLL", mhz=1000.0),
    Pll(name="ARM_PLL", mhz=1300.0),
    Pll(name="DDR_PLL", mhz=1050.0),
)
_ZYNQ_MP_PLLS = (Pll(name="IOPLL", mhz=1500.0),)

#: What openXC7 can take, on boards with an XC7Z020: multipliers in look-up tables, 50 MHz.
PYNQ_OPEN = ECP5.replace(name="pynq-open", clock_mhz=50.0, dram=PYNQ.dram).replace(
    **{"dram.read_latency_cycles": 14, "dram.write_latency_cycles": 8}
)

_DDR3_512M = ExternalMemory(
    kind="DDR3, 16 bit at 1050 MT/s",
    size_bytes=1 << 29,
    peak_megabytes_per_second=2100,
    source="reference manual of the board",
)

PYNQ_Z1 = Board(
    name="pynq-z1",
    title="PYNQ-Z1",
    part=XC7Z020,
    reference_mhz=50.0,
    plls=_ZYNQ_7000_PLLS,
    memory=_DDR3_512M,
    control_address=_GP0_ADDRESS,
    config=PYNQ,
    sources=("Digilent, PYNQ-Z1 Reference Manual, sections 2, 3 and 11", "UG585, chapter 25"),
    assumptions=(_LATENCIES, "PLLs as in Digilent's board files: 1000, 1300 and 1050 MHz"),
)
PYNQ_Z2 = Board(
    name="pynq-z2",
    title="PYNQ-Z2",
    part=XC7Z020,
    reference_mhz=50.0,
    plls=_ZYNQ_7000_PLLS,
    memory=_DDR3_512M,
    control_address=_GP0_ADDRESS,
    config=PYNQ,
    sources=("TUL, PYNQ-Z2 Reference Manual v1.0, sections 2 and 13", "UG585, chapter 25"),
    assumptions=(_LATENCIES, "PLLs as in TUL's board files: 1000, 1300 and 1050 MHz"),
)
ARTY_Z7_20 = Board(
    name="arty-z7-20",
    title="Arty Z7-20",
    part=XC7Z020,
    reference_mhz=50.0,
    plls=_ZYNQ_7000_PLLS,
    memory=_DDR3_512M,
    control_address=_GP0_ADDRESS,
    config=PYNQ,
    sources=("Digilent, Arty Z7 Reference Manual, sections 3, 4 and 12", "UG585, chapter 25"),
    assumptions=(_LATENCIES, "PLLs as in Digilent's board files: 1000, 1300 and 1050 MHz"),
)

_LPDDR4_2G = ExternalMemory(
    kind="LPDDR4, 32 bit at 2133 MT/s",
    size_bytes=1 << 31,
    peak_megabytes_per_second=8533,
    source="Avnet, Ultra96 Hardware User's Guide, section on LPDDR4",
)

ULTRA96_V1 = Board(
    name="ultra96-v1",
    title="Ultra96-V1",
    part=XCZU3EG_E,
    reference_mhz=100 / 3,
    plls=_ZYNQ_MP_PLLS,
    memory=_LPDDR4_2G,
    control_address=_HPM0_ADDRESS,
    config=ULTRA96,
    sources=("Avnet, Ultra96 Hardware User's Guide", "UG1085, chapter 37"),
    assumptions=(_LATENCIES, "I/O PLL at 1500 MHz"),
)
ULTRA96_V2 = Board(
    name="ultra96-v2",
    title="Ultra96-V2",
    part=XCZU3EG_I,
    reference_mhz=100 / 3,
    plls=_ZYNQ_MP_PLLS,
    memory=_LPDDR4_2G,
    control_address=_HPM0_ADDRESS,
    config=ULTRA96,
    sources=("Avnet, Ultra96-V2 Hardware User's Guide", "UG1085, chapter 37"),
    assumptions=(_LATENCIES, "I/O PLL at 1500 MHz"),
)
ZCU104 = Board(
    name="zcu104",
    title="ZCU104",
    part=XCZU7EV,
    reference_mhz=100 / 3,
    plls=_ZYNQ_MP_PLLS,
    memory=ExternalMemory(
        kind="DDR4, 64 bit at 2133 MT/s",
        size_bytes=1 << 31,
        peak_megabytes_per_second=17066,
        source="UG1267, section on PS DDR4 component memory",
    ),
    control_address=_HPM0_ADDRESS,
    config=ULTRA96.replace(name="zcu104", block_in=32),
    sources=("UG1267", "UG1085, chapter 37"),
    assumptions=(
        _LATENCIES,
        "I/O PLL at 1500 MHz",
        "memory model of the Ultra96, whose memory has half the bandwidth",
    ),
)
KV260 = Board(
    name="kv260",
    title="KV260",
    part=XCK26,
    reference_mhz=100 / 3,
    plls=_ZYNQ_MP_PLLS,
    memory=ExternalMemory(
        kind="DDR4, 64 bit at 2400 MT/s",
        size_bytes=1 << 32,
        peak_megabytes_per_second=19200,
        source="DS987, section on memory",
    ),
    control_address=_HPM0_ADDRESS,
    # Half the width of the Ultra96: the part has 144 block RAMs. Its UltraRAMs are not used.
    config=ULTRA96.replace(name="kv260", block_out=16, wgt_entries=1024),
    sources=("DS987", "UG1089", "UG1085, chapter 37"),
    assumptions=(
        _LATENCIES,
        "I/O PLL at 1500 MHz",
        "memory model of the Ultra96, whose memory has less than half the bandwidth",
    ),
)
#: Block RAM in the place of the SDRAM, for which there is no controller: two copies of 64 KiB. The
#: array is that of `TINY`, which the open tools route in minutes; the scratchpads are larger.
ULX3S_CHIP = TINY.replace(
    name="ulx3s",
    inp_entries=1024,
    wgt_entries=512,
    acc_entries=512,
    vec_entries=512,
    coef_entries=256,
    prm_entries=256,
    out_entries=512,
    gemm_uop_entries=512,
    vector_uop_entries=512,
    clock_mhz=50.0,
    dram=DramModel(
        read_latency_cycles=4,
        write_latency_cycles=2,
        read_gap_cycles=0,
        write_gap_cycles=0,
        size_bytes=1 << 16,
    ),
)

ULX3S = Board(
    name="ulx3s-85f",
    title="ULX3S-85F",
    part=LFE5U_85F,
    reference_mhz=25.0,
    plls=(),
    memory=ExternalMemory(
        kind="block RAM of the FPGA, 64 bit per port",
        size_bytes=1 << 16,
        peak_megabytes_per_second=3 * 400,
        source="FPGA-TN-02204; three ports at 50 MHz",
    ),
    control_address=0,
    config=ULX3S_CHIP,
    sources=("Radiona, ULX3S manual", "FPGA-DS-02012"),
    assumptions=("the SDRAM is not used",),
)

#: Every board by name.
BOARDS: Mapping[str, Board] = MappingProxyType(
    {
        board.name: board
        for board in (
            PYNQ_Z1,
            PYNQ_Z2,
            ARTY_Z7_20,
            ULTRA96_V1,
            ULTRA96_V2,
            ZCU104,
            KV260,
            ULX3S,
        )
    }
)


def parse_board(name: str) -> Board:
    """Return the board of that name.

    Raises
    ------
    InputError
        If there is none.
    """
    if name not in BOARDS:
        raise InputError(f"there is no board {name!r}", hint=f"boards: {', '.join(BOARDS)}")
    return BOARDS[name]
