"""A convolution on the array: its weights in blocks, its tiles, and the code of its schedule."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

from tilewright.compiler.lowering.bindings import (
    Binding,
    ConstantEntries,
    DramView,
    WeightBlocks,
)
from tilewright.compiler.lowering.choices import NO_CHOICES, Choices
from tilewright.compiler.lowering.convolution import (
    ConvolutionShape,
    convolution,
    schedule_convolution,
)
from tilewright.compiler.lowering.declarations import PAD, SUM, Plane, limits
from tilewright.compiler.lowering.interleaved import (
    InterleavedShape,
    interleaved_convolution,
    schedule_interleaved,
)
from tilewright.compiler.lowering.kernels import MatrixKernel
from tilewright.compiler.lowering.nest_code import NESTS_KEPT, NestCode, NestTiles
from tilewright.compiler.lowering.parameters import (
    coefficients_of_all,
    scales_of_all,
    scales_of_channels,
)
from tilewright.compiler.lowering.products import pack_weights
from tilewright.compiler.lowering.steps import TileStep
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.lowering.tiling import MatrixShape, MatrixTiling, legal_tilings
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError


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
        self.packed = pack_weights(kernel.weights, kernel.groups, config, kernel.taps)
        self.shape = self._shape(streamed=streamed)
        tuned = choices.matrix_tiling(self.shape)
        self.tiling = tuned if tuned and self._suits(tuned) else self.legal_tilings()[0]

    def legal_tilings(self) -> tuple[MatrixTiling, ...]:
        """Return every tiling that fits, by estimated cycles; there is at least one.

        Raises
        ------
        CompileError
            As `tilewright.compiler.lowering.tiling.legal_tilings`.
        """
        found = legal_tilings(self.shape, self.config)
        if self.kernel.phases != (1, 1):
            found = tuple(filter(self._suits, found))
        if not found:
            raise CompileError("no tile holds the results of all phases of a position")
        return found

    def _suits(self, tiling: MatrixTiling) -> bool:
        """Whether the results of all phases at a position are in one tile."""
        return tiling.out_blocks % math.prod(self.kernel.phases) == 0

    @property
    def positions(self) -> tuple[int, int]:
        """Rows and columns of positions of the window."""
        shape, (rows, columns) = self.output.shape, self.kernel.phases
        return shape.height // rows, shape.width // columns

    @property
    def macs(self) -> int:
        """Multiply-accumulates, without any rounding up."""
        shape, taps = self.output.shape, self.kernel.taps
        if taps is None:
            return shape.images * shape.height * shape.width * self.kernel.weights.size
        per_position = int(taps.sum()) * shape.channels * int(self.kernel.weights.shape[3])
        return shape.images * math.prod(self.positions) * per_position

    @property
    def ideal_cycles(self) -> int:
        """Cycles of the array alone: channels rounded up to whole blocks, the window folded in
        where the input has too few channels to fill a block.
        """
        config = self.config
        per_position = self.packed.products
        if self.packed.dense and self.kernel.taps is None:
            outputs, rows, columns, inputs = self.kernel.weights.shape
            taps = rows * columns
            reduction = min(
                -(-taps * inputs // config.block_in), taps * -(-inputs // config.block_in)
            )
            per_position = reduction * -(-outputs // config.block_out)
        return self.output.groups * math.prod(self.positions) * per_position

    @property
    def resident_weights(self) -> int:
        """Entries of `wgt` that hold all weights, and a part of them once more to be on the safe
        side where the ring wraps around.
        """
        parts = self.config.layout_block // self.config.block_out
        return self.packed.products + self.tiling.out_blocks * parts * self.packed.most_products

    def declared(self) -> Tensor:
        """Return the kernel's tensor expression."""
        match self._declaration():
            case ConvolutionShape() as shape:
                return convolution(shape, self.config)
            case InterleavedShape() as shape:
                return interleaved_convolution(shape, self.config)

    def tensor_schedule(self) -> Schedule:
        """Return the schedule of the convolution's tensor expression."""
        return _schedule(self._declaration(), self.tiling, self.config)

    def steps(self, tensors: Mapping[str, BlockedTensor]) -> tuple[TileStep, ...]:
        """Return the tiles in order, on tensors that have their place in DRAM."""
        code = _code(self._declaration(), self.tiling, self.config)
        return tuple(NestTiles(code, self.bindings(tensors), self.scalars()).steps())

    def _shape(self, *, streamed: bool) -> MatrixShape:
        packed, phases = self.packed, math.prod(self.kernel.phases)
        output = self.output
        if phases > 1:
            # The search takes the results of all phases at a position for its channels.
            channels = output.blocks * phases * output.block
            rows, columns = self.positions
            shape = replace(output.shape, height=rows, width=columns, channels=channels)
            output = replace(output, shape=shape)
        return MatrixShape(
            window=replace(self.kernel.window, pad_value=0),
            source=self.source,
            output=output,
            products=packed.most_products,
            all_products=packed.products,
            spans=() if packed.dense else self._spans(),
            residual=self.kernel.residual is not None,
            streamed=streamed,
        )

    def _spans(self) -> tuple[tuple[int, int], ...]:
        """Return what blocks read, those of all phases at a position one after the other."""
        spans, blocks = self.packed.spans, self.output.blocks
        return tuple(span for block in range(blocks) for span in spans[block::blocks])

    def _declaration(self) -> ConvolutionShape | InterleavedShape:
        kernel = self.kernel
        if kernel.phases != (1, 1):
            rows, columns = self.positions
            return InterleavedShape(
                source=Plane.of(self.source),
                output=replace(Plane.of(self.output), rows=rows, columns=columns),
                window=replace(kernel.window, pad_value=0),
                phases=kernel.phases,
                addends=self.packed.addends,
                dense=self.packed.dense,
            )
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
        if kernel.phases != (1, 1):
            bindings |= _by_phase(bindings, kernel.phases)
        residual = kernel.residual
        if residual is not None:
            factors = np.array([[residual.own_coefficient], [residual.coefficient]])
            bindings |= {
                "r": DramView(name=residual.tensor, tensor=tensors[residual.tensor]),
                "coef": coefficients_of_all(factors, config),
                "prm_r": scales_of_all([residual.scale], config),
            }
        return bindings


def _by_phase(bindings: Mapping[str, Binding], phases: tuple[int, int]) -> dict[str, Binding]:
    """Return weights and parameters with the rows and columns of phases in front."""

    def split(values: npt.NDArray[np.generic]) -> npt.NDArray[Any]:
        return values.reshape(*phases, -1, *values.shape[1:])

    weights, prm = bindings["w"], bindings["prm"]
    assert isinstance(weights, WeightBlocks) and isinstance(prm, ConstantEntries)  # noqa: PT018
    return {
        "w": WeightBlocks(tiles=split(weights.tiles), present=split(weights.present)),
        "prm": ConstantEntries(entries=split(prm.entries)),
    }


def _schedule(
    shape: ConvolutionShape | InterleavedShape, tiling: MatrixTiling, config: AcceleratorConfig
) -> Schedule:
    match shape:
        case ConvolutionShape():
            return schedule_convolution(shape, tiling, config)
        case InterleavedShape():
            return schedule_interleaved(shape, tiling, config)
        case _:
            assert_never(shape)


@lru_cache(maxsize=NESTS_KEPT)
def _code(
    shape: ConvolutionShape | InterleavedShape, tiling: MatrixTiling, config: AcceleratorConfig
) -> NestCode:
    return NestCode(lower(_schedule(shape, tiling, config)))
