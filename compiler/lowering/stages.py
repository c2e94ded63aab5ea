"""The kernels of a stage of accelerator nodes, fused and folded, and its tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.compiled import Fold
from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.choices import Choices
from tilewright.compiler.lowering.folding import fold, folded_shape
from tilewright.compiler.lowering.fusion import KernelGroup, fuse
from tilewright.compiler.lowering.kernels import Kernel, Legalised, MatrixKernel
from tilewright.compiler.lowering.placement import fits, kernel_tensors, tensor_views
from tilewright.compiler.lowering.places import Places, join_copies, view_places
from tilewright.compiler.lowering.tensors import Int8Array, TensorShape
from tilewright.isa.config import AcceleratorConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedStage:
    """The kernels of a stage in order, and its tensors by name."""

    groups: tuple[KernelGroup, ...]
    shapes: Mapping[str, TensorShape]
    #: Of tensors that share the bytes of another one.
    places: Places
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    folds: Mapping[str, tuple[str, Fold]]

    @property
    def constants(self) -> dict[str, Int8Array]:
        """Values of tensors that are in DRAM from the beginning."""
        return {name: values for group in self.groups for name, values in group.legalised.constants}

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels in order."""
        return tuple(kernel for group in self.groups for kernel in group.legalised.kernels)


def prepare(
    nodes: Sequence[Node],
    kernels: Mapping[str, Legalised],
    graph: Graph,
    config: AcceleratorConfig,
    *,
    keep_intermediates: bool,
    choices: Choices,
) -> PreparedStage:
    """Fuse, resolve views, fold first layers, and find what comes in and goes out."""
    computing = [node for node in nodes if kernels[node.name].kernels]
    if keep_intermediates:
        groups = tuple(
            KernelGroup(nodes=(node,), legalised=kernels[node.name]) for node in computing
        )
    else:
        groups = fuse(
            computing, kernels, graph, lambda joined: _fits(joined, graph, config, choices)
        )
    places = view_places(nodes, kernels)
    inputs = _inputs(nodes, graph)
    outputs = _outputs(nodes, groups, graph, everything=keep_intermediates)
    shapes: dict[str, TensorShape] = {}
    for group in groups:
        shapes.update(group.legalised.temporaries)
        for kernel in group.legalised.kernels:
            for name in kernel_tensors(kernel):
                if name not in shapes:
                    shapes[name] = TensorShape.of(graph.tensors[name].shape)
    for name in (*inputs, *outputs, *places, *(place.root for place in places.values())):
        shapes.setdefault(name, TensorShape.of(graph.tensors[name].shape))
    if not keep_intermediates:
        groups, places = join_copies(groups, places, shapes, config)
    stage = PreparedStage(
        groups=groups, shapes=shapes, places=places, inputs=inputs, outputs=outputs, folds={}
    )
    return stage if keep_intermediates else _fold_inputs(stage, config)


def _fits(joined: Legalised, graph: Graph, config: AcceleratorConfig, choices: Choices) -> bool:
    tensors = tensor_views(joined, graph, config)
    return all(fits(kernel, tensors, config, choices) for kernel in joined.kernels)


def _inputs(nodes: Sequence[Node], graph: Graph) -> tuple[str, ...]:
    """Tensors that come from outside the stage."""
    made = {name for node in nodes for name in node.outputs}
    read = dict.fromkeys(
        name for node in nodes for name in node.inputs if name not in graph.constants
    )
    return tuple(name for name in read if name not in made)


def _outputs(
    nodes: Sequence[Node], groups: tuple[KernelGroup, ...], graph: Graph, *, everything: bool
) -> tuple[str, ...]:
    """Tensors that something outside the stage reads."""
    inside = {node.name for node in nodes}
    readers = graph.consumers()
    made = [name for node in nodes for name in node.outputs]
    return tuple(
        name
        for name in made
        if everything
        or name in graph.outputs
        or any(reader.name not in inside for reader in readers[name])
    )


def _fold_inputs(stage: PreparedStage, config: AcceleratorConfig) -> PreparedStage:
    """Fold the windows of first layers into the layout of the stage's inputs."""
    groups = list(stage.groups)
    shapes = dict(stage.shapes)
    folds: dict[str, tuple[str, Fold]] = {}
    for name in stage.inputs:
        readers = [
            (number, kernel)
            for number, group in enumerate(groups)
            for kernel in group.legalised.kernels
            if name in kernel_tensors(kernel)
        ]
        viewed = any(place.root == name for place in stage.places.values())
        if len(readers) != 1 or viewed or name in stage.outputs:
            continue
        number, kernel = readers[0]
        if not isinstance(kernel, MatrixKernel) or kernel.source != name:
            continue
        if kernel.residual is not None and kernel.residual.tensor == name:
            continue
        shape = folded_shape(kernel, shapes[name], shapes[kernel.output], config)
        if shape is None:
            continue
        folded = f"{name}#folded"
        new_kernel, rule = fold(kernel, shapes[name], shape, folded)
        del shapes[name]
        shapes[folded] = shape
        folds[name] = (folded, rule)
        legalised = groups[number].legalised
        kept = tuple(new_kernel if one is kernel else one for one in legalised.kernels)
        groups[number] = replace(groups[number], legalised=replace(legalised, kernels=kept))
    return replace(stage, groups=tuple(groups), shapes=shapes, folds=folds)
