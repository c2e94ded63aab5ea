"""Schedules chosen by measurement: each layer's choices run on the device, the fastest is kept.

What was found lies in a file of lines, one for each layer and device; later lines replace earlier
ones. Choices change time, never results.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tilewright.compiler.graph import Graph
from tilewright.cpu_gpu_backends.gpu.compile_graph import Chooser, layers_of
from tilewright.cpu_gpu_backends.gpu.device import Buffer, Capability, DeviceError, KernelDevice
from tilewright.cpu_gpu_backends.gpu.kernels import KernelError
from tilewright.cpu_gpu_backends.gpu.layers import Layer
from tilewright.cpu_gpu_backends.gpu.lowering import (
    Choice,
    LoweredLayer,
    choices_of,
    lower_layer,
)
from tilewright.cpu_gpu_backends.gpu.source import kernel_source
from tilewright.isa.cache_folder import cache_folder

#: Seconds that a measurement lasts at least, so that the clock's steps do not matter.
_MEASURED_SECONDS = 0.02
_REPETITIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The time of one choice for a layer."""

    choice: Choice
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedLayer:
    """What a layer took with its default choice, and with the best of those measured."""

    layer: str
    default: Measurement
    best: Measurement


def tuning_file() -> Path:
    """Return where measured choices are kept."""
    return cache_folder() / "gpu.tuning"


def layer_digest(layer: Layer, capability: Capability) -> str:
    """Return what identifies a layer on a device."""
    text = f"{capability.identity}\n{layer!r}"
    return hashlib.sha256(text.encode()).hexdigest()


def tuned_chooser(capability: Capability, path: Path | None = None) -> Chooser:
    """Return what takes the measured choice of a layer, or its default if there is none."""
    known = _read(path or tuning_file())

    def choose(layer: Layer, choices: tuple[Choice, ...]) -> Choice:
        wanted = known.get(layer_digest(layer, capability))
        return next((choice for choice in choices if _named(choice) == wanted), choices[0])

    return choose


def tune_graph(
    graph: Graph,
    device: KernelDevice,
    *,
    half: bool = False,
    budget: int = 16,
    path: Path | None = None,
    progress: Callable[[TunedLayer], None] | None = None,
) -> tuple[TunedLayer, ...]:
    """Measure up to `budget` choices of every layer of a graph, and keep the fastest ones.

    A choice that the device refuses is left out.

    Raises
    ------
    DeviceError
        If the device is lost, or cannot run the default choice of a layer.
    """
    found = []
    for name, layer in layers_of(graph, half=half).items():
        choices = choices_of(layer, device.capability)[:budget]
        measured = list(_measure_all(layer, choices, device))
        if not measured or measured[0].choice != choices[0]:
            raise DeviceError(f"{device.capability.name} cannot run the kernels of {name!r}")
        best = min(measured, key=lambda one: one.seconds)
        found.append(TunedLayer(layer=name, default=measured[0], best=best))
        _append(path or tuning_file(), layer_digest(layer, device.capability), best)
        if progress is not None:
            progress(found[-1])
    return tuple(found)


def _measure_all(
    layer: Layer, choices: tuple[Choice, ...], device: KernelDevice
) -> Iterator[Measurement]:
    for choice in choices:
        try:
            lowered = lower_layer(layer, choice, device.capability, "tuned")
            seconds = measure(lowered, device)
        except (KernelError, DeviceError):
            continue
        yield Measurement(choice=choice, seconds=seconds)


def measure(lowered: LoweredLayer, device: KernelDevice) -> float:
    """Return the seconds that a layer takes, the median of some; what it computes on is zero."""
    kernels = lowered.kernels.kernels
    loaded = device.load(kernels, kernel_source(kernels, device.dialect))
    buffers: dict[str, Buffer] = {}
    for kernel in kernels:
        for parameter in kernel.parameters:
            tensor = parameter.tensor
            if tensor.name not in buffers:
                values = np.zeros(tensor.shape, tensor.dtype.numpy)
                buffers[tensor.name] = device.allocate(max(1, values.nbytes))
                device.upload(buffers[tensor.name], values)
    arguments = [
        (function, [buffers[parameter.tensor.name] for parameter in kernel.parameters])
        for kernel, function in zip(kernels, loaded, strict=True)
    ]

    def run(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            for function, places in arguments:
                function.launch(places)
        device.synchronise()
        return time.perf_counter() - start

    run(1)
    times = max(1, int(_MEASURED_SECONDS / max(run(1), 1e-7)))
    seconds = sorted(run(times) / times for _ in range(_REPETITIONS))
    for buffer in buffers.values():
        buffer.release()
    return seconds[_REPETITIONS // 2]


def _named(choice: Choice) -> Mapping[str, object]:
    return {"kind": type(choice).__name__, **asdict(choice)}


def _append(path: Path, digest: str, best: Measurement) -> None:
    record = {"layer": digest, "seconds": best.seconds, "choice": _named(best.choice)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as error:
        raise DeviceError(f"cannot write {path}: {error.strerror}") from error


def _read(path: Path) -> dict[str, Mapping[str, object]]:
    """Return the choices of a file by layer; a line that is damaged counts for nothing."""
    known: dict[str, Mapping[str, object]] = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return known
    for line in lines:
        try:
            record = json.loads(line)
            known[record["layer"]] = record["choice"]
        except (ValueError, KeyError, TypeError):
            continue
    return known
