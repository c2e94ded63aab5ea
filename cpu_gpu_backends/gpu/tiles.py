"""Sizes of tiles and blocks: the choices of a schedule, and which are taken by default."""

from dataclasses import dataclass, replace

from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.gpu.device import Capability
from tilewright.cpu_gpu_backends.gpu.matrix_form import MatrixSizes, Padding, rounded_up


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTile:
    """The part of a product that a block computes at a time, and a thread of it.

    Attributes
    ----------
    block_m, block_n, block_k
        Rows, columns and depth of the tiles in shared memory.
    thread_m, thread_n
        Rows and columns that a thread keeps in registers.
    """

    block_m: int
    block_n: int
    block_k: int
    thread_m: int
    thread_n: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block_m // self.thread_m * (self.block_n // self.thread_n)

    @property
    def padding(self) -> Padding:
        """What the product's extents are rounded up to multiples of."""
        return Padding(m=self.block_m, n=self.block_n, k=self.block_k)

    def within(self, sizes: MatrixSizes) -> "MatrixTile":
        """Return the tile without whole threads that a small product leaves idle."""
        return replace(
            self,
            block_m=min(self.block_m, rounded_up(sizes.m, self.thread_m)),
            block_n=min(self.block_n, rounded_up(sizes.n, self.thread_n)),
        )

    def shared_bytes(self, dtype: ScalarType) -> int:
        """Return the shared memory that its tiles take, without what aligns rows."""
        return (self.block_m + self.block_n) * self.block_k * int(dtype.numpy.itemsize)

    def blocks(self, sizes: MatrixSizes) -> int:
        """Return how many blocks compute a product."""
        rows, columns = -(-sizes.m // self.block_m), -(-sizes.n // self.block_n)
        return sizes.batch * rows * columns


#: Block and thread tiles (m, n, m, n), the ones that reuse the most first.
_SHAPES = (
    (128, 128, 8, 8),
    (128, 64, 8, 8),
    (64, 128, 8, 8),
    (64, 64, 8, 4),
    (64, 32, 4, 4),
    (32, 64, 4, 4),
    (32, 32, 4, 4),
    (16, 64, 2, 4),
    (64, 16, 4, 2),
    (16, 16, 2, 2),
)
#: Bytes of a row of a tile in shared memory.
_ROW_BYTES = (64, 32)


def matrix_tiles(
    sizes: MatrixSizes, dtype: ScalarType, capability: Capability
) -> tuple[MatrixTile, ...]:
    """Return the tiles that fit a device: the search space of a product, the default one first."""
    tiles = [
        MatrixTile(
            block_m=block_m,
            block_n=block_n,
            block_k=row_bytes // int(dtype.numpy.itemsize),
            thread_m=thread_m,
            thread_n=thread_n,
        ).within(sizes)
        for block_m, block_n, thread_m, thread_n in _SHAPES
        for row_bytes in _ROW_BYTES
    ]
    fitting = [
        tile
        for tile in tiles
        # Rows in shared memory are longer by what keeps threads off the same bank.
        if 2 * tile.shared_bytes(dtype) <= capability.shared_bytes
        and tile.threads <= capability.threads_per_block
    ]
    different = dict.fromkeys(fitting)
    return tuple(sorted(different, key=lambda tile: _estimate(tile, sizes, capability)))


def _estimate(tile: MatrixTile, sizes: MatrixSizes, capability: Capability) -> float:
    """Estimate the time of a product: rounds of blocks on all units, by what a block costs.

    A block costs its multiplications and its loads from shared memory, a unit holding as many
    blocks at a time as have 256 threads together.
    """
    depth = rounded_up(sizes.k, tile.block_k)
    together = max(1, 256 // tile.threads)
    rounds = -(-tile.blocks(sizes) // (capability.units * together))
    loads = 1 / tile.thread_m + 1 / tile.thread_n
    return rounds * together * tile.block_m * tile.block_n * depth * (1 + 4 * loads)


#: Threads that run in step and multiply matrices together.
WARP_THREADS = 32
#: The first generation with the matrix instructions that are used (PTX ISA, mma).
_FIRST_GENERATION = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpTile:
    """The part of a product that a block computes at a time on tensor cores, and a warp of it."""

    block_m: int
    block_n: int
    block_k: int
    warp_m: int
    warp_n: int

    @property
    def warps_m(self) -> int:
        """Warps of a block along the rows."""
        return self.block_m // self.warp_m

    @property
    def warps_n(self) -> int:
        """Warps of a block along the columns."""
        return self.block_n // self.warp_n

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARP_THREADS * self.warps_m * self.warps_n

    @property
    def padding(self) -> Padding:
        """What the product's extents are rounded up to multiples of."""
        return Padding(m=self.block_m, n=self.block_n, k=self.block_k)


#: Block and warp tiles (m, n, m, n).
_WARP_SHAPES = (
    (64, 64, 32, 32),
    (128, 32, 32, 32),
    (32, 128, 32, 32),
    (64, 32, 32, 16),
    (32, 64, 16, 32),
    (32, 32, 16, 16),
    (16, 64, 16, 16),
    (64, 16, 16, 16),
    (16, 16, 16, 8),
    (16, 8, 16, 8),
)


def warp_tiles(
    sizes: MatrixSizes, dtype: ScalarType, capability: Capability
) -> tuple[WarpTile, ...]:
    """Return the tiles for tensor cores, the default one first; none where there are none.

    A product must have a whole tile: smaller ones are left to `matrix_tiles`.
    """
    if capability.matrix_generation < _FIRST_GENERATION:
        return ()
    tiles = [
        WarpTile(
            block_m=block_m,
            block_n=block_n,
            block_k=row_bytes // int(dtype.numpy.itemsize),
            warp_m=warp_m,
            warp_n=warp_n,
        )
        for block_m, block_n, warp_m, warp_n in _WARP_SHAPES
        for row_bytes in _ROW_BYTES
        if block_m <= sizes.m and block_n <= sizes.n
    ]
    return tuple(sorted(tiles, key=lambda tile: _warp_estimate(tile, sizes, capability)))


def _warp_estimate(tile: WarpTile, sizes: MatrixSizes, capability: Capability) -> float:
    rows, columns = -(-sizes.m // tile.block_m), -(-sizes.n // tile.block_n)
    together = max(1, 256 // tile.threads)
    rounds = -(-sizes.batch * rows * columns // (capability.units * together))
    loads = 1 / tile.warp_m + 1 / tile.warp_n
    depth = rounded_up(sizes.k, tile.block_k) + tile.block_k
    return rounds * together * tile.block_m * tile.block_n * depth * (1 + 16 * loads)
