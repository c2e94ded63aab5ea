"""Folding of a first layer: its windows become channels of the input, so that the array is full."""

from dataclasses import replace

from tilewright.compiler.compiled import Fold
from tilewright.compiler.lowering.kernels import MatrixKernel, Window
from tilewright.compiler.lowering.tensors import TensorShape
from tilewright.isa.config import AcceleratorConfig


def folded_shape(
    kernel: MatrixKernel, image: TensorShape, output: TensorShape, config: AcceleratorConfig
) -> TensorShape | None:
    """Return the shape of the folded input, or None where folding saves no products."""
    taps = kernel.window.taps
    channels = taps * image.channels
    before = taps * -(-image.channels // config.block_in)
    if kernel.groups != 1 or kernel.phases != (1, 1) or -(-channels // config.block_in) >= before:
        return None
    return TensorShape(
        images=image.images, height=output.height, width=output.width, channels=channels
    )


def fold(
    kernel: MatrixKernel, image: TensorShape, folded: TensorShape, name: str
) -> tuple[MatrixKernel, Fold]:
    """Return the kernel on the folded input `name`, and how the host makes that input."""
    outputs = kernel.weights.shape[0]
    rule = Fold(window=kernel.window, image=image, rows=folded.height, columns=folded.width)
    folded_kernel = replace(
        kernel,
        source=name,
        window=Window(),
        weights=kernel.weights.reshape(outputs, 1, 1, -1),
    )
    return folded_kernel, rule
