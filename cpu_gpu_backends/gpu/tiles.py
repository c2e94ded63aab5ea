"""Sizes of tiles and blocks: the choices of a schedule, and which are taken by default."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.gpu.device import Capability
from tilewright.cpu_gpu_backends.gpu.matrix_form import MatrixSizes, Padding, rounded_up

#: Bytes: rows of a tile begin an odd number of these apart, so that eight neighbouring ones, which
#: as many threads read, lie in different banks of shared memory.
ROW_UNIT_BYTES = 16

Tile = TypeVar("Tile", "MatrixTile", "WarpTile")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTile:
    """The part of a product that a block computes at a time, and a thread of it.

    Attributes
    ----------
    block_m, block_n, block_k
        Rows, columns and depth of the tiles in shared memory.
    thread_m, thread_n
        Rows and columns that a thread keeps in registers.
    fetches_ahead
        Whether the next tiles are fetched while the present ones are multiplied.
    """

    block_m: int
    block_n: int
    block_k: int
    thread_m: int
    thread_n: int
    fetches_ahead: bool = False

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
        """Return the shared memory that its tiles take."""
        return tile_bytes(self, dtype)

    def blocks(self, sizes: MatrixSizes) -> int:
        """Return how many blocks compute a product."""
        rows, columns = -(-sizes.m // self.block_m), -(-sizes.n // self.block_n)
        return sizes.batch * rows * columns


def tile_bytes(tile: "MatrixTile | WarpTile", dtype: ScalarType) -> int:
    """Return the shared memory of the tiles of both operands, kept twice to be fetched ahead."""
    row = tile.block_k * int(dtype.numpy.itemsize) + ROW_UNIT_BYTES
    return (tile.block_m + tile.block_n) * row * (2 if tile.fetches_ahead else 1)


def with_fetches(tiles: Iterable[Tile], sizes: MatrixSizes, capability: Capability) -> list[Tile]:
    """Return `tiles`, and those that fetch ahead where the device can and there is a next tile."""
    return [
        replace(tile, fetches_ahead=ahead)
        for tile in tiles
        for ahead in ((True, False) if capability.fetches_ahead else (False,))
        if not ahead or sizes.k > tile.block_k
    ]


#: How much longer a tile takes whose threads wait for it to be fetched; a guess, tuning measures.
_WAITING = 1.2

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
        for tile in with_fetches(tiles, sizes, capability)
        if tile.shared_bytes(dtype) <= capability.shared_bytes
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
    work = rounds * together * tile.block_m * tile.block_n * depth * (1 + 4 * loads)
    return work if tile.fetches_ahead else work * _WAITING


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
    fetches_ahead: bool = False

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
    if capability.generation < _FIRST_GENERATION:
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
    fitting = (
        tile
        for tile in with_fetches(tiles, sizes, capability)
        if tile_bytes(tile, dtype) + _result_bytes(tile) <= capability.shared_bytes
    )
    return tuple(sorted(fitting, key=lambda tile: _warp_estimate(tile, sizes, capability)))


def _result_bytes(tile: WarpTile) -> int:
    """Return the shared memory that results go through, 4 bytes each."""
    return 4 * tile.block_m * tile.block_n


def _warp_estimate(tile: WarpTile, sizes: MatrixSizes, capability: Capability) -> float:
    rows, columns = -(-sizes.m // tile.block_m), -(-sizes.n // tile.block_n)
    together = max(1, 256 // tile.threads)
    rounds = -(-sizes.batch * rows * columns // (capability.units * together))
    loads = 1 / tile.warp_m + 1 / tile.warp_n
    depth = rounded_up(sizes.k, tile.block_k) + tile.block_k
    work = rounds * together * tile.block_m * tile.block_n * depth * (1 + 16 * loads)
    return work if tile.fetches_ahead else work * _WAITING
