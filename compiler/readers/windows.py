"""Padding of windows as the model formats state it."""

from tilewright.compiler.operators import Padding, Pair


def same_padding(
    size: Pair, kernel: Pair, stride: Pair, dilation: Pair = (1, 1), *, lower: bool = False
) -> Padding:
    """Return the padding under which the output has ``ceil(size / stride)`` positions.

    The odd element goes below and to the right, or with `lower` above and to the left.
    """
    before, after = [], []
    for axis in range(2):
        positions = -(-size[axis] // stride[axis])
        span = (kernel[axis] - 1) * dilation[axis] + 1
        total = max((positions - 1) * stride[axis] + span - size[axis], 0)
        small, large = total // 2, total - total // 2
        before.append(large if lower else small)
        after.append(small if lower else large)
    return before[0], before[1], after[0], after[1]


def ceiling_padding(size: Pair, kernel: Pair, stride: Pair, pads: Padding) -> Padding:
    """Return `pads` extended below and to the right so that partial windows count too.

    A window that would start in the extension is not counted.
    """
    after = []
    for axis in range(2):
        before, end = pads[axis], pads[axis + 2]
        room = size[axis] + before + end - kernel[axis]
        positions = -(-room // stride[axis]) + 1
        if (positions - 1) * stride[axis] >= size[axis] + before:
            positions -= 1
        after.append(max(end, (positions - 1) * stride[axis] + kernel[axis] - size[axis] - before))
    return pads[0], pads[1], after[0], after[1]
