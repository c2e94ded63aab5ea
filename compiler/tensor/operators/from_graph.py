"""The declaration of any operator of the graph."""

from typing_extensions import assert_never

from tilewright.compiler import operators
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.operators import (
    broadcasting,
    convolution,
    elementwise,
    movement,
    normalisation,
    pooling,
)


def declare_operator(op: operators.Operator, inputs: tuple[Tensor, ...], name: str) -> Tensor:
    """Declare what `op` computes from `inputs`; it may take several stages called ``name.*``."""
    match op:
        case _ if isinstance(op, operators.IntegerOperator):
            return _integer(op, inputs, name)
        case _ if isinstance(op, operators.MovementOperator):
            return _movement(op, inputs, name)
        case _ if isinstance(op, operators.ConversionOperator):
            return _conversion(op, inputs, name)
        case _ if isinstance(op, operators.FloatOperator):
            return _float(op, inputs, name)
        case _ if isinstance(op, operators.LogicOperator):
            return _logic(op, inputs, name)
        case _:
            assert_never(op)


def _integer(  # noqa: C901
    op: operators.IntegerOperator, inputs: tuple[Tensor, ...], name: str
) -> Tensor:
    match op:
        case operators.Conv2d():
            image, weights, bias, multiplier, shift = inputs
            return convolution.conv2d(op, image, weights, bias, multiplier, shift, name)
        case operators.ConvTranspose2d():
            image, weights, bias, multiplier, shift = inputs
            return convolution.transposed_conv2d(op, image, weights, bias, multiplier, shift, name)
        case operators.MatMul():
            return convolution.matmul(op, inputs[0], inputs[1], name)
        case operators.Add():
            return broadcasting.add(op, inputs[0], inputs[1], name)
        case operators.Mul():
            return broadcasting.multiply(op, inputs[0], inputs[1], name)
        case operators.AveragePool2d():
            return pooling.average_pool(op, inputs[0], name)
        case operators.Requantize():
            return elementwise.requantize(op, inputs[0], name)
        case operators.Clip():
            return elementwise.clipped(op, inputs[0], name)
        case operators.Lookup():
            return elementwise.lookup(inputs[0], inputs[1], name)
        case operators.Softmax():
            return normalisation.softmax(op, inputs[0], inputs[1], name)
        case operators.LayerNorm():
            return normalisation.layer_norm(op, inputs[0], inputs[1], inputs[2], name)
        case _:
            assert_never(op)


def _movement(op: operators.MovementOperator, inputs: tuple[Tensor, ...], name: str) -> Tensor:
    match op:
        case operators.MaxPool2d():
            return pooling.max_pool(op, inputs[0], name)
        case operators.Reshape():
            return movement.reshape(op, inputs[0], name)
        case operators.Transpose():
            return movement.transpose(op, inputs[0], name)
        case operators.Slice():
            return movement.slice_of(op, inputs[0], name)
        case operators.Pad():
            return movement.pad(op, inputs[0], name)
        case operators.Concat():
            return movement.concat(op, inputs, name)
        case operators.Expand():
            return movement.expand(op, inputs[0], name)
        case operators.Upsample2d():
            return movement.upsample(op, inputs[0], name)
        case operators.Gather():
            return movement.gather(op, inputs[0], inputs[1], name)
        case _:
            assert_never(op)


def _conversion(op: operators.ConversionOperator, inputs: tuple[Tensor, ...], name: str) -> Tensor:
    match op:
        case operators.Quantize():
            return elementwise.quantize(op, inputs[0], name)
        case operators.Dequantize():
            return elementwise.dequantize(op, inputs[0], name)
        case operators.DequantizeWeights():
            return elementwise.dequantize_weights(op, inputs[0], inputs[1], inputs[2], name)
        case operators.Reinterpret():
            return elementwise.reinterpret(op, inputs[0], name)
        case _:
            assert_never(op)


def _logic(op: operators.LogicOperator, inputs: tuple[Tensor, ...], name: str) -> Tensor:
    match op:
        case operators.Cast():
            return elementwise.converted(op, inputs[0], name)
        case operators.Compare():
            return broadcasting.compare(op, inputs[0], inputs[1], name)
        case operators.Logical():
            return broadcasting.logical(op, inputs, name)
        case operators.Select():
            return broadcasting.choose(inputs[0], inputs[1], inputs[2], name)
        case _:
            assert_never(op)


def _float(  # noqa: C901
    op: operators.FloatOperator, inputs: tuple[Tensor, ...], name: str
) -> Tensor:
    x, bias = inputs[0], inputs[2] if len(inputs) == 3 else None
    match op:
        case operators.FloatConv2d():
            return convolution.float_conv2d(op, x, inputs[1], bias, name)
        case operators.FloatConvTranspose2d():
            return convolution.float_transposed_conv2d(op, x, inputs[1], bias, name)
        case operators.FloatDense():
            return convolution.dense(x, inputs[1], bias, name)
        case operators.FloatMatMul():
            return convolution.product_sums(x, inputs[1], 0, 0, name)
        case operators.FloatAveragePool2d():
            return pooling.float_average_pool(op, x, name)
        case operators.FloatInterpolate():
            return movement.interpolate(op, x, inputs[1], inputs[2], name)
        case operators.FloatReduce() | operators.FloatSoftmax() | operators.FloatLayerNorm():
            return _float_reduction(op, inputs, name)
        case operators.FloatBinary():
            return broadcasting.float_binary(op, x, inputs[1], name)
        case operators.FloatClip():
            return elementwise.clipped(op, x, name)
        case operators.FloatUnary():
            return elementwise.unary(op, x, name)
        case _:
            assert_never(op)


def _float_reduction(
    op: operators.FloatReduce | operators.FloatSoftmax | operators.FloatLayerNorm,
    inputs: tuple[Tensor, ...],
    name: str,
) -> Tensor:
    match op:
        case operators.FloatReduce():
            return normalisation.reduction(op, inputs[0], name)
        case operators.FloatSoftmax():
            return normalisation.float_softmax(op, inputs[0], name)
        case operators.FloatLayerNorm():
            return normalisation.float_layer_norm(op, inputs[0], inputs[1], inputs[2], name)
        case _:
            assert_never(op)
