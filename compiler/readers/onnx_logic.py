"""Translation of ONNX operators on truth values and element types."""

from collections.abc import Mapping

from tilewright.compiler.operators import (
    Cast,
    Compare,
    Connective,
    DataType,
    Logical,
    Relation,
    Select,
)
from tilewright.compiler.readers.onnx_file import OnnxNode
from tilewright.compiler.readers.onnx_folding import element_type
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.isa.errors import ModelError

#: The relation of an operator, and whether its operands change places.
RELATIONS: Mapping[str, tuple[Relation, bool]] = {
    "Equal": (Relation.EQUAL, False),
    "Greater": (Relation.LESS, True),
    "GreaterOrEqual": (Relation.LESS_OR_EQUAL, True),
    "Less": (Relation.LESS, False),
    "LessOrEqual": (Relation.LESS_OR_EQUAL, False),
}
CONNECTIVES: Mapping[str, Connective] = {
    "And": Connective.AND,
    "Not": Connective.NOT,
    "Or": Connective.OR,
    "Xor": Connective.XOR,
}


def cast(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Cast; between types that are one here it does nothing."""
    name = element_type(node, node.integer("to", 1))
    wanted = "float32" if name == "float64" else name
    x = state.tensor(node)
    if state.builder.tensor(x).dtype.value == wanted:
        state.finish_copy(node, x)
        return
    if wanted not in {dtype.value for dtype in DataType}:
        raise ModelError(f"{node.label} casts to {wanted}, which is not supported")
    state.finish(node, Cast(dtype=DataType(wanted)), [x])


def compare(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate a comparison."""
    relation, swapped = RELATIONS[node.op_type]
    operands = [state.tensor(node, 0), state.tensor(node, 1)]
    state.finish(node, Compare(relation=relation), operands[::-1] if swapped else operands)


def logical(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate And, Or, Xor and Not."""
    operands = [state.tensor(node, index) for index in range(len(node.inputs))]
    state.finish(node, Logical(connective=CONNECTIVES[node.op_type]), operands)


def where(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Where."""
    state.finish(node, Select(), [state.tensor(node, index) for index in range(3)])
