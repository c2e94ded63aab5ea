"""Translation of ONNX matrix products."""

from tilewright.compiler.operators import (
    BinaryFunction,
    FloatBinary,
    FloatDense,
    FloatMatMul,
    Reshape,
    Transpose,
)
from tilewright.compiler.readers.onnx_file import OnnxNode
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.isa.errors import ModelError


def gemm(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Gemm: ``alpha * a @ b + beta * c``, a and b transposed where it says so."""
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    a, b = state.tensor(node, 0), state.tensor(node, 1)
    if node.integer("transA", 0):
        a = _transposed(state, node, a, "a_transposed")
    has_bias = state.has_input(node, 2) and beta != 0.0
    scaled = alpha != 1.0 or (has_bias and beta != 1.0)
    if state.is_constant(b) and not scaled:
        operands = [a, _weights(state, node, b)]
        bias = _bias(state, node, operands[1]) if has_bias else None
        if bias is not None or not has_bias:
            state.finish(node, FloatDense(), [*operands, *([bias] if bias else [])])
            return
    if node.integer("transB", 0):
        b = _transposed(state, node, b, "b_transposed")
    product = state.add(node, FloatMatMul(), [a, b])
    if alpha != 1.0:
        product = state.scaled(node, product, alpha)
    if not has_bias:
        state.finish_copy(node, product)
        return
    c = state.tensor(node, 2)
    if beta != 1.0:
        c = state.scaled(node, c, beta, "bias")
    state.finish(node, FloatBinary(function=BinaryFunction.ADD), [product, c])


def qgemm(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QGemm: (x, s, z, weights, s, z, bias, s, z)."""
    if node.real("alpha", 1.0) != 1.0 or node.integer("transA", 0):
        raise ModelError(f"{node.label} is only supported with alpha 1 and transA 0")
    weights = state.dequantized(node, 3, "weights", axis=1 - node.integer("transB", 0))
    operands = [state.dequantized(node, 0, "x"), _weights(state, node, weights)]
    if state.has_input(node, 6):
        bias = state.dequantized_bias(node, 6, (1, 4))
        operands.append(_bias_vector(state, node, bias, operands[1]))
    state.finish_quantized(node, FloatDense(), operands, (7, 8))


def matmul(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate MatMul; a constant matrix on the right makes it a dense layer."""
    a, b = state.tensor(node, 0), state.tensor(node, 1)
    if state.is_constant(b) and len(state.builder.tensor(b).shape) == 2:
        state.finish(node, FloatDense(), [a, _transposed(state, node, b, "transposed")])
        return
    result = _product_shape(state, node, a, b)
    left, right = _as_matrix(state, node, a, 0), _as_matrix(state, node, b, 1)
    if (left, right) == (a, b):
        state.finish(node, FloatMatMul(), [a, b])
        return
    product = state.add(node, FloatMatMul(), [left, right])
    state.finish(node, Reshape(shape=result), [product])


def qlinear_matmul(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate QLinearMatMul: (x, s, z, weights, s, z, s, z)."""
    x = state.dequantized(node, 0, "x")
    if len(state.shape(node, 3)) != 2 or node.inputs[3] not in state.constants:
        operands = [x, state.dequantized(node, 3, "b")]
        state.finish_quantized(node, FloatMatMul(), operands, (6, 7))
        return
    weights = state.dequantized(node, 3, "weights", axis=1)
    dense = [x, _transposed(state, node, weights, "transposed")]
    state.finish_quantized(node, FloatDense(), dense, (6, 7))


def _product_shape(state: OnnxTranslation, node: OnnxNode, a: str, b: str) -> tuple[int, ...]:
    """Return the shape of ``a @ b`` where one of them is a vector."""
    left, right = state.builder.tensor(a).shape, state.builder.tensor(b).shape
    if not left or not right:
        raise ModelError(f"{node.label} multiplies a number as if it were a matrix")
    if len(left) > 1 and len(right) > 1:
        return ()
    return (*left[:-1], *right[:-2], *(right[-1:] if len(right) > 1 else ()))


def _as_matrix(state: OnnxTranslation, node: OnnxNode, tensor: str, side: int) -> str:
    """Return a vector as a row, on the left, or as a column, on the right."""
    shape = state.builder.tensor(tensor).shape
    if len(shape) > 1:
        return tensor
    matrix = (1, *shape) if side == 0 else (*shape, 1)
    return state.add(node, Reshape(shape=matrix), [tensor], f"matrix{side}")


def _weights(state: OnnxTranslation, node: OnnxNode, weights: str) -> str:
    if node.integer("transB", 0):
        return weights
    return _transposed(state, node, weights, "transposed")


def _transposed(state: OnnxTranslation, node: OnnxNode, tensor: str, part: str) -> str:
    if len(state.builder.tensor(tensor).shape) != 2:
        raise ModelError(f"{node.label} takes matrices of 2 axes only")
    return state.add(node, Transpose(permutation=(1, 0)), [tensor], part)


def _bias(state: OnnxTranslation, node: OnnxNode, weights: str) -> str | None:
    """Return input 2 as a bias per output ``[O]``, None where it is something else."""
    bias = _bias_vector(state, node, state.tensor(node, 2), weights)
    outputs = state.builder.tensor(weights).shape[:1]
    return bias if state.builder.tensor(bias).shape == outputs else None


def _bias_vector(state: OnnxTranslation, node: OnnxNode, bias: str, weights: str) -> str:
    """Return a bias ``[1, O]`` as ``[O]``, any other as it is."""
    outputs = state.builder.tensor(weights).shape[0]
    if state.builder.tensor(bias).shape == (1, outputs):
        return state.add(node, Reshape(shape=(outputs,)), [bias], "bias_vector")
    return bias
