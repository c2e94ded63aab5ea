"""Groups of element-wise nodes only."""

from math import prod

from tilewright.compiler.tensor.declare import compute
from tilewright.compiler.tensor.expressions import Expr
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.cpu_gpu_backends.cpu.arrangement import arrange
from tilewright.cpu_gpu_backends.cpu.builder import Activation
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.grouping import Group
from tilewright.cpu_gpu_backends.cpu.tails import (
    OperandKind,
    TailInputs,
    apply_tail,
    as_element,
    operand_kinds,
)

#: Most elements of an innermost loop over a dense tensor.
_LONGEST_ROW = 8192


def lower_elementwise(context: Context, group: Group, output: Activation) -> None:
    """Add the kernel of a group of element-wise nodes."""
    inputs = TailInputs.of(context, output.shape)
    if _is_dense(context, group, output):
        inputs.reshape(_rows(prod(output.shape)))

    def element(*at: Expr) -> Expr:
        first = group.first
        kinds = operand_kinds(context.graph, first)
        assert kinds is not None, f"{first.label} is element-wise"
        main = first.inputs[kinds.index(OperandKind.SAME)]
        value = inputs.value(main, OperandKind.SAME, at)
        for node in group.nodes:
            value = apply_tail(node, main, value, inputs, at)
            main = node.outputs[0]
        return as_element(value, output.dtype)

    out = compute(inputs.shape, element, "out")
    schedule = Schedule(out)
    arrange(schedule)
    view = inputs.view_of(output)
    context.builder.kernel(group.output, lower(schedule), {**inputs.views, "out": view})


def _is_dense(context: Context, group: Group, output: Activation) -> bool:
    """Whether all operands lie like the result, without gaps, so that axes do not matter."""
    same = []
    for node in group.nodes:
        kinds = operand_kinds(context.graph, node)
        assert kinds is not None, f"{node.label} is element-wise"
        if OperandKind.CHANNEL in kinds:
            return False
        same += [
            name
            for name, kind in zip(node.inputs, kinds, strict=True)
            if kind is OperandKind.SAME and name in context.activations
        ]
    return output.is_dense and all(context.activations[name].is_dense for name in same)


def _rows(elements: int) -> tuple[int, int]:
    """Cut a dense tensor into equal rows, long ones, whole vectors where that can be."""
    best = 1
    for length in range(min(elements, _LONGEST_ROW), 0, -1):
        if elements % length:
            continue
        if length % 64 == 0 and length >= 256:
            return elements // length, length
        best = max(best, length)
    return elements // best, best
