"""Products of two activations on the lanes of the vector engine: expression, schedule and tiles.

One operand lies in `vec`, the other one in `coef`, which holds factors of 16 bits: it is loaded
from a tensor of pairs of bytes, see `multiplication.py`. The zero point of the first is taken off
by further steps, which multiply a constant in `vec` with the same factor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tilewright.compiler.lowering.bindings import Binding, DramView, Fill, PairView
from tilewright.compiler.lowering.declarations import (
    Plane,
    activations,
    limits,
    scaled,
    tile_output,
)
from tilewright.compiler.lowering.kernels import ProductKernel, Window
from tilewright.compiler.lowering.lane_tiling import LaneShape, LaneTiling, legal_lane_tilings
from tilewright.compiler.lowering.nest_code import NESTS_KEPT, NestCode, NestTiles
from tilewright.compiler.lowering.parameters import scales_of_all
from tilewright.compiler.lowering.steps import TileStep
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.lowering.tiling import misfit
from tilewright.compiler.tensor.accelerator import (
    INDEX,
    INT16,
    INT32,
    constant_load,
    instruction_set,
    product_result,
    scope_of,
)
from tilewright.compiler.tensor.build import cast, constant
from tilewright.compiler.tensor.declare import compute, placeholder
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.memories import Memory

_VEC, _OUT, _COEF, _PRM = map(scope_of, (Memory.VEC, Memory.OUT, Memory.COEF, Memory.PRM))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneProduct:
    """Everything about a product but its numbers."""

    output: Plane
    #: Rows and columns of factors: those of the output, or 1 where all positions have the same.
    factors: tuple[int, int]
    #: Steps that take off the zero point.
    corrections: int


def corrections_of(zero_point: int) -> tuple[int, int]:
    """Return how many steps take off a zero point, and the constant that each adds.

    The constant is an int8, which the negative of the zero point may not be.
    """
    if zero_point == 0:
        return 0, 0
    return (1, -zero_point) if zero_point > -128 else (2, -zero_point // 2)


def lane_product(shape: LaneProduct, config: AcceleratorConfig) -> Tensor:
    """Declare a product of activations.

    Inputs are ``x``, the constant ``offset`` of the same shape where there are corrections, the
    factors ``factor[group, block, row, column, part, lane]`` and ``prm[1, lane, field]``.
    """
    lanes, plane = config.block_out, shape.output
    groups, blocks, _, _, parts, *_ = plane.shape(config, lanes)
    x = activations("x", plane, config, lanes)
    offset = activations("offset", plane, config, lanes)
    factor = placeholder((groups, blocks, *shape.factors, parts, lanes), INT16, "factor")
    prm = placeholder((1, lanes, 3), INT32, "prm")
    rows, columns = (int(extent > 1) for extent in shape.factors)

    def element(
        group: Expr, block: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        at = (group, block, row, column, part, image, lane)
        own = cast(factor[group, block, row * rows, column * columns, part, lane], INT32)
        total = cast(x[at], INT32) * own
        for _ in range(shape.corrections):
            total = total + cast(offset[at], INT32) * own
        return scaled(total, prm, (constant(0, INDEX), lane))

    return compute(plane.shape(config, lanes), element, "y")


def schedule_product(shape: LaneProduct, tiling: LaneTiling, config: AcceleratorConfig) -> Schedule:
    """Arrange a product: operands and factors of a tile are loaded, multiplied, and stored."""
    s = Schedule(lane_product(shape, config), intrinsics=instruction_set(config))
    out = s.cache_write("y", _OUT, name="out")
    outer = ("row.outer", "column.outer", "block.outer")
    tile = tile_output(s, (tiling.blocks, tiling.rows, tiling.columns), outer)
    s.compute_at(out, "y", tile)
    s.reorder(out, "part", "block", "row", "column", "image", "lane")
    for name in ("x", "offset")[: 1 + bool(shape.corrections)]:
        vec = s.cache_read(name, _VEC)
        s.compute_at(vec, "y", tile)
        s.tensorize(vec, "i1", "copy_vec")
    factors, prm = s.cache_read("factor", _COEF), s.cache_read("prm", _PRM)
    s.compute_at(factors, "y", tile)
    s.tensorize(factors, "i0", constant_load(Memory.COEF, 5))
    s.tensorize(prm, "i0", constant_load(Memory.PRM, 1))
    s.tensorize(out, "image", product_result(shape.corrections))
    s.tensorize("y", "block.inner", "store")
    return s


class ProductSchedule:
    """A product of activations cut to tiles for one configuration."""

    #: There is nothing for a tuner to choose.
    shape = None

    def __init__(
        self,
        kernel: ProductKernel,
        tensors: Mapping[str, BlockedTensor],
        config: AcceleratorConfig,
    ) -> None:
        self.kernel = kernel
        self.config = config
        self._output = tensors[kernel.output]
        factors = tensors[kernel.factors].shape
        corrections, self._offset = corrections_of(kernel.zero_point)
        self._product = LaneProduct(
            output=Plane.of(self._output),
            factors=(factors.height, factors.width // 2),
            corrections=corrections,
        )
        self._tiling = self._chosen_tiling()

    @property
    def macs(self) -> int:
        """Products that only take off a zero point are none."""
        shape = self._output.shape
        return shape.images * shape.height * shape.width * shape.channels

    @property
    def ideal_cycles(self) -> int:
        """Cycles of the lanes alone, channels rounded up to whole blocks."""
        shape, lanes = self._output.shape, self.config.block_out
        steps = 1 + self._product.corrections
        return (
            self._output.groups * shape.height * shape.width * -(-shape.channels // lanes) * steps
        )

    @property
    def resident_weights(self) -> int:
        """Entries of `wgt` that the kernel holds."""
        return 0

    def declared(self) -> Tensor:
        """Return the kernel's tensor expression."""
        return lane_product(self._product, self.config)

    def tensor_schedule(self) -> Schedule:
        """Return the schedule of the kernel's tensor expression."""
        return schedule_product(self._product, self._tiling, self.config)

    def scalars(self) -> dict[str, int]:
        """Return the scalars of the tensor expression."""
        return limits(self.kernel.scale)

    def bindings(self, tensors: Mapping[str, BlockedTensor]) -> dict[str, Binding]:
        """Return what the inputs and the output of the tensor expression stand for."""
        source, factors, output = (
            DramView(name=name, tensor=tensors[name])
            for name in (self.kernel.source, self.kernel.factors, self.kernel.output)
        )
        return {
            "x": source,
            "offset": Fill(value=self._offset),
            "factor": PairView(pairs=factors),
            "prm": scales_of_all([self.kernel.scale], self.config),
            "y": output,
        }

    def steps(self, tensors: Mapping[str, BlockedTensor]) -> tuple[TileStep, ...]:
        """Return the tiles in order, on tensors that have their place in DRAM."""
        code = _code(self._product, self._tiling, self.config)
        return tuple(NestTiles(code, self.bindings(tensors), self.scalars()).steps())

    def _chosen_tiling(self) -> LaneTiling:
        """Return the best tiling of two operands in `vec` whose factors fit half of `coef`, or all
        of it.
        """
        output, product = self._output, self._product
        shape = LaneShape(
            window=Window(),
            sources=(output,) * (1 + bool(product.corrections)),
            output=output,
            rows=output.shape.height,
            columns=output.shape.width,
            channels=output.shape.channels,
            target=(0, 0, 0),
            taps=1 + product.corrections,
            micro_ops=1 + product.corrections,
            coefficients_per_channel=False,
            scales_per_channel=False,
            scale_counts=(),
            lookup=False,
            streamed=False,
        )
        found = legal_lane_tilings(shape, self.config)
        for room in (self.config.coef_entries // 2, self.config.coef_entries):
            for tiling in found:
                if self._factor_entries(tiling) <= room:
                    return tiling
        least = min(map(self._factor_entries, found))
        raise CompileError(misfit([("coef", least, self.config.coef_entries)]))

    def _factor_entries(self, tiling: LaneTiling) -> int:
        rows, columns = self._product.factors
        positions = min(rows, tiling.rows) * min(columns, tiling.columns)
        return positions * tiling.blocks * (self.config.layout_block // self.config.block_out)


@lru_cache(maxsize=NESTS_KEPT)
def _code(shape: LaneProduct, tiling: LaneTiling, config: AcceleratorConfig) -> NestCode:
    return NestCode(lower(schedule_product(shape, tiling, config)))
