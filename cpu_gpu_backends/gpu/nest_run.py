"""One loop nest on a device: compiled, run once, and its outputs."""

from collections.abc import Mapping

from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.statements import LoopNest
from tilewright.cpu_gpu_backends.gpu.binding import bind_nest
from tilewright.cpu_gpu_backends.gpu.device import Array, Buffer, KernelDevice, shape_bytes
from tilewright.cpu_gpu_backends.gpu.source import kernel_source


def run_nest(nest: LoopNest, inputs: Mapping[str, Array], device: KernelDevice) -> dict[str, Array]:
    """Do what `tilewright.compiler.tensor.interpret` does, on `device`.

    Raises
    ------
    KernelError, DeviceError
        If the nest makes no kernels, or the device cannot run them.
    """
    bound = bind_nest(nest, "nest")
    loaded = device.load(bound.kernels, kernel_source(bound.kernels, device.dialect))
    buffers: dict[Tensor, Buffer] = {}
    for tensor in (*bound.inputs, *bound.temporaries, *bound.outputs):
        buffers[tensor] = device.allocate(shape_bytes(tensor.shape, tensor.dtype.numpy))
    for tensor in bound.inputs:
        device.upload(buffers[tensor], inputs[tensor.name])
    for kernel, function in zip(bound.kernels, loaded, strict=True):
        function.launch([buffers[parameter.tensor] for parameter in kernel.parameters])
    return {
        tensor.name: device.download(buffers[tensor], tensor.dtype.numpy, tensor.shape)
        for tensor in bound.outputs
    }
