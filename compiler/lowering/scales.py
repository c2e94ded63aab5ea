"""Parameters of a lane kernel in `prm`, and which of them apply where."""

from tilewright.compiler.lowering.geometry import Tile
from tilewright.compiler.lowering.kernels import LaneKernel, Requantisation
from tilewright.compiler.lowering.parameters import prm_entries, splat_prm
from tilewright.compiler.lowering.tensors import TensorShape
from tilewright.isa.config import AcceleratorConfig


class ScaleTable:
    """Parameters of a lane kernel in `prm`: per channel, or one entry per scale."""

    def __init__(self, kernel: LaneKernel, config: AcceleratorConfig) -> None:
        self._kernel = kernel
        self.per_channel = kernel.scale is not None and len(kernel.scale.bias) > 1
        self.data = b""
        self._counts: dict[int, int] = {}
        if kernel.scale is None:
            return
        if self.per_channel:
            assert not kernel.border, "a border scale is the same for all channels"
            self.data = prm_entries(kernel.scale, config)
            return
        scales: list[Requantisation] = [kernel.scale]
        for count, scale in kernel.border:
            self._counts[count] = len(scales)
            scales.append(scale)
        self.data = b"".join(splat_prm(scale, config) for scale in scales)

    def areas(self, tile: Tile, image: TensorShape) -> list[tuple[int, int, int, int, int]]:
        """Parts of a tile with one scale: row, rows, column, columns, entry of the scale."""
        if not self._counts:
            return [(0, tile.rows, 0, tile.columns, 0)]
        row_parts = self._stretches(0, tile.row, tile.rows, image.height)
        column_parts = self._stretches(1, tile.column, tile.columns, image.width)
        return [
            (row, rows, column, columns, self._counts.get(inside_rows * inside_columns, 0))
            for row, rows, inside_rows in row_parts
            for column, columns, inside_columns in column_parts
        ]

    def _stretches(
        self, axis: int, first: int, count: int, size: int
    ) -> list[tuple[int, int, int]]:
        """Stretches of outputs whose windows have equally many positions inside the image."""
        result: list[tuple[int, int, int]] = []
        for offset in range(count):
            inside = self._kernel.window.span(axis, first + offset, 1, size).count
            if result and result[-1][2] == inside:
                result[-1] = (result[-1][0], result[-1][1] + 1, inside)
            else:
                result.append((offset, 1, inside))
        return result
