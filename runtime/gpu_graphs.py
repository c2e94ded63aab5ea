"""Graphs as kernels of a GPU, compiled when first run; devices are opened once for all models."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from tilewright.compiler.graph import Array, Graph
from tilewright.runtime.devices import Device
from tilewright.runtime.tuning import Tuning, TuningSource, open_store

if TYPE_CHECKING:
    from tilewright.cpu_gpu_backends.gpu.device import KernelDevice
    from tilewright.cpu_gpu_backends.gpu.model import GpuModel

#: A device has one queue: models take turns.
GPU_TURN = threading.RLock()


@cache
def open_gpu(device: Device) -> "KernelDevice":
    """Return the device behind ``opencl`` or ``cuda``.

    Raises
    ------
    DeviceError
        If there is none, or what drives it is not installed.
    """
    from tilewright.cpu_gpu_backends.gpu.cuda_device import open_cuda_device
    from tilewright.cpu_gpu_backends.gpu.opencl_device import OpenClDevice
    from tilewright.isa.cache_folder import cache_folder

    folder = cache_folder() / device.value
    if device is Device.CUDA:
        return open_cuda_device(folder)
    assert device is Device.OPENCL, f"{device} runs no kernels"
    return OpenClDevice(folder)


@dataclass(slots=True, eq=False)
class GpuGraphs:
    """The kernels of some graphs on some devices, by the tensors they compute."""

    #: Which tuned schedules to use.
    tuning: TuningSource = Tuning.CACHED
    _models: "dict[tuple[Device, bool, tuple[str, ...]], GpuModel]" = field(default_factory=dict)

    def prepare(self, graph: Graph, device: Device, *, half: bool = False) -> "GpuModel":
        """Compile `graph` for `device` unless that has been done, and return the result.

        With `half`, real numbers lie in memory as float16.

        Raises
        ------
        DeviceError
            If there is no such device, or it cannot hold the model.
        """
        from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
        from tilewright.cpu_gpu_backends.gpu.model import GpuModel
        from tilewright.cpu_gpu_backends.gpu.tuning import tuned_chooser

        key = (device, half, (*graph.inputs, "", *graph.outputs))
        with GPU_TURN:
            if key not in self._models:
                gpu = open_gpu(device)
                program = compile_for_gpu(
                    graph,
                    gpu.capability,
                    gpu.dialect,
                    half=half,
                    choose=tuned_chooser(graph, gpu.capability, open_store(self.tuning), half=half),
                )
                self._models[key] = GpuModel.load(program, gpu)
            return self._models[key]

    def run(
        self, graph: Graph, inputs: Mapping[str, Array], device: Device, *, half: bool = False
    ) -> dict[str, Array]:
        """Return the outputs of `graph` for arrays that fit its inputs."""
        model = self.prepare(graph, device, half=half)
        with GPU_TURN:
            return model.run(inputs)

    def run_layers(
        self, graph: Graph, inputs: Mapping[str, Array], device: Device
    ) -> dict[str, Array]:
        """Return the result of every group of operators that is computed together."""
        from tilewright.cpu_gpu_backends.gpu.fusion import group_nodes

        names = (group.output for group in group_nodes(graph))
        kept = replace(graph, outputs=tuple(dict.fromkeys((*graph.outputs, *names))))
        return self.run(kept, inputs, device)
