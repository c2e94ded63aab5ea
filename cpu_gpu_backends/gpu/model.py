"""A network on a device: compiled kernels, constants, one workspace; inputs in, outputs out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from typing_extensions import Self

from tilewright.compiler.graph import Array
from tilewright.compiler.memory_plan import Lifetime, MemoryPlan, plan_memory
from tilewright.cpu_gpu_backends.gpu.device import (
    PART_ALIGNMENT,
    Buffer,
    KernelDevice,
    LoadedKernel,
)
from tilewright.cpu_gpu_backends.gpu.program import GpuProgram


@dataclass(kw_only=True, eq=False)
class GpuModel:
    """A program that is ready to run; one run at a time."""

    program: GpuProgram
    device: KernelDevice
    plan: MemoryPlan
    _arena: Buffer
    _buffers: dict[str, Buffer]
    _kernels: dict[str, LoadedKernel]
    _repeat: Callable[[], None] | None = None

    @classmethod
    def load(cls, program: GpuProgram, device: KernelDevice) -> Self:
        """Compile the kernels, and put constants and workspace on the device.

        Raises
        ------
        DeviceError
            If the device refuses a kernel or has not enough memory.
        """
        kernels = program.kernels
        loaded = device.load(kernels, program.source)
        plan = plan_workspace(program)
        sizes = {name: tensor.size_bytes for name, tensor in program.tensors.items()}
        fixed = _plan(program, {name: (0, 0) for name in program.constants})
        arena = device.allocate(max(1, plan.size_bytes + fixed.size_bytes))
        buffers = {
            name: arena.part(base + offset, max(1, sizes[name]))
            for base, offsets in ((0, plan.offsets), (plan.size_bytes, fixed.offsets))
            for name, offset in offsets.items()
        }
        for name, values in program.constants.items():
            device.upload(buffers[name], values)
        names = (kernel.name for kernel in kernels)
        return cls(
            program=program,
            device=device,
            plan=plan,
            _arena=arena,
            _buffers=buffers,
            _kernels=dict(zip(names, loaded, strict=True)),
        )

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs for inputs of the graph's shapes and element types."""
        for name in self.program.inputs:
            self.device.upload(self._buffers[name], inputs[name])
        if self._repeat is None:
            self._repeat = self.device.record(self.launch)
        self._repeat()
        return {name: self._output(name) for name in self.program.outputs}

    def launch(self) -> None:
        """Enqueue all launches, inputs and outputs staying on the device."""
        for launch in self.program.launches:
            buffers = [self._buffers[name] for name in launch.tensors]
            self._kernels[launch.kernel.name].launch(buffers)

    def _output(self, name: str) -> Array:
        stored = self.program.tensors[self.program.stored(name)]
        result = self.program.results[name]
        buffer = self._buffers[stored.name]
        values = self.device.download(buffer, stored.dtype.numpy, result.shape)
        return values.astype(result.dtype.numpy, copy=False)

    def close(self) -> None:
        """Give the device's memory back."""
        for buffer in self._buffers.values():
            buffer.release()
        self._arena.release()


def plan_workspace(program: GpuProgram) -> MemoryPlan:
    """Give every tensor that is no constant a place; inputs and outputs live throughout."""
    lives: dict[str, tuple[int, int]] = {}
    last = len(program.launches)
    for step, launch in enumerate(program.launches):
        for name in launch.tensors:
            if name not in program.constants:
                lives[name] = (lives.get(name, (step, step))[0], step)
    for name in program.inputs:
        lives[name] = (0, last)
    for name in map(program.stored, program.outputs):
        if name not in program.constants:
            lives[name] = (0, last)
    return _plan(program, lives)


def _plan(program: GpuProgram, lives: Mapping[str, tuple[int, int]]) -> MemoryPlan:
    """Place tensors by the first and the last launch that use them; none is without a byte."""
    lifetimes = [
        Lifetime(
            name=name,
            size_bytes=max(1, program.tensors[name].size_bytes),
            first=first,
            last=last,
        )
        for name, (first, last) in lives.items()
    ]
    return plan_memory(lifetimes, PART_ALIGNMENT)
