"""The toolchains that make bitstreams, and which boards they serve."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from tilewright.boards.board import Board
from tilewright.boards.parts import Family
from tilewright.isa.errors import InputError


class Toolchain(Enum):
    """Tools that make a bitstream."""

    VIVADO = "vivado"
    OPENXC7 = "openxc7"
    TRELLIS = "trellis"


#: Toolchains of each family, the usual one first.
TOOLCHAINS: Mapping[Family, tuple[Toolchain, ...]] = MappingProxyType(
    {
        Family.ZYNQ_7000: (Toolchain.VIVADO, Toolchain.OPENXC7),
        Family.ZYNQ_MP: (Toolchain.VIVADO,),
        Family.ECP5: (Toolchain.TRELLIS,),
    }
)


def choose_toolchain(board: Board, name: str | None) -> Toolchain:
    """Return the toolchain of that name, or the usual one of the board.

    Raises
    ------
    InputError
        If the board has no such toolchain.
    """
    known = TOOLCHAINS[board.part.family]
    for toolchain in known:
        if name in (None, toolchain.value):
            return toolchain
    raise InputError(
        f"toolchain {name!r} does not build for {board.title}",
        hint=f"toolchains: {', '.join(item.value for item in known)}",
    )
