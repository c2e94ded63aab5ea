"""An integer or float graph to a program of loop nests."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import (
    AveragePool2d,
    FloatAveragePool2d,
    MatMul,
    MaxPool2d,
    Reinterpret,
    Reshape,
)
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.arithmetic import (
    FLOAT32,
    Arithmetic,
    half_tensors,
    with_arithmetic,
)
from tilewright.cpu_gpu_backends.cpu.builder import NO_BORDER, Activation, Layout, ProgramBuilder
from tilewright.cpu_gpu_backends.cpu.byte_products import lower_byte_product
from tilewright.cpu_gpu_backends.cpu.chain_plans import ChainPlan, plan_chains
from tilewright.cpu_gpu_backends.cpu.chains import lower_chain
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.copies import add_border, copy_in, copy_out
from tilewright.cpu_gpu_backends.cpu.depthwise import lower_depthwise
from tilewright.cpu_gpu_backends.cpu.elementwise import lower_elementwise
from tilewright.cpu_gpu_backends.cpu.generic import lower_generic
from tilewright.cpu_gpu_backends.cpu.grouping import (
    Group,
    group_nodes,
    is_depthwise,
    is_product,
    with_plans,
)
from tilewright.cpu_gpu_backends.cpu.layouts import (
    is_matrix_kernel,
    plan_layouts,
)
from tilewright.cpu_gpu_backends.cpu.matrix import lower_matrix
from tilewright.cpu_gpu_backends.cpu.planes import (
    lower_planes,
    planar_layouts,
    planar_tensors,
)
from tilewright.cpu_gpu_backends.cpu.plans import NO_PLANS, Plan
from tilewright.cpu_gpu_backends.cpu.pooling import lower_pooling
from tilewright.cpu_gpu_backends.cpu.products import lower_product
from tilewright.cpu_gpu_backends.cpu.program import CpuProgram, Home
from tilewright.cpu_gpu_backends.cpu.winograd import lower_winograd
from tilewright.cpu_gpu_backends.cpu.winograd_tiles import winograd_transforms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrangement:
    """The groups of a graph, where tensors between them lie, and which are computed in bands."""

    groups: tuple[Group, ...]
    halves: frozenset[str]
    layouts: Mapping[str, Layout]
    chains: Mapping[str, ChainPlan]
    #: What stays in planes, and what that comes from.
    planar: Mapping[str, str]

    @property
    def chained(self) -> frozenset[str]:
        """What the groups in chains compute."""
        return frozenset(one.output for chain in self.chains.values() for one in chain.groups)


def _arranged(
    graph: Graph, target: CpuTarget, plans: Mapping[str, Plan], arithmetic: Arithmetic
) -> _Arrangement:
    groups = with_arithmetic(graph, with_plans(graph, group_nodes(graph), plans), arithmetic)
    halves = half_tensors(graph, groups)
    while True:
        planar = planar_tensors(graph, groups, halves)
        layouts = planar_layouts(plan_layouts(graph, groups, target, halves), planar)
        chains = plan_chains(graph, groups, layouts)
        arrangement = _Arrangement(
            groups=groups, halves=halves, layouts=layouts, chains=chains, planar=planar
        )
        chained = arrangement.chained
        # Plans are for whole images, not for bands.
        without = tuple(
            replace(group, plan=None) if group.output in chained else group for group in groups
        )
        if without == groups:
            return arrangement
        groups = without


def chained_outputs(graph: Graph, target: CpuTarget) -> frozenset[str]:
    """Return what those groups compute that run in bands, where plans have no effect."""
    return _arranged(graph, target, NO_PLANS, FLOAT32).chained


def lower_graph(
    graph: Graph,
    target: CpuTarget,
    plans: Mapping[str, Plan] = NO_PLANS,
    arithmetic: Arithmetic = FLOAT32,
) -> CpuProgram:
    """Return the program of a graph for a processor.

    Parameters
    ----------
    plans
        What a tuner has chosen for groups, by their digest.
    """
    arrangement = _arranged(graph, target, plans, arithmetic)
    layouts, chained, planar = arrangement.layouts, arrangement.chained, arrangement.planar
    builder = ProgramBuilder(graph.name)
    context = Context(builder=builder, graph=graph, target=target, halves=arrangement.halves)
    inputs = {name: _file_buffer(context, name, Home.INPUT) for name in graph.inputs}
    outputs = {name: _file_buffer(context, name, Home.OUTPUT) for name in graph.outputs}
    for name, buffer in inputs.items():
        copy_in(context, name, buffer, layouts[name])
    for group in arrangement.groups:
        context.add_constants(group.inputs)
        chain = arrangement.chains.get(group.output)
        if chain is not None:
            lower_chain(context, chain, layouts[group.output], outputs.get(group.output))
        elif group.output in planar:
            lower_planes(context, group.output, planar[group.output], layouts[group.output])
        elif group.output not in chained:
            _lower_group(context, group, layouts[group.output], outputs.get(group.output))
    for name, buffer in outputs.items():
        context.add_constants([name])
        if context.activations[name].view.buffer != buffer:
            copy_out(context, name, buffer)
    return context.builder.build()


def _file_buffer(context: Context, name: str, home: Home) -> str:
    """Add the buffer that the caller gives for an input or an output."""
    tensor = context.graph.tensors[name]
    return context.builder.buffer(name, ScalarType(tensor.dtype.value), prod(tensor.shape), home)


def _lower_group(context: Context, group: Group, layout: Layout, buffer: str | None) -> None:
    node = group.first
    source = context.activations[node.inputs[0]] if node.inputs else None
    alone = len(group.nodes) == 1 and layout.border == NO_BORDER
    if alone and source is not None:
        match node.op:
            case Reshape() if source.is_dense:
                return context.alias(group.output, node.inputs[0])
            case Reinterpret():
                return context.alias(group.output, node.inputs[0])
    output = context.allocate(group.output, layout, buffer)
    add_border(context, group.output, output)
    if not group.anchored:
        return lower_elementwise(context, group, output)
    return _lower_anchored(context, group, output)


def _lower_anchored(context: Context, group: Group, output: Activation) -> None:
    node, graph = group.first, context.graph
    tiles = winograd_transforms(graph, group)
    if tiles is not None:
        lower_winograd(context, group, output, tiles)
    elif is_matrix_kernel(graph, group):
        lower_matrix(context, group, output)
    elif is_depthwise(graph, node):
        lower_depthwise(context, group, output)
    elif isinstance(node.op, MatMul) and is_product(graph, node):
        lower_byte_product(context, group, output)
    elif is_product(graph, node):
        lower_product(context, group, output)
    elif isinstance(node.op, MaxPool2d | AveragePool2d | FloatAveragePool2d):
        lower_pooling(context, node, output)
    else:
        lower_generic(context, node, output)
