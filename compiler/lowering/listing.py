"""Listings of layers: expression, schedule, loop nest, tasks and instructions, as text."""

from collections.abc import Iterator

from tilewright.compiler.compiled import LayerInfo, Target
from tilewright.compiler.graph import Graph
from tilewright.compiler.lowering.bindings import Binding, DramView
from tilewright.compiler.lowering.choices import NO_CHOICES, Choices
from tilewright.compiler.lowering.lower import StageCode, generate_code
from tilewright.compiler.lowering.placement import Schedule, place
from tilewright.compiler.lowering.tasks import Task
from tilewright.compiler.tensor.declare import inputs_of
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.printing import format_nest, format_tensor
from tilewright.isa.assembly_line import format_instruction
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import InputError


def list_layer(
    graph: Graph, config: AcceleratorConfig, layer: str, *, choices: Choices = NO_CHOICES
) -> str:
    """Return everything between a layer of an integer graph and its instructions, as text.

    Parameters
    ----------
    layer
        The name of a layer, or of a node that it computes.

    Raises
    ------
    InputError
        If no layer on the accelerator has this name.
    """
    placed = place(graph, config, choices)
    known: list[str] = []
    for stage in placed.stages:
        if stage.target is not Target.ACCELERATOR:
            continue
        code = generate_code(
            stage.nodes, placed.kernels, graph, config, keep_intermediates=False, choices=choices
        )
        for number, info in enumerate(code.layers):
            if layer in (info.name, *info.nodes):
                return "\n".join(_layer(code, number, info))
            known.append(info.name)
    raise InputError(
        f"no layer on the accelerator is called {layer!r}",
        hint=f"its layers are {', '.join(known) or 'none'}",
    )


def _layer(code: StageCode, number: int, info: LayerInfo) -> Iterator[str]:
    yield f"layer {info.name} ({info.operator})"
    for schedule, layer in zip(code.schedules, code.layer_of_kernel, strict=True):
        if layer == number:
            yield from _kernel(schedule, code)
    yield "\n== tasks: instructions with the tokens that they take and give, and what they touch"
    for task, instruction in zip(code.tasks, code.instructions, strict=False):
        if task.layer == number:
            yield f"{format_instruction(instruction)}\n    {_effects(task)}"


def _kernel(schedule: Schedule, code: StageCode) -> Iterator[str]:
    tensor_schedule = schedule.tensor_schedule()
    yield f"\n== kernel {schedule.kernel.name}: tensor expression"
    yield from map(format_tensor, _tensors(schedule.declared()))
    yield "\n== what its inputs and outputs are"
    for name, binding in schedule.bindings(code.tensors).items():
        yield f"{name} is {_bound(binding)}"
    yield from (f"{name} = {value}" for name, value in schedule.scalars().items())
    yield f"\n== schedule\n{tensor_schedule}"
    yield f"\n== loop nest\n{format_nest(lower(tensor_schedule))}"


def _tensors(output: Tensor) -> list[Tensor]:
    """Return a tensor and all that it is computed from, those that are read first."""
    found: list[Tensor] = []
    for source in inputs_of(output):
        found += (tensor for tensor in _tensors(source) if tensor not in found)
    return [*found, output]


def _bound(binding: Binding) -> str:
    if isinstance(binding, DramView):
        return f"tensor {binding.name!r} at {binding.tensor.address:#x}"
    return "constant"


def _effects(task: Task) -> str:
    parts = [
        f"{verb} "
        + ", ".join(f"{span.memory.name.lower()}[{span.begin}:{span.end}]" for span in spans)
        for verb, spans in (("reads", task.reads), ("writes", task.writes))
        if spans
    ]
    if task.dram is not None:
        parts.append(f"DRAM from {task.dram.address:#x}")
    return "; ".join(parts)
