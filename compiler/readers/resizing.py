"""How the model formats resize: which entries of an axis make each entry of the resized one."""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
from typing_extensions import assert_never

from tilewright.compiler.graph import Array
from tilewright.compiler.graph_builder import MAX_AXIS, MAX_ELEMENTS


class Coordinates(Enum):
    """Where an entry of the result lies on the axis that it is made from; names are ONNX's."""

    HALF_PIXEL = "half_pixel"
    HALF_PIXEL_SYMMETRIC = "half_pixel_symmetric"
    PYTORCH_HALF_PIXEL = "pytorch_half_pixel"
    ALIGN_CORNERS = "align_corners"
    ASYMMETRIC = "asymmetric"
    TF_HALF_PIXEL_FOR_NN = "tf_half_pixel_for_nn"


class Rounding(Enum):
    """Which of two entries is the nearest one; names are ONNX's."""

    ROUND_PREFER_FLOOR = "round_prefer_floor"
    ROUND_PREFER_CEIL = "round_prefer_ceil"
    FLOOR = "floor"
    CEIL = "ceil"


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisResize:
    """An axis of `size` entries resized to `result`; `scale` may differ from their ratio."""

    size: int
    result: int
    scale: float
    coordinates: Coordinates

    @property
    def is_possible(self) -> bool:
        """Whether sizes and scale are those of a real network, and not of a damaged file."""
        reach = 4 / min(max(self.scale, 1e-9), 1.0)
        return (
            0 < self.size
            and 0 < self.result <= MAX_AXIS
            and self.scale > 0
            and self.result * reach <= MAX_ELEMENTS
        )

    def positions(self) -> Array:
        """Return where each entry of the result lies, float64 ``[result]``."""
        index = np.arange(self.result, dtype=np.float64)
        positions: Array
        match self.coordinates:
            case Coordinates.HALF_PIXEL:
                positions = (index + 0.5) / self.scale - 0.5
            case Coordinates.HALF_PIXEL_SYMMETRIC:
                stretch = self.result / (self.scale * self.size)
                offset = self.size / 2 * (1 - stretch)
                positions = offset + (index + 0.5) / self.scale - 0.5
            case Coordinates.PYTORCH_HALF_PIXEL:
                positions = (index + 0.5) / self.scale - 0.5 if self.result > 1 else index * 0
            case Coordinates.ALIGN_CORNERS:
                positions = index * ((self.size - 1) / max(self.result - 1, 1))
            case Coordinates.ASYMMETRIC:
                positions = index / self.scale
            case Coordinates.TF_HALF_PIXEL_FOR_NN:
                positions = (index + 0.5) / self.scale
            case _:
                assert_never(self.coordinates)
        return positions

    def nearest(self, rounding: Rounding) -> Array:
        """Return the nearest entry of each position, int32 ``[result]``."""
        positions = self.positions()
        match rounding:
            case Rounding.ROUND_PREFER_FLOOR:
                rounded = np.ceil(positions - 0.5)
            case Rounding.ROUND_PREFER_CEIL:
                rounded = np.floor(positions + 0.5)
            case Rounding.FLOOR:
                rounded = np.floor(positions)
            case Rounding.CEIL:
                rounded = np.ceil(positions)
            case _:
                assert_never(rounding)
        return np.clip(rounded, 0, self.size - 1).astype(np.int32)

    def taps(
        self, *, cubic: float | None, antialias: bool, exclude_outside: bool
    ) -> tuple[Array, Array]:
        """Return entries and their weights for each position, ``[result, taps]``.

        `cubic` is the coefficient of Keys' kernel, None for linear interpolation; with `antialias`
        the kernel is as wide as the entries of the result lie apart.
        """
        positions = self.positions()
        spread = min(self.scale, 1.0) if antialias else 1.0
        reach = (1 if cubic is None else 2) / spread
        first = np.floor(positions - reach).astype(np.int64) + 1
        count = max(math.ceil(2 * reach), 1)
        entries = first[:, np.newaxis] + np.arange(count)
        distance = np.abs(entries - positions[:, np.newaxis]) * spread
        weights = np.maximum(1 - distance, 0) if cubic is None else _keys(distance, cubic)
        if exclude_outside:
            weights = np.where((entries >= 0) & (entries < self.size), weights, 0)
        if exclude_outside or antialias:
            weights = weights / weights.sum(axis=1, keepdims=True)
        indices = np.clip(entries, 0, self.size - 1)
        return indices.astype(np.int32), weights.astype(np.float32)


def _keys(distance: Array, a: float) -> Array:
    """Return the cubic convolution kernel (Keys, 1981) at distances from its centre."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))
