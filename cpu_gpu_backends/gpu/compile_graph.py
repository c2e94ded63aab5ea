"""From a graph to the program of a GPU."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tilewright.compiler.graph import Array, Graph
from tilewright.compiler.graph import Tensor as GraphTensor
from tilewright.compiler.operators import DataType, Reshape
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.gpu.device import Capability, fits
from tilewright.cpu_gpu_backends.gpu.dialects import Dialect
from tilewright.cpu_gpu_backends.gpu.fusion import Group, group_nodes
from tilewright.cpu_gpu_backends.gpu.layers import Layer, layer_of
from tilewright.cpu_gpu_backends.gpu.lowering import (
    Choice,
    LoweredLayer,
    choices_of,
    lower_layer,
)
from tilewright.cpu_gpu_backends.gpu.matrix_form import PackedWeights
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
    half: bool = False,
    winograd: bool = True,
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
    half
        Whether real numbers between operators, and weights, lie in memory as float16; sums are
        float32 then, too.
    winograd
        Whether convolutions of 3 x 3 may be filtered minimally, which loses some bits.
    choose
        What a tuner has found; by default estimates decide.
    progress
        Called with a few words before each layer.

    Raises
    ------
    CompileError
        If a node cannot be carried out, naming it.
    """
    builder = _Builder(
        graph=graph,
        capability=capability,
        choose=choose,
        winograd=winograd,
        halves=_stored_as_half(graph) if half else frozenset(),
    )
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
        results={name: _as_declared(graph.tensors[name]) for name in graph.outputs},
        launches=tuple(builder.launches),
        source=kernel_source(kernels, dialect),
    )


def layers_of(graph: Graph, *, half: bool = False) -> dict[str, Layer]:
    """Return the different layers of a graph, each under the name of its first node."""
    found: dict[Layer, str] = {}
    halves = _stored_as_half(graph) if half else frozenset()
    for group in group_nodes(graph):
        if not isinstance(group.anchor.op, Reshape):
            found.setdefault(layer_of(graph, group, halves), group.anchor.name)
    return {name: layer for layer, name in found.items()}


def _stored_as_half(graph: Graph) -> frozenset[str]:
    """Return the tensors of real numbers but inputs, outputs and vectors of parameters."""
    vectors = {name for name, values in graph.constants.items() if values.ndim < 2}
    kept = {*graph.inputs, *graph.outputs, *vectors}
    real = (name for name, one in graph.tensors.items() if one.dtype is DataType.FLOAT32)
    halves = {name for name in real if name not in kept}
    for node in graph.nodes:
        if isinstance(node.op, Reshape) and node.inputs[0] not in graph.constants:
            # A view lies where its source does, in the source's type.
            halves.discard(node.outputs[0])
            halves |= set(node.outputs) if node.inputs[0] in halves else set()
    return frozenset(halves)


def _as_declared(tensor: GraphTensor) -> DeviceTensor:
    return DeviceTensor(name=tensor.name, shape=tensor.shape, dtype=ScalarType(tensor.dtype.value))


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Collects the parts of a program, one group after the other."""

    graph: Graph
    capability: Capability
    choose: Chooser
    winograd: bool
    halves: frozenset[str]
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
        layer = layer_of(self.graph, group, self.halves)
        if layer not in self._lowered:
            name = f"layer{len(self._lowered)}_{_readable(type(group.anchor.op).__name__)}"
            self._lowered[layer] = self._lower(layer, name)
        self._add_launches(group, layer, self._lowered[layer])

    def _lower(self, layer: Layer, name: str) -> LoweredLayer:
        """Lower a layer by its choice, or the next one whose kernels fit the device."""
        choices = choices_of(layer, self.capability, winograd=self.winograd)
        chosen = self.choose(layer, choices)
        others = tuple(choice for choice in choices if choice != chosen)
        for choice in (chosen, *others):
            lowered = lower_layer(layer, choice, self.capability, name)
            if all(fits(one, self.capability) for one in lowered.kernels.kernels):
                break
        return lowered

    def _add_launches(self, group: Group, layer: Layer, lowered: LoweredLayer) -> None:
        places = {
            own: self._operand(name) for own, name in zip(layer.inputs, group.inputs, strict=True)
        }
        self.add_tensor(group.output, group.output)
        (result,) = lowered.kernels.outputs
        places[result.name] = group.output
        for own, packed in lowered.packed.items():
            name = group.inputs[layer.inputs.index(own)]
            places[packed.buffer] = self._packed(name, packed)
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
        dtype = ScalarType.FLOAT16 if source in self.halves else ScalarType(tensor.dtype.value)
        self.tensors[name] = DeviceTensor(name=name, shape=tensor.shape, dtype=dtype)

    def _operand(self, name: str) -> str:
        if name in self.graph.constants:
            self.add_tensor(name, name)
            self.constants[name] = self._values(name)
        return self.aliases.get(name, name)

    def _values(self, name: str) -> Array:
        """Return a constant in the type that it has in memory."""
        values = self.graph.constants[name]
        return values.astype(np.float16) if name in self.halves else values

    def _packed(self, name: str, packed: PackedWeights) -> str:
        stored = f"{name} {packed.suffix}"
        if stored not in self.constants:
            self.constants[stored] = packed.pack(self._values(name))
            dtype = ScalarType(str(self.constants[stored].dtype))
            self.tensors[stored] = DeviceTensor(name=stored, shape=packed.extents, dtype=dtype)
        return stored

    def _temporary(self, group: Group, temporary: Tensor) -> str:
        name = f"{group.output} {temporary.name}"
        self.tensors[name] = DeviceTensor(name=name, shape=temporary.shape, dtype=temporary.dtype)
        return name


def _readable(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
