"""LLVM's types and constants for the scalar types of tensor expressions."""

from llvmlite import ir

from tilewright.compiler.tensor.operations import Number
from tilewright.compiler.tensor.scalar_types import ScalarType

POINTER = ir.PointerType()
INDEX = ir.IntType(64)
BYTE = ir.IntType(8)

_IN_REGISTER: dict[ScalarType, ir.Type] = {
    ScalarType.BOOL: ir.IntType(1),
    ScalarType.INT8: BYTE,
    ScalarType.UINT8: BYTE,
    ScalarType.INT16: ir.IntType(16),
    ScalarType.INT32: ir.IntType(32),
    ScalarType.INT64: INDEX,
    ScalarType.BFLOAT16: ir.IntType(16),
    ScalarType.FLOAT32: ir.FloatType(),
    ScalarType.FLOAT64: ir.DoubleType(),
    ScalarType.INDEX: INDEX,
}


def scalar_type(dtype: ScalarType) -> ir.Type:
    """Return the type of a value in a register; of a bfloat16 number, its bits."""
    return _IN_REGISTER[dtype]


def memory_type(dtype: ScalarType) -> ir.Type:
    """Return the type of an element in memory; a bool takes a byte."""
    return BYTE if dtype is ScalarType.BOOL else _IN_REGISTER[dtype]


def with_lanes(element: ir.Type, lanes: int) -> ir.Type:
    """Return a vector of so many elements; of none, the element itself."""
    return ir.VectorType(element, lanes) if lanes else element


def lanes_of(value: ir.Value) -> int:
    """Return how many lanes a value has, 0 for a scalar."""
    kind = value.type
    return int(kind.count) if isinstance(kind, ir.VectorType) else 0


def number(value: Number, element: ir.Type, lanes: int = 0) -> ir.Constant:
    """Return a constant, the same in every lane."""
    scalar = ir.Constant(element, value)
    return _SplatConstant(scalar, lanes) if lanes else scalar


def index(value: int) -> ir.Constant:
    """Return a constant index."""
    return ir.Constant(INDEX, value)


def splat(builder: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """Return a scalar in every lane; a vector, and a value for no lanes, as it is."""
    if not lanes or lanes_of(value):
        return value
    if isinstance(value, ir.Constant):
        return _SplatConstant(value, lanes)
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
    return builder.shuffle_vector(first, undefined, mask)


class HalfType(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite does not know; only instructions for it take it."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HalfType)

    def __hash__(self) -> int:
        return hash(HalfType)


class _SplatConstant(ir.Constant):  # type: ignore[misc]
    """A constant in every lane, written once: long lists are slow to print and to read."""

    def __init__(self, value: ir.Constant, lanes: int) -> None:
        super().__init__(ir.VectorType(value.type, lanes), None)
        self._element = value

    def _get_reference(self) -> str:
        return f"splat ({self._element})"


def declare_intrinsic(
    module: ir.Module, name: str, result: ir.Type, operands: tuple[ir.Type, ...]
) -> ir.Function:
    """Return LLVM's intrinsic `name`, declared once in `module`.

    The name is the full one, suffixes of overloaded types included: llvmlite has none for vectors.
    """
    if name in module.globals:
        return module.globals[name]
    return ir.Function(module, ir.FunctionType(result, operands), name=name)


def suffix(kind: ir.Type) -> str:
    """Return how the names of LLVM's overloaded intrinsics spell a type."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    if isinstance(kind, ir.FloatType):
        return "f32"
    return "f64" if isinstance(kind, ir.DoubleType) else f"i{kind.width}"
