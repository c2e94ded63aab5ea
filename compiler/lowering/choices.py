"""Choices that a tuner has made, by the digest of all that their timing depends on."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from types import MappingProxyType
from typing import TypeAlias

from tilewright.compiler.lowering.lane_tiling import LaneShape, LaneTiling
from tilewright.compiler.lowering.tiling import MatrixShape, MatrixTiling

#: What the search for the tiles of a kernel needs to know of it.
KernelShape: TypeAlias = MatrixShape | LaneShape
Tiling: TypeAlias = MatrixTiling | LaneTiling

#: Raised when a tiling or a digest comes to mean something else, so that older ones are unused.
CHOICES_VERSION = 1
#: Tiles that a kernel is ahead of the one that reads its rows, where nothing is tuned: store and
#: load in between take their time.
DEFAULT_LEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How kernels that take turns, or one kernel, are cut to tiles, and what that costs."""

    #: Of each kernel.
    tilings: tuple[Tiling, ...]
    #: Tiles that a kernel is ahead of the next one.
    lead: int = DEFAULT_LEAD
    #: Simulated cycles of these kernels alone.
    cycles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Tuned choices for one configuration; what is absent follows the estimate of cycles."""

    by_digest: Mapping[str, Choice] = field(default_factory=lambda: MappingProxyType({}))
    #: What suits whole networks, by the digest of all kernels in order, in place of the above.
    networks: Mapping[str, Mapping[str, Choice]] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def within(self, network: str) -> "Choices":
        """Return the choices for a network by its digest."""
        own = self.networks.get(network)
        return self if own is None else Choices(by_digest=own)

    def of(self, digest: str) -> Choice | None:
        """Return the choice for kernels by their digest, if there is one."""
        return self.by_digest.get(digest)

    def matrix_tiling(self, shape: MatrixShape) -> MatrixTiling | None:
        """Return the tuned tiling of a convolution by itself, if there is one."""
        match self._alone(shape):
            case Choice(tilings=(MatrixTiling() as tiling,)):
                return tiling
            case _:
                return None

    def lane_tiling(self, shape: LaneShape) -> LaneTiling | None:
        """Return the tuned tiling of a lane kernel by itself, if there is one."""
        match self._alone(shape):
            case Choice(tilings=(LaneTiling() as tiling,)):
                return tiling
            case _:
                return None

    def _alone(self, shape: KernelShape) -> Choice | None:
        return self.of(kernels_digest([shape])) if self.by_digest else None


#: Nothing tuned.
NO_CHOICES = Choices()


def kernels_digest(shapes: Sequence[KernelShape], links: Sequence[tuple[int, ...]] = ()) -> str:
    """Return the digest of kernels in order, the same in every process.

    `links` says for each kernel which of them make the tensors that it reads, -1 for none.
    """
    text = "\n".join([*map(_described, shapes), *map(repr, links)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _described(shape: KernelShape) -> str:
    """Return a shape as `repr` does, without the fields that have their default."""
    values = ((item, getattr(shape, item.name)) for item in fields(shape))
    chosen = (
        f"{item.name}={value!r}"
        for item, value in values
        if item.default is MISSING or value != item.default
    )
    return f"{type(shape).__qualname__}({', '.join(chosen)})"
