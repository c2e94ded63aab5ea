"""Schedules chosen by measurement: each layer by itself on the device, then the network."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tilewright.compiler.graph import Graph
from tilewright.compiler.tensor.printing import format_nest
from tilewright.compiler.tuning.measured import (
    USUAL,
    Description,
    NetworkTime,
    Space,
    network_digest,
)
from tilewright.compiler.tuning.store import TuningStore, Values
from tilewright.cpu_gpu_backends.choice_values import find_choice, values_of
from tilewright.cpu_gpu_backends.gpu.compile_graph import Chooser, compile_for_gpu, layers_of
from tilewright.cpu_gpu_backends.gpu.device import Capability, DeviceError, KernelDevice, fits
from tilewright.cpu_gpu_backends.gpu.layers import Layer
from tilewright.cpu_gpu_backends.gpu.lowering import (
    Choice,
    LoweredLayer,
    choices_of,
    lower_layer,
)
from tilewright.cpu_gpu_backends.gpu.measuring import LoadedLayer, timed
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.nest_features import nest_features
from tilewright.cpu_gpu_backends.turns import Timed, least_times
from tilewright.isa.errors import CompileError

#: Bytes that a thread loads and stores at once: the vectors of a GPU.
_VECTOR_BYTES = 16


def machine_digest(capability: Capability) -> str:
    """Return the digest of what the time of a choice depends on."""
    return hashlib.sha256(f"gpu\n{capability.identity}".encode()).hexdigest()[:32]


def layer_digest(layer: Layer) -> str:
    """Return the digest of a layer."""
    return hashlib.sha256(repr(layer).encode()).hexdigest()[:32]


def tuned_chooser(
    graph: Graph, capability: Capability, store: TuningStore | None, *, half: bool = False
) -> Chooser:
    """Return what takes, for a layer of a graph, what a store holds, or the default."""
    chosen: Mapping[str, Values] = {}
    machine = machine_digest(capability)
    if store is not None and store.kernels(machine):
        layers = [layer_digest(layer) for layer in layers_of(graph, half=half).values()]
        found = store.chosen(machine, network_digest(layers))
        chosen = {digest: choice.values for digest, choice in found.items()}
    return _chooser(chosen)


def _chooser(chosen: Mapping[str, Values]) -> Chooser:
    def choose(layer: Layer, choices: tuple[Choice, ...]) -> Choice:
        values = chosen.get(layer_digest(layer), USUAL) if chosen else USUAL
        return find_choice(choices, values) or choices[0]

    return choose


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpace:
    """The schedules of one layer."""

    layer: Layer
    capability: Capability
    name: str

    @property
    def digest(self) -> str:
        """The digest of the layer."""
        return layer_digest(self.layer)

    def choices(self) -> tuple[Values, ...]:
        """Return all choices but the default."""
        return tuple(map(values_of, choices_of(self.layer, self.capability)[1:]))

    def describe(self, choices: Sequence[Values]) -> list[Description | None]:
        """Return what the kernels of choices look like; None for those that the device has no
        room for.
        """
        return [self._description(values) for values in choices]

    def lowered(self, values: Values) -> LoweredLayer:
        """Return the kernels of a choice; the usual one is the first that fits the device."""
        choices = choices_of(self.layer, self.capability)
        if values != USUAL:
            choice = find_choice(choices, values)
            assert choice is not None, f"{values} is a choice for {self.name!r}"
            choices = (choice,)
        for choice in choices:
            lowered = lower_layer(self.layer, choice, self.capability, "tuned")
            if self._fits(lowered):
                break
        return lowered

    def _fits(self, lowered: LoweredLayer) -> bool:
        return all(fits(kernel, self.capability) for kernel in lowered.kernels.kernels)

    def _description(self, values: Values) -> Description | None:
        try:
            lowered = self.lowered(values)
        except CompileError:
            return None
        if not self._fits(lowered):
            return None
        return Description(
            features=nest_features(
                [lowered.nest], vector_bytes=_VECTOR_BYTES, workers=self.capability.units
            ),
            code=hashlib.sha256(format_nest(lowered.nest).encode()).hexdigest(),
        )


@dataclass(slots=True, kw_only=True)
class GpuTuning:
    """A graph on a device: what `tune_measured` works on."""

    graph: Graph
    device: KernelDevice
    #: Whether real numbers lie in memory as float16.
    half: bool = False

    @property
    def machine(self) -> str:
        """The digest of the device."""
        return machine_digest(self.device.capability)

    def spaces(self) -> list[Space]:
        """Return the layers of the graph, equal ones once."""
        capability = self.device.capability
        return [
            GpuSpace(layer=layer, capability=capability, name=name)
            for name, layer in layers_of(self.graph, half=self.half).items()
        ]

    def measure(self, space: Space, choices: Sequence[Values]) -> list[float | None]:
        """Return the nanoseconds of a layer alone, in turns; None where the device refuses it."""
        assert isinstance(space, GpuSpace), "the spaces are those that this target has returned"
        runs: dict[int, Timed] = {}
        with ExitStack() as stack:
            for place, values in enumerate(choices):
                try:
                    layer = LoadedLayer(space.lowered(values), self.device)
                    stack.callback(layer.close)
                    runs[place] = timed(layer.launch, self.device)
                except DeviceError:
                    continue
            times = dict(zip(runs, least_times(list(runs.values())), strict=True))
        return [float(times[place][0]) if place in times else None for place in range(len(choices))]

    def measure_networks(self, choices: Sequence[Mapping[str, Values]]) -> list[NetworkTime]:
        """Measure the network with choices, in turns; of single kernels nothing is known."""
        runs: list[Timed] = []
        with ExitStack() as stack:
            for chosen in choices:
                program = compile_for_gpu(
                    self.graph,
                    self.device.capability,
                    self.device.dialect,
                    half=self.half,
                    choose=_chooser(chosen),
                )
                model = GpuModel.load(program, self.device)
                stack.callback(model.close)
                runs.append(timed(model.launch, self.device))
            return [NetworkTime(total=float(times[0]), kernels={}) for times in least_times(runs)]
