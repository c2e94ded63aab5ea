"""Plans: how the kernel of a group is cut into tiles and shared by threads, where a tuner decides.

A group without a plan follows the rules of the module that lowers it. A plan changes time, and in
floating point the order of sums; results of integer networks stay what they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias


class Outside(Enum):
    """What the outer loops of a kernel run over, which threads share."""

    #: Panels of output channels: each one's weights are read once, the image once per panel.
    PANELS = "panels"
    #: Output positions: weights are read for each of their blocks, the image once.
    POSITIONS = "positions"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPlan:
    """Of a convolution, a dense layer or a product of activations.

    Attributes
    ----------
    panel
        Output channels of a panel.
    positions
        Most output positions of a tile, whose sums are in registers for all channels of a panel.
    outside
        The outer loop.
    block
        Most tiles of positions that are computed for one panel before the next; only with
        positions outside.
    unroll
        Most numbers of the sum per written-out step of the inner loop.
    """

    panel: int
    positions: int
    outside: Outside
    block: int = 1
    unroll: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradPlan:
    """Of a convolution of 3 x 3 by minimal filtering.

    Attributes
    ----------
    outputs
        Rows and columns of the outputs of a tile.
    block_bytes
        Most bytes of transformed images and products between the kernels.
    panel, positions, unroll
        Of the products, as in `MatrixPlan`.
    """

    outputs: int
    block_bytes: int
    panel: int
    positions: int
    unroll: int

    @property
    def products(self) -> MatrixPlan:
        """The plan of the products of each frequency."""
        return MatrixPlan(
            panel=self.panel,
            positions=self.positions,
            outside=Outside.PANELS,
            unroll=self.unroll,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwisePlan:
    """Of a depthwise convolution.

    Attributes
    ----------
    columns
        Most outputs of a row that are computed together.
    channels
        Channels that are computed together, a divisor of all.
    outside
        Whether threads share channels or rows.
    """

    columns: int
    channels: int
    outside: Outside


Plan: TypeAlias = MatrixPlan | WinogradPlan | DepthwisePlan
#: Nothing tuned: rules decide everywhere.
NO_PLANS: Mapping[str, Plan] = MappingProxyType({})
