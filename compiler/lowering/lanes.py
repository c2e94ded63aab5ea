"""A kernel of the vector engine: its parameters, its tiles, and the code of its schedule."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tilewright.compiler.lowering.bindings import Binding, ConstantEntries, DramView
from tilewright.compiler.lowering.choices import NO_CHOICES, Choices
from tilewright.compiler.lowering.declarations import LIMITS, PAD, Plane, limits
from tilewright.compiler.lowering.kernels import IntArray, LaneKernel
from tilewright.compiler.lowering.lane_operation import (
    INPUTS,
    LaneOperation,
    Sharing,
    lane_operation,
    schedule_lanes,
)
from tilewright.compiler.lowering.lane_tiling import LaneShape, LaneTiling, choose_lane_tiling
from tilewright.compiler.lowering.nest_code import NESTS_KEPT, NestCode, NestTiles
from tilewright.compiler.lowering.parameters import (
    coefficients_of_all,
    coefficients_of_channels,
    scales_of_all,
    scales_of_channels,
)
from tilewright.compiler.lowering.steps import TileStep
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.isa.config import AcceleratorConfig


class LaneSchedule:
    """A lane kernel cut to tiles for one configuration."""

    def __init__(
        self,
        kernel: LaneKernel,
        tensors: Mapping[str, BlockedTensor],
        config: AcceleratorConfig,
        *,
        streamed: bool = False,
        choices: Choices = NO_CHOICES,
    ) -> None:
        self.kernel = kernel
        self.config = config
        self.output = tensors[kernel.output]
        self.operation = lane_operation_of(kernel, tensors, config)
        self.shape = self._shape(tensors, streamed=streamed)
        self.tiling = choices.lane_tiling(self.shape) or choose_lane_tiling(self.shape, config)

    @property
    def macs(self) -> int:
        """Multiply-accumulates, without any rounding up."""
        shape = self.output.shape
        return shape.images * self.kernel.rows * self.kernel.columns * shape.channels * self._taps

    @property
    def ideal_cycles(self) -> int:
        """Cycles of the lanes alone, channels rounded up to whole blocks."""
        blocks = -(-self.kernel.channels // self.config.block_out)
        positions = self.output.groups * self.kernel.rows * self.kernel.columns
        return positions * blocks * self._taps

    @property
    def resident_weights(self) -> int:
        """Entries of `wgt` that the kernel holds."""
        return 0

    def declared(self) -> Tensor:
        """Return the kernel's tensor expression."""
        return lane_operation(self.operation, self.config)

    def tensor_schedule(self) -> Schedule:
        """Return the schedule of the kernel's tensor expression."""
        return schedule_lanes(self.operation, self.tiling, self.config)

    def scalars(self) -> dict[str, int]:
        """Return the scalars of the tensor expression."""
        return lane_scalars(self.kernel)

    def bindings(self, tensors: Mapping[str, BlockedTensor]) -> dict[str, Binding]:
        """Return what the inputs and the output of the tensor expression stand for."""
        return lane_bindings(self.kernel, tensors, self.config)

    def steps(self, tensors: Mapping[str, BlockedTensor]) -> tuple[TileStep, ...]:
        """Return the tiles in order, on tensors that have their place in DRAM."""
        code = _code(self.operation, self.tiling, self.config)
        return tuple(NestTiles(code, self.bindings(tensors), self.scalars()).steps())

    @property
    def _taps(self) -> int:
        return max(self.kernel.window.taps, len(self.kernel.sources))

    def _shape(self, tensors: Mapping[str, BlockedTensor], *, streamed: bool) -> LaneShape:
        kernel, operation = self.kernel, self.operation
        return LaneShape(
            window=operation.window,
            sources=tuple(tensors[source.tensor] for source in kernel.sources),
            output=self.output,
            rows=kernel.rows,
            columns=kernel.columns,
            channels=kernel.channels,
            target=kernel.target,
            taps=self._taps,
            micro_ops=1 if operation.walks_window else self._taps,
            coefficients_per_channel=operation.coefficients is Sharing.CHANNELS,
            scales_per_channel=operation.scales is Sharing.CHANNELS,
            scale_counts=operation.scale_counts,
            lookup=operation.lookup,
            streamed=streamed,
            repeat=kernel.repeat,
        )


@lru_cache(maxsize=NESTS_KEPT)
def _code(shape: LaneOperation, tiling: LaneTiling, config: AcceleratorConfig) -> NestCode:
    return NestCode(lower(schedule_lanes(shape, tiling, config)))


def lane_operation_of(
    kernel: LaneKernel, tensors: Mapping[str, BlockedTensor], config: AcceleratorConfig
) -> LaneOperation:
    """Return what is declared of a kernel."""
    blocks = -(-kernel.channels // config.layout_block)
    output = Plane.of(tensors[kernel.output])
    return LaneOperation(
        sources=tuple(
            replace(Plane.of(tensors[source.tensor]), blocks=blocks) for source in kernel.sources
        ),
        output=replace(output, blocks=blocks, rows=kernel.rows, columns=kernel.columns),
        window=replace(kernel.window, pad_value=0),
        operation=kernel.operation,
        coefficients=_sharing(kernel.coefficients, axis=1),
        scales=_sharing(None if kernel.scale is None else kernel.scale.bias, axis=0),
        scale_counts=tuple(count for count, _ in kernel.border),
        lookup=kernel.table is not None,
        repeat=kernel.repeat,
    )


def _sharing(values: IntArray | None, axis: int) -> Sharing:
    if values is None:
        return Sharing.NONE
    return Sharing.CHANNELS if values.shape[axis] > 1 else Sharing.ALL


def lane_scalars(kernel: LaneKernel) -> dict[str, int]:
    """Return the scalars of a kernel."""
    own = dict(zip(LIMITS, (0, kernel.low, kernel.high), strict=True))
    return {PAD: kernel.window.pad_value, **(limits(kernel.scale) if kernel.scale else own)}


def lane_bindings(
    kernel: LaneKernel, tensors: Mapping[str, BlockedTensor], config: AcceleratorConfig
) -> dict[str, Binding]:
    """Return what the inputs and the output of a kernel stand for."""
    block, row, column = kernel.target
    output = DramView(
        name=kernel.output, tensor=tensors[kernel.output], block=block, row=row, column=column
    )
    bindings: dict[str, Binding] = {"y": output}
    for name, source in zip(INPUTS, kernel.sources, strict=False):
        tensor = tensors[source.tensor]
        bindings[name] = DramView(name=source.tensor, tensor=tensor, block=source.block)
    if kernel.scale is not None:
        scales = [kernel.scale, *(scale for _, scale in kernel.border)]
        by_channel = len(kernel.scale.bias) > 1
        assert not (by_channel and kernel.border), "a border scale is the same for all channels"
        bindings["prm"] = (
            scales_of_channels(kernel.scale, config)
            if by_channel
            else scales_of_all(scales, config)
        )
    if kernel.coefficients is not None:
        bindings["coef"] = _coefficients(kernel, kernel.coefficients, config)
    if kernel.table is not None:
        bindings["table"] = ConstantEntries(entries=kernel.table.astype(np.int8).view(np.uint8))
    return bindings


def _coefficients(
    kernel: LaneKernel, values: IntArray, config: AcceleratorConfig
) -> ConstantEntries:
    """Return entries by the positions of the window, or one for each source."""
    taps = kernel.window.kernel if len(kernel.sources) == 1 else (2,)
    by_channel = values.shape[1] > 1
    entries = (
        coefficients_of_channels(values, config)
        if by_channel
        else coefficients_of_all(values, config)
    ).entries
    return ConstantEntries(entries=entries.reshape(*entries.shape[:-2], *taps, -1))
