"""From a graph to the program of a GPU."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tilewright.compiler.graph import Array, Graph
from tilewright.compiler.operators import Reshape
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.gpu.device import Capability
from tilewright.cpu_gpu_backends.gpu.dialects import Dialect
from tilewright.cpu_gpu_backends.gpu.fusion import Group, group_nodes
from tilewright.cpu_gpu_backends.gpu.layers import Layer, layer_of
from tilewright.cpu_gpu_backends.gpu.lowering import (
    Choice,
    LoweredLayer,
    choices_of,
    lower_layer,
)
from tilewright.cpu_gpu_backends.gpu.matrix_form import pack_weights
from tilewright.cpu_gpu_backends.gpu.program import DeviceTensor, GpuProgram, Launch
from tilewright.cpu_gpu_backends.gpu.source import kernel_source


class Chooser(Protocol):
    """What decides between the schedules of a layer."""

    def __call__(self, layer: Layer, choices: tuple[Choice, ...]) -> Choice:
        """Return one of `choices`, of which the first is the default."""


def default_choice(layer: Layer, choices: tuple[Choice, ...]) -> Choice:
    """Return the default."""
    return choices[0]


def compile_for_gpu(
    graph: Graph,
    capability: Capability,
    dialect: Dialect,
    *,
    fuse: bool = True,
    choose: Chooser = default_choice,
    progress: Callable[[str], None] | None = None,
) -> GpuProgram:
    """Compile a graph for devices of one capability.

    Parameters
    ----------
    graph
        An integer graph or a float graph.
    fuse
        Whether element-wise nodes join the kernels of what they follow.
    choose
        What a tuner has found; by default estimates decide.
    progress
        Called with a few words before each layer.

    Raises
    ------
    CompileError
        If a node cannot be carried out, naming it.
    """
    builder = _Builder(graph=graph, capability=capability, choose=choose)
    for name in graph.inputs:
        builder.add_tensor(name, name)
    for group in group_nodes(graph, fuse=fuse):
        if progress is not None:
            progress(f"kernels of {group.anchor.name}")
        builder.add(group)
    kernels = tuple({one.kernel.name: one.kernel for one in builder.launches}.values())
    return GpuProgram(
        name=graph.name,
        tensors=builder.tensors,
        inputs=graph.inputs,
        outputs=graph.outputs,
        constants=builder.constants,
        aliases=builder.aliases,
        shapes={name: graph.tensors[name].shape for name in (*graph.inputs, *graph.outputs)},
        launches=tuple(builder.launches),
        source=kernel_source(kernels, dialect),
    )


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Collects the parts of a program, one group after the other."""

    graph: Graph
    capability: Capability
    choose: Chooser
    tensors: dict[str, DeviceTensor] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    _lowered: dict[Layer, LoweredLayer] = field(default_factory=dict)

    def add(self, group: Group) -> None:
        """Add the launches of a group."""
        if isinstance(group.anchor.op, Reshape) and group.anchor.inputs[0] not in (
            self.graph.constants
        ):
            source = group.anchor.inputs[0]
            self.aliases[group.output] = self.aliases.get(source, source)
            return
        layer = layer_of(self.graph, group)
        if layer not in self._lowered:
            choice = self.choose(layer, choices_of(layer, self.capability))
            name = f"layer{len(self._lowered)}_{_readable(type(group.anchor.op).__name__)}"
            self._lowered[layer] = lower_layer(layer, choice, self.capability, name)
        self._add_launches(group, layer, self._lowered[layer])

    def _add_launches(self, group: Group, layer: Layer, lowered: LoweredLayer) -> None:
        places = {
            own: self._operand(name) for own, name in zip(layer.inputs, group.inputs, strict=True)
        }
        self.add_tensor(group.output, group.output)
        places[layer.output] = group.output
        for own, (buffer, extents) in lowered.packed.items():
            name = group.inputs[layer.inputs.index(own)]
            places[buffer] = self._packed(name, extents)
        for temporary in lowered.kernels.temporaries:
            places[temporary.name] = self._temporary(group, temporary)
        self.launches += [
            Launch(
                layer=group.nodes[-1].name,
                kernel=kernel,
                tensors=tuple(places[parameter.tensor.name] for parameter in kernel.parameters),
            )
            for kernel in lowered.kernels.kernels
        ]

    def add_tensor(self, name: str, source: str) -> None:
        """Add a tensor like `source` of the graph."""
        tensor = self.graph.tensors[source]
        dtype = ScalarType(tensor.dtype.value)
        self.tensors[name] = DeviceTensor(name=name, shape=tensor.shape, dtype=dtype)

    def _operand(self, name: str) -> str:
        if name in self.graph.constants:
            self.add_tensor(name, name)
            self.constants[name] = self.graph.constants[name]
        return self.aliases.get(name, name)

    def _packed(self, name: str, extents: tuple[int, ...]) -> str:
        packed = f"{name} packed {' x '.join(map(str, extents))}"
        if packed not in self.constants:
            self.constants[packed] = pack_weights(self.graph.constants[name], extents)
            dtype = ScalarType(self.graph.tensors[name].dtype.value)
            self.tensors[packed] = DeviceTensor(name=packed, shape=extents, dtype=dtype)
        return packed

    def _temporary(self, group: Group, temporary: Tensor) -> str:
        name = f"{group.output} {temporary.name}"
        self.tensors[name] = DeviceTensor(name=name, shape=temporary.shape, dtype=temporary.dtype)
        return name


def _readable(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
