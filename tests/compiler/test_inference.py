"""Types that operators yield, and operands that they refuse."""

import pytest

from tilewright.compiler.operators import (
    Add,
    AveragePool2d,
    BinaryFunction,
    Cast,
    Clip,
    Compare,
    Concat,
    Connective,
    Conv2d,
    ConvTranspose2d,
    DataType,
    Dequantize,
    DequantizeWeights,
    Expand,
    FloatAveragePool2d,
    FloatBinary,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatInterpolate,
    FloatLayerNorm,
    FloatMatMul,
    FloatReduce,
    FloatSoftmax,
    Gather,
    LayerNorm,
    Logical,
    Lookup,
    MatMul,
    MaxPool2d,
    Mul,
    Operator,
    Pad,
    Quantize,
    Reduction,
    Reinterpret,
    Relation,
    Reshape,
    Select,
    Slice,
    Softmax,
    Transpose,
    Upsample2d,
)
from tilewright.compiler.operators.inference import infer
from tilewright.compiler.operators.tensor_type import InferenceError, TensorType

KINDS = {
    "b": DataType.INT8,
    "u": DataType.UINT8,
    "h": DataType.INT16,
    "i": DataType.INT32,
    "l": DataType.INT64,
    "t": DataType.BOOL,
    "f": DataType.FLOAT32,
}


def types(text: str) -> tuple[TensorType, ...]:
    """Parse types such as ``b1,4,4,2 f3``: the element type's letter and the sizes."""
    return tuple(
        TensorType(tuple(int(size) for size in word[1:].split(",") if size), KINDS[word[0]])
        for word in text.split()
    )


CONV = Conv2d(input_zero_point=0, zero_point=0, low=-128, high=127)
ADD = Add(
    a_coefficient=1,
    b_coefficient=1,
    bias=0,
    multiplier=1,
    shift=0,
    zero_point=0,
    low=-128,
    high=127,
)
AVERAGE = AveragePool2d(
    kernel=(2, 2),
    stride=(2, 2),
    input_zero_point=0,
    multiplier=1,
    shift=0,
    zero_point=0,
    low=-128,
    high=127,
)
SUM = FloatBinary(function=BinaryFunction.ADD)
SCALE = {"multiplier": 1, "shift": 0, "zero_point": 0, "low": -128, "high": 127}
MUL = Mul(a_zero_point=0, b_zero_point=0, **SCALE)
MATMUL = MatMul(a_zero_point=0, b_zero_point=0, **SCALE)
SCATTER = ConvTranspose2d(
    stride=(2, 2),
    pads=(1, 2, 1, 0),
    extra=(0, 0),
    input_zero_point=0,
    zero_point=0,
    low=-128,
    high=127,
)
POOL = MaxPool2d(kernel=(3, 3), stride=(2, 2), pads=(0, 1, 1, 0))

YIELDS: list[tuple[Operator, str, str]] = [
    (CONV, "b2,5,6,4 b8,3,2,4 i8 i8 i8", "b2,3,5,8"),
    (CONV, "b2,5,6,4 h8,1,1,4 i8 i8 i8", "b2,5,6,8"),
    (FloatConv2d(groups=4, stride=(2, 3), pads=(1, 0, 1, 2)), "f1,5,6,4 f8,3,3,1", "f1,3,2,8"),
    (FloatConv2d(dilation=(2, 1)), "f1,5,6,4 f8,3,3,4 f8", "f1,1,4,8"),
    (FloatDense(), "f3,5 f7,5 f7", "f3,7"),
    (FloatDense(), "f2,3,5 f7,5", "f2,3,7"),
    (SUM, "f3,1,5 f4,1", "f3,4,5"),
    (SUM, "f0,5 f1,5", "f0,5"),
    (FloatConvTranspose2d(stride=(2, 3), groups=2), "f1,4,5,6 f8,3,2,3 f8", "f1,9,14,8"),
    (SCATTER, "b1,4,5,6 b8,3,2,6 i8 i8 i8", "b1,7,8,8"),
    (FloatMatMul(), "f4,1,2,3 f5,3,7", "f4,5,2,7"),
    (MATMUL, "b4,2,3 b4,3,7", "b4,2,7"),
    (MUL, "b1,4,4,8 b1,1,1,8", "b1,4,4,8"),
    (LayerNorm(floor=1.0, zero_point=0, low=-128, high=127), "b2,3 f3 f3", "b2,3"),
    (FloatReduce(function=Reduction.MAXIMUM, axes=(0, 2)), "f2,3,4", "f1,3,1"),
    (FloatSoftmax(logarithm=True), "f2,3", "f2,3"),
    (FloatLayerNorm(epsilon=1e-5), "f2,3 f3 f3", "f2,3"),
    (FloatInterpolate(axis=1), "f2,3,4 i7,2 f7,2", "f2,7,4"),
    (Expand(shape=(2, 3, 4)), "f3,1", "f2,3,4"),
    (Upsample2d(factor=(2, 3)), "b1,2,2,5", "b1,4,6,5"),
    (Gather(axis=1), "b2,3,4 l5,6", "b2,5,6,4"),
    (Gather(axis=0), "f9,4 i", "f4"),
    (Cast(dtype=DataType.FLOAT32), "l2", "f2"),
    (Compare(relation=Relation.EQUAL), "l2,1 l3", "t2,3"),
    (Logical(connective=Connective.AND), "t2,1 t3", "t2,3"),
    (Select(), "t2,1 f f3", "f2,3"),
    (ADD, "b1,2 b1,2", "b1,2"),
    (AVERAGE, "b1,5,6,3", "b1,2,3,3"),
    (POOL, "u1,6,6,3", "u1,3,3,3"),
    (Lookup(), "b7 b256", "b7"),
    (Softmax(scale=1.0, zero_point=0), "b2,7 i256", "b2,7"),
    (Quantize(scale=1.0, zero_point=0, dtype=DataType.UINT8), "f3", "u3"),
    (Dequantize(scale=1.0, zero_point=0), "u3", "f3"),
    (DequantizeWeights(axis=1), "b3,4 f4 i4", "f3,4"),
    (Reinterpret(dtype=DataType.INT8), "u3", "b3"),
    (Reshape(shape=(2, 6)), "f3,4", "f2,6"),
    (Reshape(shape=()), "f1", "f"),
    (Transpose(permutation=(2, 0, 1)), "b2,3,4", "b4,2,3"),
    (Slice(begin=(1, 0), end=(4, 3), stride=(2, 3)), "b5,3", "b2,1"),
    (Pad(before=(1, 0), after=(2, 3), value=0.0), "b5,3", "b8,6"),
    (Concat(axis=1), "b2,3 b2,1 b2,4", "b2,8"),
]


@pytest.mark.parametrize(("op", "inputs", "output"), YIELDS)
def test_what_an_operator_yields(op: Operator, inputs: str, output: str) -> None:
    assert infer(op, types(inputs)) == types(output)[0]


REFUSES: list[tuple[Operator, str, str]] = [
    (CONV, "b2,5,6,4 b8,3,2,4 i8 i8", "takes 5 inputs, not 4"),
    (CONV, "f2,5,6,4 b8,3,2,4 i8 i8 i8", "takes int8, not float32"),
    (CONV, "b2,5,6,4 i8,3,2,4 i8 i8 i8", "takes int8 or int16, not int32"),
    (CONV, "b2,5,6,4 b8,3,2,4 i8 i8 i7", "takes one parameter per output channel, not int32[7]"),
    (CONV, "b2,5,6 b8,3,2,4 i8 i8 i8", "takes a tensor of 4 axes, not int8[2, 5, 6]"),
    (
        CONV,
        "b2,5,6,4 b8,3,2,3 i8 i8 i8",
        "weights int8[8, 3, 2, 3] in 1 groups do not fit 4 input channels",
    ),
    (CONV, "b2,2,6,4 b8,3,2,4 i8 i8 i8", "kernel (3, 2) does not fit into an image of (2, 6)"),
    (
        FloatConv2d(stride=(0, 1)),
        "f2,5,6,4 f8,3,2,4",
        "takes positive kernel, stride and dilation and no negative padding",
    ),
    (
        MaxPool2d(kernel=(2, 2), stride=(1, 1), pads=(0, 0, 2, 0)),
        "b1,5,6,3",
        "padding (0, 0, 2, 0) must be smaller than the window (2, 2)",
    ),
    (FloatAveragePool2d(kernel=(2, 2), stride=(1, 1)), "b1,5,6,3", "takes float32, not int8"),
    (FloatDense(), "f3,5 f7,6", "cannot multiply float32[3, 5] by the transpose of float32[7, 6]"),
    (SUM, "f3,5 f3", "cannot broadcast float32[3, 5] and float32[3]"),
    (ADD, "b1,2 b2,3", "cannot broadcast int8[1, 2] and int8[2, 3]"),
    (MUL, "b1,2 f1,2", "takes int8, not float32"),
    (
        SCATTER,
        "b1,1,1,4 b8,1,1,4 i8 i8 i8",
        "padding (1, 2, 1, 0) leaves nothing of the result for an image (1, 1)",
    ),
    (
        FloatConvTranspose2d(extra=(-1, 0)),
        "f1,5,6,4 f8,3,2,4",
        "takes positive kernel, stride and dilation and no negative padding",
    ),
    (FloatMatMul(), "f2,3 f2,3", "cannot multiply float32[2, 3] by float32[2, 3]"),
    (FloatMatMul(), "f3 f3", "cannot multiply float32[3] by float32[3]"),
    (
        FloatReduce(function=Reduction.MEAN, axes=(1, 0)),
        "f2,3",
        "takes ascending axes of float32[2, 3], not (1, 0)",
    ),
    (
        FloatReduce(function=Reduction.MEAN, axes=(0,)),
        "f0,3",
        "cannot reduce an empty axis of float32[0, 3]",
    ),
    (FloatSoftmax(), "f", "takes a tensor of at least one axis"),
    (
        FloatLayerNorm(epsilon=1e-5),
        "f2,3 f3 f2",
        "takes one gain and offset per channel of float32[2, 3], not float32[2]",
    ),
    (
        FloatInterpolate(axis=2),
        "f2,3 i4,2 f4,2",
        "cannot interpolate along axis 2 of float32[2, 3]",
    ),
    (
        FloatInterpolate(axis=0),
        "f2,3 i4,2 f4,1",
        "takes an index per weight, not int32[4, 2] and float32[4, 1]",
    ),
    (Expand(shape=(2, 3)), "f4,2,1", "cannot expand float32[4, 2, 1] to [2, 3]"),
    (Upsample2d(factor=(0, 1)), "b1,2,2,3", "takes positive factors, not (0, 1)"),
    (Gather(axis=1), "f5 l2", "cannot take entries along axis 1 of float32[5]"),
    (Gather(axis=0), "f5 f2", "takes int32 or int64, not float32"),
    (Cast(dtype=DataType.INT8), "f2", "cannot cast to int8"),
    (Compare(relation=Relation.LESS), "f2 l2", "cannot compare float32[2] and int64[2]"),
    (Logical(connective=Connective.NOT), "t2 t2", "takes 1 inputs, not 2"),
    (Select(), "t2 f2 l2", "cannot choose between float32[2] and int64[2]"),
    (Clip(low=0, high=1), "u3", "takes int8, not uint8"),
    (Lookup(), "b7 b255", "takes a table of 256 entries, not int8[255]"),
    (Softmax(scale=1.0, zero_point=0), "b i256", "takes a tensor of at least one axis"),
    (
        Quantize(scale=1.0, zero_point=0, dtype=DataType.INT16),
        "f3",
        "yields int8 or uint8, not int16",
    ),
    (Reinterpret(dtype=DataType.INT8), "b3", "turns int8 into uint8 or back, not int8 into int8"),
    (
        DequantizeWeights(axis=0),
        "b3,4 f4 i4",
        "takes 1 or 3 scales and zero points along axis 0",
    ),
    (Reshape(shape=(2, 5)), "f3,4", "cannot view float32[3, 4] as [2, 5]"),
    (Reshape(shape=(-3, -4)), "f3,4", "cannot view float32[3, 4] as [-3, -4]"),
    (Transpose(permutation=(0, 0)), "b2,3", "(0, 0) does not permute the axes of int8[2, 3]"),
    (
        Slice(begin=(0,), end=(6,), stride=(1,)),
        "b5",
        "slice (0,) to (6,) by (1,) is not within int8[5]",
    ),
    (
        Slice(begin=(), end=(), stride=()),
        "b5",
        "takes one begin, end and stride per axis of int8[5]",
    ),
    (Pad(before=(-1,), after=(0,), value=0.0), "b5", "cannot pad int8[5] by (-1,) and (0,)"),
    (Concat(axis=1), "b2,3 b3,3", "cannot join int8[2, 3], int8[3, 3] along axis 1"),
    (Concat(axis=2), "b2,3 b2,3", "cannot join 2 tensors along axis 2"),
]


@pytest.mark.parametrize(("op", "inputs", "message"), REFUSES)
def test_what_an_operator_refuses(op: Operator, inputs: str, message: str) -> None:
    with pytest.raises(InferenceError) as caught:
        infer(op, types(inputs))
    assert str(caught.value) == message
