"""Sets of scratchpad indices as bit masks, swept by loops without enumerating the steps."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def mask_of(values: Indices, bits: int) -> int:
    """Make the mask of some indices below ``2**bits``: bit n is set where n is among them."""
    present = np.zeros(1 << bits, dtype=np.bool_)
    present[values] = True
    return int.from_bytes(np.packbits(present, bitorder="little").tobytes(), "little")


def indices_of(mask: int) -> Indices:
    """List the indices of a mask in ascending order; the inverse of `mask_of`."""
    data = np.frombuffer(mask.to_bytes((mask.bit_length() + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(data, bitorder="little").nonzero()[0]


def rotate(mask: int, distance: int, bits: int) -> int:
    """Add a distance to every index, modulo ``2**bits``."""
    size = 1 << bits
    distance %= size
    return (mask << distance | mask >> size - distance) & ((1 << size) - 1)


def sweep(mask: int, loops: Iterable[tuple[int, int]], bits: int) -> int:
    """Collect what the indices become in all iterations of nested loops, modulo ``2**bits``.

    Parameters
    ----------
    mask
        Indices in the first iteration.
    loops
        Extent and stride of each loop.
    bits
        Width of an index.

    The union over an extent is built by doubling, so its cost grows with the logarithm of the
    extents.
    """
    for extent, stride in loops:
        covered = 1 if stride else extent
        while covered < extent:
            step = min(covered, extent - covered)
            mask |= rotate(mask, step * stride, bits)
            covered += step
    return mask
