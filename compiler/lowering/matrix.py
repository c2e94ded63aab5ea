"""A convolution on the array: its weights in blocks, its tiles, and the code of its schedule."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilewright.compiler.lowering.bindings import Binding, DramView, WeightBlocks
from tilewright.compiler.lowering.choices import NO_CHOICES, Choices
from tilewright.compiler.lowering.convolution import (
    ConvolutionShape,
    convolution,
    schedule_convolution,
)
from tilewright.compiler.lowering.declarations import PAD, SUM, Plane, limits
from tilewright.compiler.lowering.kernels import MatrixKernel
from tilewright.compiler.lowering.nest_code import NestCode, NestTiles
from tilewright.compiler.lowering.parameters import (
    coefficients_of_all,
    scales_of_all,
    scales_of_channels,
)
from tilewright.compiler.lowering.products import pack_weights
from tilewright.compiler.lowering.steps import TileStep
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.lowering.tiling import MatrixShape, MatrixTiling, choose_tiling
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.memo import memoize


class MatrixSchedule:
    """A convolution cut to tiles for one configuration."""

    def __init__(
        self,
        kernel: MatrixKernel,
        tensors: Mapping[str, BlockedTensor],
        config: AcceleratorConfig,
        *,
        streamed: bool = False,
        choices: Choices = NO_CHOICES,
    ) -> None:
        self.kernel = kernel
        self.config = config
        self.source = tensors[kernel.source]
        self.output = tensors[kernel.output]
        self.packed = pack_weights(kernel.weights, kernel.groups, config)
        self.shape = self._shape(streamed=streamed)
        self.tiling = choices.matrix_tiling(self.shape) or choose_tiling(self.shape, config)

    @property
    def macs(self) -> int:
        """Multiply-accumulates, without any rounding up."""
        shape = self.output.shape
        return shape.images * shape.height * shape.width * self.kernel.weights.size

    @property
    def ideal_cycles(self) -> int:
        """Cycles of the array alone: channels rounded up to whole blocks, the window folded in
        where the input has too few channels to fill a block.
        """
        shape, config = self.output.shape, self.config
        per_position = self.packed.products
        if self.packed.dense:
            outputs, rows, columns, inputs = self.kernel.weights.shape
            taps = rows * columns
            reduction = min(
                -(-taps * inputs // config.block_in), taps * -(-inputs // config.block_in)
            )
            per_position = reduction * -(-outputs // config.block_out)
        return self.output.groups * shape.height * shape.width * per_position

    @property
    def resident_weights(self) -> int:
        """Entries of `wgt` that hold all weights, and a part of them once more to be on the safe
        side where the ring wraps around.
        """
        parts = self.config.layout_block // self.config.block_out
        return self.packed.products + self.tiling.out_blocks * parts * self.packed.most_products

    def declared(self) -> Tensor:
        """Return the kernel's tensor expression."""
        return convolution(self._declaration(), self.config)

    def tensor_schedule(self) -> Schedule:
        """Return the schedule of the convolution's tensor expression."""
        return schedule_convolution(self._declaration(), self.tiling, self.config)

    def steps(self, tensors: Mapping[str, BlockedTensor]) -> tuple[TileStep, ...]:
        """Return the tiles in order, on tensors that have their place in DRAM."""
        code = _code(self._declaration(), self.tiling, self.config)
        return tuple(NestTiles(code, self.bindings(tensors), self.scalars()).steps())

    def _shape(self, *, streamed: bool) -> MatrixShape:
        packed = self.packed
        return MatrixShape(
            window=replace(self.kernel.window, pad_value=0),
            source=self.source,
            output=self.output,
            products=packed.most_products,
            all_products=packed.products,
            spans=() if packed.dense else packed.spans,
            residual=self.kernel.residual is not None,
            streamed=streamed,
        )

    def _declaration(self) -> ConvolutionShape:
        kernel = self.kernel
        return ConvolutionShape(
            source=Plane.of(self.source),
            output=Plane.of(self.output),
            window=replace(kernel.window, pad_value=0),
            addends=self.packed.addends,
            dense=self.packed.dense,
            residual=kernel.residual is not None,
        )

    def scalars(self) -> dict[str, int]:
        """Return the scalars of the tensor expression."""
        kernel = self.kernel
        scalars = {PAD: kernel.window.pad_value, **limits(kernel.scale)}
        if kernel.residual is not None:
            scalars |= limits(kernel.residual.scale, SUM)
        return scalars

    def bindings(self, tensors: Mapping[str, BlockedTensor]) -> dict[str, Binding]:
        """Return what the inputs and the output of the tensor expression stand for."""
        kernel, config = self.kernel, self.config
        bindings: dict[str, Binding] = {
            "x": DramView(name=kernel.source, tensor=tensors[kernel.source]),
            "y": DramView(name=kernel.output, tensor=tensors[kernel.output]),
            "w": WeightBlocks(tiles=self.packed.tiles, present=self.packed.present),
            "prm": scales_of_channels(kernel.scale, config),
        }
        residual = kernel.residual
        if residual is not None:
            factors = np.array([[residual.own_coefficient], [residual.coefficient]])
            bindings |= {
                "r": DramView(name=residual.tensor, tensor=tensors[residual.tensor]),
                "coef": coefficients_of_all(factors, config),
                "prm_r": scales_of_all([residual.scale], config),
            }
        return bindings


@memoize
def _code(shape: ConvolutionShape, tiling: MatrixTiling, config: AcceleratorConfig) -> NestCode:
    return NestCode(lower(schedule_convolution(shape, tiling, config)))
