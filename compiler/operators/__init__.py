"""The closed set of graph operators: integer, movement, conversion, floating and logic ones."""

from typing import TypeAlias

from tilewright.compiler.operators.conversion import (
    Dequantize,
    DequantizeWeights,
    Quantize,
    Reinterpret,
)
from tilewright.compiler.operators.datatype import (
    INT8_MAX,
    INT8_MIN,
    DataType,
)
from tilewright.compiler.operators.floating import (
    BinaryFunction,
    FloatAveragePool2d,
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatInterpolate,
    FloatLayerNorm,
    FloatMatMul,
    FloatReduce,
    FloatSoftmax,
    FloatUnary,
    Function,
    Reduction,
    Ties,
)
from tilewright.compiler.operators.integer import (
    Add,
    AveragePool2d,
    BorderScale,
    Clip,
    Conv2d,
    ConvTranspose2d,
    LayerNorm,
    Lookup,
    MatMul,
    Mul,
    Padding,
    Pair,
    Requantize,
    Softmax,
)
from tilewright.compiler.operators.logic import (
    Cast,
    Compare,
    Connective,
    Logical,
    Relation,
    Select,
)
from tilewright.compiler.operators.movement import (
    Concat,
    Expand,
    Gather,
    MaxPool2d,
    Pad,
    Reshape,
    Slice,
    Transpose,
    Upsample2d,
)

IntegerOperator: TypeAlias = (
    Conv2d
    | ConvTranspose2d
    | MatMul
    | Add
    | Mul
    | AveragePool2d
    | Requantize
    | Clip
    | Lookup
    | Softmax
    | LayerNorm
)
MovementOperator: TypeAlias = (
    MaxPool2d | Reshape | Transpose | Slice | Pad | Concat | Expand | Upsample2d | Gather
)
ConversionOperator: TypeAlias = Quantize | Dequantize | DequantizeWeights | Reinterpret
FloatOperator: TypeAlias = (
    FloatConv2d
    | FloatConvTranspose2d
    | FloatDense
    | FloatMatMul
    | FloatBinary
    | FloatAveragePool2d
    | FloatReduce
    | FloatClip
    | FloatSoftmax
    | FloatLayerNorm
    | FloatInterpolate
    | FloatUnary
)
LogicOperator: TypeAlias = Cast | Compare | Logical | Select
Operator: TypeAlias = (
    IntegerOperator | MovementOperator | ConversionOperator | FloatOperator | LogicOperator
)

__all__ = [
    "INT8_MAX",
    "INT8_MIN",
    "Add",
    "AveragePool2d",
    "BinaryFunction",
    "BorderScale",
    "Cast",
    "Clip",
    "Compare",
    "Concat",
    "Connective",
    "Conv2d",
    "ConvTranspose2d",
    "ConversionOperator",
    "DataType",
    "Dequantize",
    "DequantizeWeights",
    "Expand",
    "FloatAveragePool2d",
    "FloatBinary",
    "FloatClip",
    "FloatConv2d",
    "FloatConvTranspose2d",
    "FloatDense",
    "FloatInterpolate",
    "FloatLayerNorm",
    "FloatMatMul",
    "FloatOperator",
    "FloatReduce",
    "FloatSoftmax",
    "FloatUnary",
    "Function",
    "Gather",
    "IntegerOperator",
    "LayerNorm",
    "LogicOperator",
    "Logical",
    "Lookup",
    "MatMul",
    "MaxPool2d",
    "MovementOperator",
    "Mul",
    "Operator",
    "Pad",
    "Padding",
    "Pair",
    "Quantize",
    "Reduction",
    "Reinterpret",
    "Relation",
    "Requantize",
    "Reshape",
    "Select",
    "Slice",
    "Softmax",
    "Ties",
    "Transpose",
    "Upsample2d",
]
