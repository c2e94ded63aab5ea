"""The closed set of graph operators: integer, movement, conversion and floating ones."""

from typing import TypeAlias

from tilewright.compiler.operators.conversion import (
    Dequantize,
    DequantizeWeights,
    Quantize,
    Reinterpret,
)
from tilewright.compiler.operators.datatype import INT8_MAX, INT8_MIN, DataType
from tilewright.compiler.operators.floating import (
    FloatAdd,
    FloatAveragePool2d,
    FloatBias,
    FloatClip,
    FloatConv2d,
    FloatDense,
    FloatSoftmax,
    FloatUnary,
    Function,
    Ties,
)
from tilewright.compiler.operators.integer import (
    Add,
    AveragePool2d,
    BorderScale,
    Clip,
    Conv2d,
    Lookup,
    Padding,
    Pair,
    Requantize,
    Softmax,
)
from tilewright.compiler.operators.movement import (
    Concat,
    MaxPool2d,
    Pad,
    Reshape,
    Slice,
    Transpose,
)

IntegerOperator: TypeAlias = Conv2d | Add | AveragePool2d | Requantize | Clip | Lookup | Softmax
MovementOperator: TypeAlias = MaxPool2d | Reshape | Transpose | Slice | Pad | Concat
ConversionOperator: TypeAlias = Quantize | Dequantize | DequantizeWeights | Reinterpret
FloatOperator: TypeAlias = (
    FloatConv2d
    | FloatDense
    | FloatAdd
    | FloatBias
    | FloatAveragePool2d
    | FloatClip
    | FloatSoftmax
    | FloatUnary
)
Operator: TypeAlias = IntegerOperator | MovementOperator | ConversionOperator | FloatOperator

__all__ = [
    "INT8_MAX",
    "INT8_MIN",
    "Add",
    "AveragePool2d",
    "BorderScale",
    "Clip",
    "Concat",
    "Conv2d",
    "ConversionOperator",
    "DataType",
    "Dequantize",
    "DequantizeWeights",
    "FloatAdd",
    "FloatAveragePool2d",
    "FloatBias",
    "FloatClip",
    "FloatConv2d",
    "FloatDense",
    "FloatOperator",
    "FloatSoftmax",
    "FloatUnary",
    "Function",
    "IntegerOperator",
    "Lookup",
    "MaxPool2d",
    "MovementOperator",
    "Operator",
    "Pad",
    "Padding",
    "Pair",
    "Quantize",
    "Reinterpret",
    "Requantize",
    "Reshape",
    "Slice",
    "Softmax",
    "Ties",
    "Transpose",
]
