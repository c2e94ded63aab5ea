"""How matrix kernels sum products: one by one, two side by side, or by instructions for several."""

from dataclasses import dataclass

from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.codegen.dot_products import DotProducts
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.tiles import Panels, lanes

#: Sums in pairs want tiles of a few rows, beside three vectors of sums for each.
_FEWEST_REGISTERS, _MOST_VECTORS = 32, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """The form of the sums of a kernel.

    Attributes
    ----------
    dots
        The instruction that adds several products to each sum.
    in_pairs
        Whether numbers at even and at odd places of a stretch are summed apart, side by side in a
        vector: a panel of 8 or 24 channels then fills vectors of 16.
    """

    dots: DotProducts | None = None
    in_pairs: bool = False

    @property
    def depth(self) -> int:
        """Numbers of a stretch that are read together; stretches are a multiple of it."""
        if self.dots is not None:
            return self.dots.depth
        return 2 if self.in_pairs else 1

    def width(self, panels: Panels) -> int:
        """Return the sums that each position has in a panel."""
        return panels.width * 2 if self.in_pairs else panels.width


def sums_of(
    weight_dtype: ScalarType, panels: Panels, length: int, target: CpuTarget, *, packed: bool = True
) -> Sums:
    """Return the form of sums over stretches of `length` numbers.

    Parameters
    ----------
    packed
        Whether weights are packed for the kernel.
    """
    dots = dots_of(weight_dtype, target)
    vectors, rest = divmod(2 * panels.width, lanes(target))
    in_pairs = (
        packed
        and weight_dtype is ScalarType.FLOAT32
        and (rest, vectors % 2, length % 2) == (0, 1, 0)
        and vectors <= _MOST_VECTORS
        and target.vector_registers >= _FEWEST_REGISTERS
    )
    return Sums(dots=dots, in_pairs=in_pairs)


def dots_of(weight_dtype: ScalarType, target: CpuTarget) -> DotProducts | None:
    """Return the sums of products that kernels with weights of a type consist of; None for any."""
    match weight_dtype:
        case ScalarType.BFLOAT16:
            return DotProducts.HALVES
        case ScalarType.INT8 if target.multiplies_bytes:
            return DotProducts.BYTES
        case _:
            return None
