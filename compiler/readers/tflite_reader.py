"""TFLite files to graphs: networks in floating point, int8 and uint8."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tilewright.compiler.graph import Graph
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.readers import tflite_elementwise as elementwise
from tilewright.compiler.readers import tflite_movement as movement
from tilewright.compiler.readers import tflite_operators as operators
from tilewright.compiler.readers.shapes import Shapes, check_shape_names
from tilewright.compiler.readers.tflite_file import (
    TfliteOperator,
    decode_tflite,
)
from tilewright.compiler.readers.tflite_translation import TfliteTranslation
from tilewright.isa.errors import ModelError

Handler: TypeAlias = Callable[[TfliteTranslation, TfliteOperator], None]

#: Who translates which operator.
HANDLERS: Mapping[str, Handler] = {
    "ABS": elementwise.unary,
    "ADD": elementwise.binary,
    "AVERAGE_POOL_2D": operators.average_pool_2d,
    "BATCH_MATMUL": operators.batch_matmul,
    "BROADCAST_TO": movement.broadcast_to,
    "CEIL": elementwise.unary,
    "CONCATENATION": movement.concatenation,
    "CONV_2D": operators.conv_2d,
    "DEPTHWISE_CONV_2D": operators.depthwise_conv_2d,
    "DEPTH_TO_SPACE": movement.depth_to_space,
    "DEQUANTIZE": operators.convert,
    "DIV": elementwise.binary,
    "ELU": elementwise.unary,
    "EXP": elementwise.unary,
    "EXPAND_DIMS": movement.reshape,
    "FLOOR": elementwise.unary,
    "FULLY_CONNECTED": operators.fully_connected,
    "GATHER": movement.gather,
    "GELU": elementwise.gelu,
    "HARD_SWISH": elementwise.unary,
    "L2_NORMALIZATION": elementwise.l2_normalization,
    "LEAKY_RELU": elementwise.leaky_relu,
    "LOG": elementwise.unary,
    "LOGISTIC": elementwise.unary,
    "LOG_SOFTMAX": elementwise.softmax,
    "MAXIMUM": elementwise.binary,
    "MAX_POOL_2D": operators.max_pool_2d,
    "MEAN": elementwise.reduce,
    "MINIMUM": elementwise.binary,
    "MIRROR_PAD": movement.mirror_pad,
    "MUL": elementwise.binary,
    "NEG": elementwise.unary,
    "PACK": movement.pack,
    "PAD": movement.pad,
    "PADV2": movement.pad,
    "POW": elementwise.binary,
    "PRELU": elementwise.binary,
    "QUANTIZE": operators.convert,
    "REDUCE_MAX": elementwise.reduce,
    "REDUCE_MIN": elementwise.reduce,
    "REDUCE_PROD": elementwise.reduce,
    "RELU": elementwise.relu,
    "RELU6": elementwise.relu,
    "RELU_N1_TO_1": elementwise.relu,
    "RESHAPE": movement.reshape,
    "RESIZE_BILINEAR": elementwise.resize_bilinear,
    "RESIZE_NEAREST_NEIGHBOR": elementwise.resize_nearest_neighbor,
    "ROUND": elementwise.unary,
    "RSQRT": elementwise.rsqrt,
    "SLICE": movement.slice_,
    "SOFTMAX": elementwise.softmax,
    "SPACE_TO_DEPTH": movement.space_to_depth,
    "SPLIT": movement.split,
    "SPLIT_V": movement.split,
    "SQRT": elementwise.unary,
    "SQUARE": elementwise.square,
    "SQUARED_DIFFERENCE": elementwise.squared_difference,
    "SQUEEZE": movement.reshape,
    "STRIDED_SLICE": movement.strided_slice,
    "SUB": elementwise.binary,
    "SUM": elementwise.reduce,
    "TANH": elementwise.unary,
    "TILE": movement.tile,
    "TRANSPOSE": movement.transpose,
    "TRANSPOSE_CONV": operators.transpose_conv,
    "UNPACK": movement.unpack,
}


def read_tflite(data: bytes, name: str, shapes: Shapes | None = None) -> Graph:
    """Translate the bytes of a TFLite file called `name`; `shapes` may not change its inputs'.

    Raises
    ------
    ModelError
        If the file is damaged or uses what is not supported.
    """
    model = decode_tflite(data)
    inputs = {model.tensors[index].key: model.tensors[index].shape for index in model.inputs}
    check_shape_names(shapes, tuple(inputs))
    for key, shape in (shapes or {}).items():
        if shape != inputs[key]:
            raise ModelError(f"input {key!r} has the shape {list(inputs[key])}, not {list(shape)}")
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
