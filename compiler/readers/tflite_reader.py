"""TFLite files to graphs: int8 and uint8 networks."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tilewright.compiler.graph import Graph
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.readers import tflite_operators as operators
from tilewright.compiler.readers.tflite_file import (
    TfliteModel,
    TfliteOperator,
    decode_tflite,
)
from tilewright.compiler.readers.tflite_translation import TfliteTranslation
from tilewright.isa.errors import ModelError

Handler: TypeAlias = Callable[[TfliteTranslation, TfliteOperator], None]

#: Who translates which operator.
HANDLERS: Mapping[str, Handler] = {
    "ADD": operators.add,
    "AVERAGE_POOL_2D": operators.average_pool_2d,
    "CONCATENATION": operators.concatenation,
    "CONV_2D": operators.conv_2d,
    "DEPTHWISE_CONV_2D": operators.depthwise_conv_2d,
    "DEQUANTIZE": operators.convert,
    "ELU": operators.unary,
    "EXPAND_DIMS": operators.reshape,
    "FULLY_CONNECTED": operators.fully_connected,
    "HARD_SWISH": operators.unary,
    "LEAKY_RELU": operators.leaky_relu,
    "LOGISTIC": operators.unary,
    "MAX_POOL_2D": operators.max_pool_2d,
    "MEAN": operators.mean,
    "PAD": operators.pad,
    "PADV2": operators.pad,
    "QUANTIZE": operators.convert,
    "RELU": operators.relu,
    "RELU6": operators.relu,
    "RELU_N1_TO_1": operators.relu,
    "RESHAPE": operators.reshape,
    "SLICE": operators.slice_,
    "SOFTMAX": operators.softmax,
    "SQUEEZE": operators.reshape,
    "STRIDED_SLICE": operators.strided_slice,
    "TANH": operators.unary,
    "TRANSPOSE": operators.transpose,
}


def read_tflite(data: bytes, name: str) -> Graph:
    """Translate the bytes of a TFLite file called `name`.

    Raises
    ------
    ModelError
        If the file is damaged, not quantised, or uses what is not supported.
    """
    model = decode_tflite(data)
    if not _is_quantised(model):
        raise ModelError(
            "the model computes in floating point",
            hint="quantise it first, for example with full integer post-training quantisation",
        )
    outputs = tuple(model.tensors[index].key for index in model.outputs)
    if len(set(outputs)) != len(outputs):
        raise ModelError("the TFLite model names an output twice")
    builder = GraphBuilder(name)
    builder.reserve((*outputs, *(model.tensors[index].key for index in model.inputs)))
    state = TfliteTranslation(builder, model)
    for index in model.inputs:
        state.add_input(index)
    for op in model.operators:
        handler = HANDLERS.get(op.op_type)
        if handler is None:
            raise ModelError(f"{op.label} is not a supported operator")
        handler(state, op)
    return builder.build([state.output(index) for index in model.outputs])


def _is_quantised(model: TfliteModel) -> bool:
    """Tell whether any activation is quantised; weights alone do not make an integer network."""
    return any(
        tensor.constant is None and tensor.scale.size and tensor.element_type in ("int8", "uint8")
        for tensor in model.tensors
    )
