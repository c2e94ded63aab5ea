"""Choices that a tuner has made for kernels, by the digest of all that their timing depends on."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from tilewright.compiler.lowering.lane_tiling import LaneShape, LaneTiling
from tilewright.compiler.lowering.tiling import MatrixShape, MatrixTiling

#: What the search for the tiles of a kernel needs to know of it.
KernelShape: TypeAlias = MatrixShape | LaneShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Tuned choices for one configuration; what is absent follows the estimate of cycles."""

    #: Tilings by the digest of the kernel's shape.
    matrix: Mapping[str, MatrixTiling] = field(default_factory=lambda: MappingProxyType({}))
    lanes: Mapping[str, LaneTiling] = field(default_factory=lambda: MappingProxyType({}))
    #: Whether kernels that could take turns do, by the digest of their shapes.
    joins: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))

    def matrix_tiling(self, shape: MatrixShape) -> MatrixTiling | None:
        """Return the tuned tiling of a convolution, if there is one."""
        return self.matrix.get(shape_digest(shape)) if self.matrix else None

    def lane_tiling(self, shape: LaneShape) -> LaneTiling | None:
        """Return the tuned tiling of a lane kernel, if there is one."""
        return self.lanes.get(shape_digest(shape)) if self.lanes else None

    def joined(self, shapes: tuple[KernelShape, ...]) -> bool:
        """Whether kernels that could take turns are to."""
        return self.joins.get(shape_digest(*shapes), True) if self.joins else True


#: Nothing tuned.
NO_CHOICES = Choices()


def shape_digest(*shapes: KernelShape) -> str:
    """Return the digest of the shapes of kernels, the same in every process."""
    text = "\n".join(repr(shape) for shape in shapes)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
