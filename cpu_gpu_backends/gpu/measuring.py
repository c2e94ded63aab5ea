"""Times of kernels on a GPU, by the clock of the host: so many launches that its steps vanish."""

import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from tilewright.cpu_gpu_backends.gpu.device import Buffer, KernelDevice
from tilewright.cpu_gpu_backends.gpu.lowering import LoweredLayer
from tilewright.cpu_gpu_backends.gpu.source import kernel_source
from tilewright.cpu_gpu_backends.turns import Timed, Times

#: Nanoseconds that a measurement lasts at least.
_MEASURED_NANOSECONDS = 2e6


class LoadedLayer:
    """The kernels of a layer on a device; what they compute on is zero."""

    def __init__(self, lowered: LoweredLayer, device: KernelDevice) -> None:
        kernels = lowered.kernels.kernels
        loaded = device.load(kernels, kernel_source(kernels, device.dialect))
        self._buffers: dict[str, Buffer] = {}
        with ExitStack() as stack:
            stack.callback(self.close)
            for parameter in (parameter for kernel in kernels for parameter in kernel.parameters):
                tensor = parameter.tensor
                if tensor.name not in self._buffers:
                    values = np.zeros(tensor.shape, tensor.dtype.numpy)
                    self._buffers[tensor.name] = device.allocate(max(1, values.nbytes))
                    device.upload(self._buffers[tensor.name], values)
            stack.pop_all()
        self._launches = [
            (function, [self._buffers[parameter.tensor.name] for parameter in kernel.parameters])
            for kernel, function in zip(kernels, loaded, strict=True)
        ]

    def launch(self) -> None:
        """Enqueue all launches."""
        for function, places in self._launches:
            function.launch(places)

    def close(self) -> None:
        """Give the device's memory back."""
        for buffer in self._buffers.values():
            buffer.release()


def timed(launch: Callable[[], None], device: KernelDevice) -> Timed:
    """Return what launches something repeatedly and tells the nanoseconds of one launch."""

    def run(times: int) -> float:
        start = time.perf_counter_ns()
        for _ in range(times):
            launch()
        device.synchronise()
        return (time.perf_counter_ns() - start) / times

    run(1)
    times = max(1, int(_MEASURED_NANOSECONDS / max(run(1), 1.0)))

    def measure() -> Times:
        return np.array([run(times)])

    return measure
