"""A pooling over an image too large for `vec`: rows at a time, through `acc`."""

from collections.abc import Mapping
from functools import lru_cache

from tilewright.compiler.lowering.bindings import Binding
from tilewright.compiler.lowering.emitter import MAX_EXTENT
from tilewright.compiler.lowering.kernels import LaneKernel, Window
from tilewright.compiler.lowering.lane_operation import (
    LaneOperation,
    lane_operation,
    schedule_reduction,
)
from tilewright.compiler.lowering.lanes import lane_bindings, lane_operation_of, lane_scalars
from tilewright.compiler.lowering.nest_code import NESTS_KEPT, NestCode, NestTiles
from tilewright.compiler.lowering.steps import TileStep
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.instructions import VectorOperation


def needs_reduction(
    kernel: LaneKernel, tensors: Mapping[str, BlockedTensor], config: AcceleratorConfig
) -> bool:
    """Whether a kernel is a pooling to one position whose window does not fit half of `vec`, or is
    more than one load takes.
    """
    single = kernel.rows == kernel.columns == 1 and len(kernel.sources) == 1
    if not single or kernel.operation is VectorOperation.MAC or kernel.border:
        return False
    rows = kernel.window.kernel[0]
    longest = max(rows, _window_entries(kernel.window, 1, config))
    entries = _window_entries(kernel.window, rows, config)
    return 2 * entries > config.vec_entries or longest > MAX_EXTENT


class ReductionSchedule:
    """Partial results of a few rows each go to `acc`; a last run combines them."""

    #: There is nothing to choose.
    shape = None

    def __init__(
        self,
        kernel: LaneKernel,
        tensors: Mapping[str, BlockedTensor],
        config: AcceleratorConfig,
    ) -> None:
        self.kernel = kernel
        self.config = config
        self.operation = lane_operation_of(kernel, tensors, config)
        lanes = config.layout_block // config.block_out
        row = _window_entries(kernel.window, 1, config)
        if row > MAX_EXTENT:
            raise CompileError(
                f"one row of the window has {row} entries, a load takes at most {MAX_EXTENT}"
            )
        self.rows = min(config.vec_entries // 2 // row, MAX_EXTENT)
        if not self.rows:
            raise CompileError(
                f"one row of the window does not fit half of scratchpad vec"
                f" ({row} of {config.vec_entries // 2} entries)"
            )
        parts = -(-kernel.window.kernel[0] // self.rows)
        if parts * lanes > config.acc_bank_entries:
            raise CompileError(
                f"the partial results of the window do not fit a bank of scratchpad acc"
                f" ({parts * lanes} of {config.acc_bank_entries} entries)"
            )

    @property
    def macs(self) -> int:
        """Pooling multiplies nothing."""
        return 0

    @property
    def ideal_cycles(self) -> int:
        """Pooling does not use the array."""
        return 0

    @property
    def resident_weights(self) -> int:
        """Entries of `wgt` that the kernel holds."""
        return 0

    def declared(self) -> Tensor:
        """Return the kernel's tensor expression."""
        return lane_operation(self.operation, self.config)

    def tensor_schedule(self) -> Schedule:
        """Return the schedule of the kernel's tensor expression."""
        return schedule_reduction(self.operation, self.rows, self.config)

    def scalars(self) -> dict[str, int]:
        """Return the scalars of the tensor expression."""
        return lane_scalars(self.kernel)

    def bindings(self, tensors: Mapping[str, BlockedTensor]) -> dict[str, Binding]:
        """Return what the inputs and the output of the tensor expression stand for."""
        return lane_bindings(self.kernel, tensors, self.config)

    def steps(self, tensors: Mapping[str, BlockedTensor]) -> tuple[TileStep, ...]:
        """Return the blocks in order, on tensors that have their place in DRAM."""
        code = _code(self.operation, self.rows, self.config)
        return tuple(NestTiles(code, self.bindings(tensors), self.scalars()).steps())


@lru_cache(maxsize=NESTS_KEPT)
def _code(shape: LaneOperation, rows: int, config: AcceleratorConfig) -> NestCode:
    return NestCode(lower(schedule_reduction(shape, rows, config)))


def _window_entries(window: Window, rows: int, config: AcceleratorConfig) -> int:
    """Entries of `vec` that hold `rows` kernel rows of one block."""
    height = (rows - 1) * window.dilation[0] + 1
    width = (window.kernel[1] - 1) * window.dilation[1] + 1
    return height * width * (config.layout_block // config.block_out)
