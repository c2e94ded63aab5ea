"""Small functions that kernels call for what C leaves undefined or defines otherwise."""

from dataclasses import dataclass
from enum import Enum

from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.gpu.dialects import Dialect


class Helper(Enum):
    """A function of one or two values of one type; the value is its text.

    ``T`` stands for the type, ``U`` for the unsigned type of its width, ``BITS`` for that width.
    """

    #: Towards minus infinity, as `tilewright.compiler.tensor.expressions` defines it.
    FLOOR_DIVIDE = "T q = a / b; return q - ((a % b != 0) & ((a < 0) != (b < 0)));"
    MODULO = "T r = a % b; return r + ((r != 0) & ((r < 0) != (b < 0)) ? b : 0);"
    #: What is returned for a value that is not a number decides the form of the comparison.
    MINIMUM = "return b < a ? b : a;"
    MAXIMUM = "return a < b ? b : a;"
    SHIFT_LEFT = "return b >= BITS ? 0 : (T)((U)a << b);"
    SHIFT_RIGHT = "return a >> (b >= BITS ? BITS - 1 : b);"
    ABSOLUTE = "return (T)(a < 0 ? 0 - (U)a : (U)a);"
    #: Quotient and rest apart, so that nothing overflows.
    ROUND_SHIFT = (
        "if (b == 0) return a; "
        "T q = a >> b; U r = (U)a & (((U)1 << b) - 1), half_way = (U)1 << (b - 1); "
        "return q + ((r > half_way) | ((r == half_way) & (q & 1)));"
    )

    @property
    def arity(self) -> int:
        """How many values the function takes."""
        return 1 if self is Helper.ABSOLUTE else 2


@dataclass(frozen=True, slots=True)
class HelperUse:
    """A helper for one type."""

    helper: Helper
    dtype: ScalarType

    @property
    def name(self) -> str:
        """Name of the function."""
        return f"tw_{self.helper.name.lower()}_{self.dtype}"

    def text(self, dialect: Dialect) -> str:
        """Return the definition of the function."""
        name = dialect.types[self.dtype]
        parameters = f"{name} a" + (f", {name} b" if self.helper.arity == 2 else "")
        body = self.helper.value.replace("BITS", str(self.dtype.numpy.itemsize * 8))
        unsigned = dialect.unsigned.get(self.dtype, name)
        words = [{"T": name, "U": unsigned}.get(word, word) for word in _words(body)]
        return f"{dialect.function} {name} {self.name}({parameters}) {{ {''.join(words)} }}"


def _words(text: str) -> list[str]:
    words, word = [], ""
    for letter in text:
        if letter.isalnum() or letter == "_":
            word += letter
            continue
        words += [word, letter]
        word = ""
    return [*words, word]
