"""Register tiles of matrix kernels: how many columns and rows of sums fit into the registers."""

from dataclasses import dataclass

from tilewright.cpu_gpu_backends.codegen.target import CpuTarget

#: Sums are 32 bits wide, float or integer.
_SUM_BYTES = 4
#: Panels have a multiple of so many columns, which is the narrowest vector.
COLUMN_STEP = 4
#: Vectors of a panel that are tried, the preferred number first: two leave the most rows, so that
#: each weight loaded is used often.
_PANEL_VECTORS = (2, 3, 4, 1, 5, 6)
#: With few rows, wide panels keep enough sums in flight to hide the latency of an addition.
_FEW_ROWS = 5
#: Registers that one operand takes where a panel has vectors of two lengths: less, and LLVM's
#: allocation keeps sums on the stack, at twice the time (a convolution of 144 to 24 channels).
_UNEVEN_OPERANDS = 3
_WIDE_PANEL_VECTORS = (8, 6, 4, 3, 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panels:
    """Output channels cut into panels of one width; the last one may be padded."""

    width: int
    count: int

    @property
    def channels(self) -> int:
        """Channels with the padded ones."""
        return self.width * self.count


def panels_of(channels: int, width: int) -> Panels:
    """Return panels of a width for so many channels."""
    return Panels(width=width, count=-(-channels // width))


def lanes(target: CpuTarget) -> int:
    """Return how many sums a vector holds."""
    return target.vector_bytes // _SUM_BYTES


def choose_panels(channels: int, rows: int, target: CpuTarget) -> Panels:
    """Cut `channels` into panels for kernels of `rows` rows: few padded lanes, then two vectors."""
    step = lanes(target)
    preferred = _WIDE_PANEL_VECTORS if rows <= _FEW_ROWS else _PANEL_VECTORS
    best: tuple[tuple[int, int, int], Panels] | None = None
    for rank, vectors in enumerate(preferred):
        for narrower in range(0, step, COLUMN_STEP):
            width = vectors * step - narrower
            panels = panels_of(channels, width)
            # A shorter vector takes as long as a whole one.
            cost = panels.count * vectors
            waste = panels.channels - channels
            key = (cost * 16 + (0 if rank == 0 else 1), waste, rank)
            if best is None or key < best[0]:
                best = (key, panels)
    assert best is not None, "there is a panel of one vector"
    return best[1]


def tile_rows(width: int, target: CpuTarget) -> int:
    """Return how many rows of a panel's sums fit beside its weights and one operand.

    Where the last vector of a panel is shorter, an operand takes a register for each length.
    """
    vectors = -(-width // lanes(target))
    operands = 1 if width % lanes(target) == 0 else _UNEVEN_OPERANDS
    return max(1, (target.vector_registers - operands - vectors) // vectors)
