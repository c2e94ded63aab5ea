"""FPGA parts: what each has, and the least that a configuration takes of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import ConfigError
from tilewright.isa.memories import MemoryShape, memory_shapes


class Family(Enum):
    """Families of parts: what a board's processor and memory ports look like."""

    #: Two Cortex-A9 with AXI3 ports into their DDR memory.
    ZYNQ_7000 = "zynq-7000"
    #: Four Cortex-A53 with AXI4 ports into their DDR memory.
    ZYNQ_MP = "zynq-ultrascale+"
    #: No processor.
    ECP5 = "ecp5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part in one package and speed grade."""

    #: Name as the vendor's tool takes it.
    name: str
    family: Family
    luts: int
    registers: int
    #: DSP48E1, DSP48E2 or MULT18X18D.
    multipliers: int
    block_rams: int
    #: Shapes that a block RAM can take with one read and one write port: depth to width in bits.
    block_ram_shapes: Mapping[int, int]
    #: Data sheet of the numbers above.
    source: str


#: RAMB36E1 and RAMB36E2, simple dual port (UG473 table 1-9, UG573 table 1-9).
_RAMB36 = MappingProxyType({512: 72, 1024: 36, 2048: 18, 4096: 9, 8192: 4, 16384: 2, 32768: 1})
#: DP16KD, pseudo dual port (FPGA-TN-02204 table 6.1).
_DP16KD = MappingProxyType({512: 36, 1024: 18, 2048: 9, 4096: 4, 8192: 2, 16384: 1})

XC7Z020 = Part(
    name="xc7z020clg400-1",
    family=Family.ZYNQ_7000,
    luts=53_200,
    registers=106_400,
    multipliers=220,
    block_rams=140,
    block_ram_shapes=_RAMB36,
    source="DS190 table 1",
)
XCZU3EG_E = Part(
    name="xczu3eg-sbva484-1-e",
    family=Family.ZYNQ_MP,
    luts=70_560,
    registers=141_120,
    multipliers=360,
    block_rams=216,
    block_ram_shapes=_RAMB36,
    source="DS891 table 3",
)
XCZU3EG_I = Part(
    name="xczu3eg-sbva484-1-i",
    family=Family.ZYNQ_MP,
    luts=70_560,
    registers=141_120,
    multipliers=360,
    block_rams=216,
    block_ram_shapes=_RAMB36,
    source="DS891 table 3",
)
XCZU7EV = Part(
    name="xczu7ev-ffvc1156-2-e",
    family=Family.ZYNQ_MP,
    luts=230_400,
    registers=460_800,
    multipliers=1_728,
    block_rams=312,
    block_ram_shapes=_RAMB36,
    source="DS891 table 5",
)
XCK26 = Part(
    name="xck26-sfvc784-2LV-c",
    family=Family.ZYNQ_MP,
    luts=117_120,
    registers=234_240,
    multipliers=1_248,
    block_rams=144,
    block_ram_shapes=_RAMB36,
    source="DS987 table 1",
)
LFE5U_85F = Part(
    name="LFE5U-85F-6BG381C",
    family=Family.ECP5,
    luts=83_640,
    registers=83_640,
    multipliers=156,
    block_rams=208,
    block_ram_shapes=_DP16KD,
    source="FPGA-DS-02012 table 1.1",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastUse:
    """What a configuration takes of a part at the least; logic around it comes on top."""

    multipliers: int
    block_rams: int


def least_use(config: AcceleratorConfig, part: Part) -> LeastUse:
    """Count the multipliers of the array and the block RAMs of the scratchpads.

    Scratchpads of up to 64 entries are left out: tools build them from look-up tables.
    """
    products = config.macs_per_cycle
    shapes = memory_shapes(config).values()
    return LeastUse(
        multipliers=-(-products // 2) if config.packed_multipliers else products,
        block_rams=sum(_block_rams(shape, part) for shape in shapes if shape.entries > 64),
    )


def check_fit(config: AcceleratorConfig, part: Part) -> None:
    """Refuse a configuration that cannot fit a part, whatever a tool does.

    On ECP5 multipliers that the part lacks are made of look-up tables.

    Raises
    ------
    ConfigError
        Names what is too large.
    """
    use = least_use(config, part)
    if use.multipliers > part.multipliers and part.family is not Family.ECP5:
        raise ConfigError(
            f"the array of {config.name!r} takes {use.multipliers} DSP blocks,"
            f" {part.name} has {part.multipliers}",
            hint="reduce block_in or block_out, or set packed_multipliers=true",
        )
    if use.block_rams > part.block_rams:
        raise ConfigError(
            f"the scratchpads of {config.name!r} take {use.block_rams} block RAMs,"
            f" {part.name} has {part.block_rams}",
            hint="reduce the scratchpads, for example wgt_entries",
        )


def _block_rams(shape: MemoryShape, part: Part) -> int:
    depth = shape.entries // shape.banks
    return shape.banks * min(
        -(-depth // rows) * -(-8 * shape.entry_bytes // width)
        for rows, width in part.block_ram_shapes.items()
    )
