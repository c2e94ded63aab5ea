"""Translation of ONNX operators that compute each element from those at the same place."""

import math
from collections.abc import Mapping

import numpy as np

from tilewright.compiler.operators import (
    BinaryFunction,
    FloatBinary,
    FloatClip,
    FloatUnary,
    Function,
)
from tilewright.compiler.readers.onnx_file import OnnxNode
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.isa.errors import ModelError

BINARY: Mapping[str, BinaryFunction] = {
    "Add": BinaryFunction.ADD,
    "Sub": BinaryFunction.SUBTRACT,
    "Mul": BinaryFunction.MULTIPLY,
    "Div": BinaryFunction.DIVIDE,
    "Pow": BinaryFunction.POWER,
    "PRelu": BinaryFunction.PRELU,
    "Max": BinaryFunction.MAXIMUM,
    "Min": BinaryFunction.MINIMUM,
    "Sum": BinaryFunction.ADD,
    "Mean": BinaryFunction.ADD,
    "QLinearAdd": BinaryFunction.ADD,
    "QLinearMul": BinaryFunction.MULTIPLY,
}
#: Operators of one number without attributes.
UNARY: Mapping[str, Function] = {
    "Abs": Function.ABSOLUTE,
    "Ceil": Function.CEIL,
    "Erf": Function.ERF,
    "Exp": Function.EXP,
    "Floor": Function.FLOOR,
    "HardSwish": Function.HARD_SWISH,
    "Log": Function.LOG,
    "Mish": Function.MISH,
    "Neg": Function.NEGATE,
    "Reciprocal": Function.RECIPROCAL,
    "Round": Function.ROUND,
    "Sigmoid": Function.SIGMOID,
    "Sign": Function.SIGN,
    "Softplus": Function.SOFTPLUS,
    "Sqrt": Function.SQRT,
    "Tanh": Function.TANH,
}
#: Defaults of Selu in the ONNX specification, as float32.
SELU_ALPHA = float(np.float32(1.67326319217681884765625))
SELU_GAMMA = float(np.float32(1.05070102214813232421875))


def binary(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate a function of two tensors."""
    if state.opset < 7 and node.integer("broadcast", 0):
        raise ModelError(f"{node.label} broadcasts as before operator set 7")
    op = FloatBinary(function=BINARY[node.op_type])
    state.finish(node, op, [state.tensor(node, 0), state.tensor(node, 1)])


def variadic(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Max, Min, Sum and Mean of one or more tensors."""
    op = FloatBinary(function=BINARY[node.op_type])
    total = state.tensor(node, 0)
    for index in range(1, len(node.inputs)):
        total = state.add(node, op, [total, state.tensor(node, index)], f"upto{index}")
    if node.op_type == "Mean":
        total = state.scaled(node, total, 1 / len(node.inputs))
    state.finish_copy(node, total)


def qlinear_binary(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QLinearAdd and QLinearMul: (a, s, z, b, s, z, s, z)."""
    operands = [state.dequantized(node, 0, "a"), state.dequantized(node, 3, "b")]
    op = FloatBinary(function=BINARY[node.op_type])
    state.finish_quantized(node, op, operands, (6, 7))


def relu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Relu."""
    state.finish(node, FloatClip(low=0.0, high=math.inf), [state.tensor(node)])


def clip(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Clip; its bounds are attributes or, from opset 11 on, inputs."""
    bounds = []
    for index, name, default in ((1, "min", -math.inf), (2, "max", math.inf)):
        if state.has_input(node, index):
            values = state.constant(node, index)
            if values.size != 1 or values.dtype != np.float32:
                raise ModelError(f"{node.label} needs one float32 value for {name}")
            bounds.append(float(values.reshape(-1)[0]))
        else:
            bounds.append(node.real(name, 0.0) if name in node.attributes else default)
    if not bounds[0] <= bounds[1]:
        raise ModelError(f"{node.label} clips to the empty range {bounds[0]} to {bounds[1]}")
    state.finish(node, FloatClip(low=bounds[0], high=bounds[1]), [state.tensor(node)])


def unary(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate a function of one number without attributes."""
    state.finish(node, FloatUnary(function=UNARY[node.op_type]), [state.tensor(node)])


def hard_sigmoid(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate HardSigmoid."""
    op = FloatUnary(
        function=Function.HARD_SIGMOID,
        alpha=node.real("alpha", 0.2),
        beta=node.real("beta", 0.5),
    )
    state.finish(node, op, [state.tensor(node)])


def leaky_relu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate LeakyRelu."""
    op = FloatUnary(function=Function.LEAKY_RELU, alpha=node.real("alpha", 0.01))
    state.finish(node, op, [state.tensor(node)])


def elu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Elu."""
    op = FloatUnary(function=Function.ELU, alpha=node.real("alpha", 1.0))
    state.finish(node, op, [state.tensor(node)])


def selu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Selu: a scaled elu."""
    op = FloatUnary(function=Function.ELU, alpha=node.real("alpha", SELU_ALPHA))
    curved = state.add(node, op, [state.tensor(node)], "elu")
    state.finish_copy(node, state.scaled(node, curved, node.real("gamma", SELU_GAMMA)))


def celu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Celu: ``alpha * elu(x / alpha)``."""
    alpha = node.real("alpha", 1.0)
    if not alpha:
        raise ModelError(f"{node.label} has the alpha 0")
    narrow = state.scaled(node, state.tensor(node), 1 / alpha, "narrow")
    curved = state.add(node, FloatUnary(function=Function.ELU, alpha=1.0), [narrow], "elu")
    state.finish_copy(node, state.scaled(node, curved, alpha))


def softsign(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Softsign: ``x / (1 + abs(x))``."""
    x = state.tensor(node)
    size = state.add(node, FloatUnary(function=Function.ABSOLUTE), [x], "absolute")
    one = state.number(node, 1.0, "one")
    divisor = state.add(node, FloatBinary(function=BinaryFunction.ADD), [size, one], "divisor")
    state.finish(node, FloatBinary(function=BinaryFunction.DIVIDE), [x, divisor])


def gelu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Gelu."""
    modes = {"none": Function.GELU, "tanh": Function.GELU_TANH}
    mode = node.text("approximate", "none")
    if mode not in modes:
        raise ModelError(f"{node.label} has the unknown approximation {mode!r}")
    state.finish(node, FloatUnary(function=modes[mode]), [state.tensor(node)])


def fast_gelu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft FastGelu and BiasGelu, whose bias is added first."""
    x = state.tensor(node)
    if state.has_input(node, 1):
        add = FloatBinary(function=BinaryFunction.ADD)
        x = state.add(node, add, [x, state.tensor(node, 1)], "biased")
    fast = node.op_type == "FastGelu"
    state.finish(node, FloatUnary(function=Function.GELU_TANH if fast else Function.GELU), [x])


def swish(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Swish and com.microsoft QuickGelu: ``x * sigmoid(alpha * x)``."""
    x, alpha = state.tensor(node), node.real("alpha", 1.0 if node.op_type == "Swish" else 1.702)
    if alpha == 1.0:
        state.finish(node, FloatUnary(function=Function.SILU), [x])
        return
    gate = FloatUnary(function=Function.SIGMOID)
    opened = state.add(node, gate, [state.scaled(node, x, alpha, "narrow")], "gate")
    state.finish(node, FloatBinary(function=BinaryFunction.MULTIPLY), [x, opened])
