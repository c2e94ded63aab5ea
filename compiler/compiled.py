"""What compilation yields: steps for accelerator and host, and where each operator went."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.kernels import Window
from tilewright.compiler.lowering.tensors import BlockedTensor, TensorShape
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.program import Program


class Target(Enum):
    """Where an operator runs."""

    ACCELERATOR = "accelerator"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one operator of the integer graph runs, and why."""

    node: str
    operator: str
    target: Target
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Windows of an image laid out as channels, so that a first layer fills the array.

    The channels of an output position are the window's values in the order row, column, channel.
    """

    window: Window
    image: TensorShape
    rows: int
    columns: int

    def apply(self, values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
        """Turn images ``[N, H, W, C]`` into ``[N, rows, columns, kh * kw * C]``."""
        (kernel_rows, kernel_columns), window = self.window.kernel, self.window
        top, left = window.before
        reach_rows = (self.rows - 1) * window.stride[0] + (kernel_rows - 1) * window.dilation[0] + 1
        reach_columns = (
            (self.columns - 1) * window.stride[1] + (kernel_columns - 1) * window.dilation[1] + 1
        )
        shape = self.image
        padded = np.full(
            (
                shape.images,
                max(reach_rows, top + shape.height),
                max(reach_columns, left + shape.width),
                shape.channels,
            ),
            window.pad_value,
            dtype=np.int8,
        )
        padded[:, top : top + shape.height, left : left + shape.width] = values.reshape(
            shape.images, shape.height, shape.width, shape.channels
        )
        taps = [
            padded[
                :,
                row * window.dilation[0] : reach_rows
                - (kernel_rows - 1 - row) * window.dilation[0] : window.stride[0],
                column * window.dilation[1] : reach_columns
                - (kernel_columns - 1 - column) * window.dilation[1] : window.stride[1],
            ]
            for row in range(kernel_rows)
            for column in range(kernel_columns)
        ]
        return np.concatenate(taps, axis=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A tensor of the graph and where the accelerator finds or leaves it."""

    tensor: str
    layout: BlockedTensor
    fold: Fold | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerInfo:
    """One kernel of a program; its index is the layer number in `Program`."""

    name: str
    operator: str
    #: Nodes of the graph that the kernel computes.
    nodes: tuple[str, ...]
    #: Multiply-accumulates of the model, without any rounding up to blocks.
    macs: int
    #: Cycles that the array, or the lanes, need at the least: channels rounded up to whole blocks.
    ideal_cycles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorStep:
    """One program, what it reads and what it leaves in DRAM."""

    program: Program
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    layers: tuple[LayerInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStep:
    """Nodes that the host evaluates, in order."""

    nodes: tuple[Node, ...]


Step: TypeAlias = AcceleratorStep | HostStep


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGraph:
    """An integer graph and the steps that compute it on one configuration."""

    graph: Graph
    config: AcceleratorConfig
    steps: tuple[Step, ...]
    placement: tuple[Placement, ...]
