"""A network for a GPU: launches in order, over buffers whose places are known before it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from tilewright.compiler.graph import Array
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.gpu.kernels import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTensor:
    """A tensor in a buffer of the device, row-major."""

    name: str
    shape: tuple[int, ...]
    dtype: ScalarType

    @property
    def size_bytes(self) -> int:
        """Size."""
        return prod(self.shape) * int(self.dtype.numpy.itemsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel applied to tensors, by name, in the order of its parameters."""

    layer: str
    kernel: Kernel
    tensors: tuple[str, ...]

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the tensors that it writes."""
        pairs = zip(self.kernel.parameters, self.tensors, strict=True)
        return tuple(name for parameter, name in pairs if parameter.written)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProgram:
    """A network as launches.

    Attributes
    ----------
    tensors
        Every tensor that lies on the device by name.
    inputs, outputs
        Names in the graph; an output may be another view of a tensor, which `aliases` tells.
    constants
        Values of the constant tensors.
    aliases
        For tensors of the graph that are views of others, the name of the one that exists.
    results
        The outputs as the graph declares them.
    source
        The text of all kernels.
    """

    name: str
    tensors: Mapping[str, DeviceTensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    aliases: Mapping[str, str]
    results: Mapping[str, DeviceTensor]
    launches: tuple[Launch, ...]
    source: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))
        object.__setattr__(self, "aliases", MappingProxyType(dict(self.aliases)))
        object.__setattr__(self, "results", MappingProxyType(dict(self.results)))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Every kernel once, in the order of its first launch."""
        return tuple({launch.kernel.name: launch.kernel for launch in self.launches}.values())

    def stored(self, name: str) -> str:
        """Return the name of the tensor that holds the values of tensor `name` of the graph."""
        return self.aliases.get(name, name)
