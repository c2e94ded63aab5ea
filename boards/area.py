"""What a configuration takes of a part, unit by unit, as Yosys maps it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from typing_extensions import assert_never

from tilewright.boards.netlist import TOP, accelerator_rtlil
from tilewright.boards.parts import LFE5U_85F, XC7Z020, XCZU3EG_E, Part
from tilewright.boards.yosys import SynthesisError, Tool, cached_run, find_yosys
from tilewright.isa.config import AcceleratorConfig


class Target(Enum):
    """Families of parts that Yosys can map to."""

    XC7 = "xc7"
    XCUP = "xcup"
    ECP5 = "ecp5"

    @property
    def part(self) -> Part:
        """The part whose totals an area is compared with."""
        match self:
            case Target.XC7:
                return XC7Z020
            case Target.XCUP:
                return XCZU3EG_E
            case Target.ECP5:
                return LFE5U_85F
            case _:
                assert_never(self)

    @property
    def command(self) -> str:
        """What Yosys is told. Units stay apart, so that each can be counted."""
        match self:
            case Target.XC7 | Target.XCUP:
                return f"synth_xilinx -family {self.value} -noiopad -top {TOP}"
            case Target.ECP5:
                return f"synth_ecp5 -noflatten -top {TOP}"
            case _:
                assert_never(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """What a circuit takes of a part.

    A vendor's tool puts two small functions into one look-up table where it can, and Yosys does
    not: `luts` is an upper estimate.
    """

    luts: int = 0
    registers: int = 0
    multipliers: int = 0
    #: Halves of block RAMs, which count as blocks on Xilinx parts.
    half_block_rams: int = 0

    @property
    def block_rams(self) -> float:
        """Block RAMs; RAMB18 counts as half of a RAMB36."""
        return self.half_block_rams / 2

    def __add__(self, other: "Area") -> "Area":
        return Area(
            luts=self.luts + other.luts,
            registers=self.registers + other.registers,
            multipliers=self.multipliers + other.multipliers,
            half_block_rams=self.half_block_rams + other.half_block_rams,
        )

    def times(self, number: int) -> "Area":
        """Return the area of several of them."""
        return Area(
            luts=self.luts * number,
            registers=self.registers * number,
            multipliers=self.multipliers * number,
            half_block_rams=self.half_block_rams * number,
        )


#: Primitives that take something of a part: UG953 and UG974 (Xilinx), FPGA-TN-02200 (ECP5). A
#: distributed memory takes the look-up tables that hold it, an ECP5 carry cell two of them.
CELLS: Mapping[str, Area] = MappingProxyType(
    {
        **{f"LUT{inputs}": Area(luts=1) for inputs in range(1, 7)},
        **dict.fromkeys(("SRL16E", "SRLC32E"), Area(luts=1)),
        **dict.fromkeys(("RAM32X1D", "RAM64X1D"), Area(luts=2)),
        **dict.fromkeys(("RAM32M", "RAM64M", "RAM128X1D"), Area(luts=4)),
        **dict.fromkeys(("RAM32M16", "RAM64M8", "RAM256X1D"), Area(luts=8)),
        **dict.fromkeys(("FDRE", "FDSE", "FDCE", "FDPE"), Area(registers=1)),
        **dict.fromkeys(("DSP48E1", "DSP48E2"), Area(multipliers=1)),
        **dict.fromkeys(("RAMB18E1", "RAMB18E2"), Area(half_block_rams=1)),
        **dict.fromkeys(("RAMB36E1", "RAMB36E2", "DP16KD"), Area(half_block_rams=2)),
        "CCU2C": Area(luts=2),
        "TRELLIS_DPR16X4": Area(luts=4),
        "TRELLIS_FF": Area(registers=1),
        "MULT18X18D": Area(multipliers=1),
    }
)
#: Primitives that come with what is counted: carry chains, wide multiplexers, inverters that a
#: look-up table absorbs, clock buffers.
FREE_CELLS = frozenset(
    {"CARRY4", "CARRY8", "MUXF7", "MUXF8", "MUXF9", "PFUMX", "L6MUX21", "INV", "BUFG"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit of the hardware, or several equal ones side by side."""

    name: str
    #: How many of them the unit above holds.
    number: int
    #: Of all of them, with the units inside.
    area: Area
    units: tuple["Unit", ...]

    def walk(self, depth: int) -> Iterator[tuple[int, "Unit"]]:
        """Yield level and unit of this one and those inside, down to a depth."""
        yield 0, self
        if depth:
            for unit in self.units:
                yield from ((level + 1, inner) for level, inner in unit.walk(depth - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaReport:
    """The area of a configuration."""

    config: AcceleratorConfig
    target: Target
    #: Version of Yosys.
    tool: str
    #: The accelerator.
    top: Unit
    #: Whether an equal run has been made before.
    from_cache: bool

    def share(self, area: Area) -> dict[str, float]:
        """Return what an area takes of the part, by resource."""
        part = self.target.part
        return {
            "luts": area.luts / part.luts,
            "registers": area.registers / part.registers,
            "multipliers": area.multipliers / part.multipliers,
            "block_rams": area.block_rams / part.block_rams,
        }


def measure_area(config: AcceleratorConfig, target: Target, tool: Tool | None = None) -> AreaReport:
    """Map a configuration to a family, or find what an equal run returned.

    Takes one to ten minutes the first time.

    Raises
    ------
    SynthesisError
        If Yosys is missing or fails.
    """
    tool = tool or find_yosys()
    top, from_cache = map_unit(accelerator_rtlil(config), target, tool)
    return AreaReport(
        config=config, target=target, tool=tool.version, top=top, from_cache=from_cache
    )


def map_unit(text: str, target: Target, tool: Tool) -> tuple[Unit, bool]:
    """Map a circuit in RTLIL, whose top module is `TOP`; say whether it comes from the cache."""
    script = f"read_rtlil top.il\n{target.command}\ntee -o area.json stat -json\n"
    inputs = {"top.il": text, "area.ys": script}
    statistics, from_cache = cached_run(tool, ["-q", "-s", "area.ys"], inputs, "area.json")
    return read_statistics(statistics), from_cache


def read_statistics(text: str) -> Unit:
    """Read what Yosys's ``stat -json`` says of each module.

    Raises
    ------
    SynthesisError
        If a primitive is neither in `CELLS` nor in `FREE_CELLS`.
    """
    modules: dict[str, Any] = json.loads(text)["modules"]
    return _unit(modules, f"\\{TOP}", "accelerator", 1)


def _unit(modules: Mapping[str, Any], module: str, name: str, number: int) -> Unit:
    area = Area()
    units = []
    for cell, count in sorted(modules[module]["num_cells_by_type"].items()):
        inner = f"\\{cell}"
        if inner in modules:
            units.append(_unit(modules, inner, _short_name(cell, count), count))
        elif cell in CELLS:
            area += CELLS[cell].times(count)
        elif cell not in FREE_CELLS:
            raise SynthesisError(f"primitive {cell} in {module[1:]} has no known area")
    for unit in units:
        area += unit.area
    return Unit(name=name, number=number, area=area.times(number), units=tuple(units))


def _short_name(module: str, count: int) -> str:
    """Name a unit by the last part of the path of its first instance."""
    name = module.rsplit(".", 1)[-1]
    return name.removesuffix("_0") if count > 1 or name.endswith("_0") else name
