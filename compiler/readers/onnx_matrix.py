"""Translation of ONNX matrix products and sums."""

from tilewright.compiler.operators import (
    BinaryFunction,
    FloatBinary,
    FloatDense,
    Reshape,
    Transpose,
)
from tilewright.compiler.readers.onnx_file import OnnxNode
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.isa.errors import ModelError

ADD = FloatBinary(function=BinaryFunction.ADD)


def gemm(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Gemm: (x, weights, bias)."""
    _require_plain_gemm(node)
    operands = [state.tensor(node, 0), _weights(state, node, state.tensor(node, 1))]
    if state.has_input(node, 2):
        operands.append(_bias(state, node, state.tensor(node, 2), operands[1]))
    state.finish(node, FloatDense(), operands)


def qgemm(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QGemm: (x, s, z, weights, s, z, bias, s, z)."""
    _require_plain_gemm(node)
    weights = state.dequantized(node, 3, "weights", axis=1 - node.integer("transB", 0))
    operands = [state.dequantized(node, 0, "x"), _weights(state, node, weights)]
    if state.has_input(node, 6):
        bias = state.dequantized_bias(node, 6, (1, 4))
        operands.append(_bias(state, node, bias, operands[1]))
    state.finish_quantized(node, FloatDense(), operands, (7, 8))


def matmul(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate MatMul with constant weights ``[K, O]``."""
    weights = _transposed(state, node, state.tensor(node, 1))
    state.finish(node, FloatDense(), [state.tensor(node, 0), weights])


def qlinear_matmul(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate QLinearMatMul: (x, s, z, weights, s, z, s, z)."""
    weights = _transposed(state, node, state.dequantized(node, 3, "weights", axis=1))
    operands = [state.dequantized(node, 0, "x"), weights]
    state.finish_quantized(node, FloatDense(), operands, (6, 7))


def add(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Add."""
    state.finish(node, ADD, [state.tensor(node, 0), state.tensor(node, 1)])


def qlinear_add(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QLinearAdd: (a, s, z, b, s, z, s, z)."""
    operands = [state.dequantized(node, 0, "a"), state.dequantized(node, 3, "b")]
    state.finish_quantized(node, ADD, operands, (6, 7))


def _require_plain_gemm(node: OnnxNode) -> None:
    scaled = node.real("alpha", 1.0) != 1.0 or node.real("beta", 1.0) != 1.0
    if scaled or node.integer("transA", 0):
        raise ModelError(f"{node.label} is only supported with alpha and beta 1 and transA 0")


def _weights(state: OnnxTranslation, node: OnnxNode, weights: str) -> str:
    if node.integer("transB", 0):
        return weights
    return _transposed(state, node, weights)


def _transposed(state: OnnxTranslation, node: OnnxNode, weights: str) -> str:
    if len(state.builder.tensor(weights).shape) != 2:
        raise ModelError(f"{node.label} takes weights of 2 axes only")
    return state.add(node, Transpose(permutation=(1, 0)), [weights], "transposed")


def _bias(state: OnnxTranslation, node: OnnxNode, bias: str, weights: str) -> str:
    """Return the bias as ``[O]``; files also state it as ``[1, O]``."""
    outputs = state.builder.tensor(weights).shape[0]
    if state.builder.tensor(bias).shape == (1, outputs):
        return state.add(node, Reshape(shape=(outputs,)), [bias], "bias_vector")
    return bias
