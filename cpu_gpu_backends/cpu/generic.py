"""Any operator by its own declaration, with a schedule that suits all."""

from tilewright.compiler.graph import Node
from tilewright.compiler.operators import DataType
from tilewright.compiler.tensor.build import cast
from tilewright.compiler.tensor.declare import compute, placeholder
from tilewright.compiler.tensor.expressions import Expr, Reduce, Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.operators.from_graph import declare_operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.cpu_gpu_backends.cpu.arrangement import arrange
from tilewright.cpu_gpu_backends.cpu.builder import Activation
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.program import View
from tilewright.cpu_gpu_backends.cpu.quantised import INT32, STORED_OFFSET


def lower_generic(context: Context, node: Node, output: Activation) -> None:
    """Add the kernels of one node."""
    views: dict[str, View] = {}
    inputs, converted = [], []
    for position, name in enumerate(node.inputs):
        activation = context.activations[name]
        stored = placeholder(activation.shape, activation.dtype, f"operand{position}")
        views[stored.name] = activation.view
        if context.graph.tensors[name].dtype is DataType.INT8:
            signed = _moved(stored, -STORED_OFFSET, ScalarType.INT8, f"signed{position}")
            converted.append(signed.name)
            inputs.append(signed)
        else:
            inputs.append(stored)
    result = declare_operator(node.op, tuple(inputs), "result")
    if context.graph.tensors[node.outputs[0]].dtype is DataType.INT8:
        if not isinstance(_body(result), Reduce):
            converted.append(result.name)
        result = _moved(result, STORED_OFFSET, ScalarType.UINT8, "stored")
    elif output.dtype is ScalarType.BFLOAT16:
        if not isinstance(_body(result), Reduce):
            converted.append(result.name)
        result = _rounded(result, "stored")
    schedule = Schedule(result)
    for stage in converted:
        if stage in schedule.state.names:
            schedule.compute_inline(stage)
    arrange(schedule)
    views[result.name] = output.view
    context.builder.kernel(node.name, lower(schedule), views)


def _body(tensor: Tensor) -> Expr:
    assert tensor.definition is not None, "an operator computes something"
    return tensor.definition.body


def _rounded(source: Tensor, name: str) -> Tensor:
    return compute(source.shape, lambda *at: cast(source[at], ScalarType.BFLOAT16), name)


def _moved(source: Tensor, by: int, dtype: ScalarType, name: str) -> Tensor:
    def element(*at: Expr) -> Expr:
        return cast(cast(source[at], INT32) + by, dtype)

    return compute(source.shape, element, name)
