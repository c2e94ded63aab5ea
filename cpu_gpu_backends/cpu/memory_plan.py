"""Places of buffers: constants one behind the other, the workspace reused where buffers die."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.compiler.memory_plan import Lifetime, plan_memory
from tilewright.cpu_gpu_backends.cpu.program import SLACK_BYTES, Buffer, CpuProgram, Home

#: Buffers begin at a cache line.
ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlan:
    """Offsets in bytes, of constants within the constants and of other buffers in the workspace."""

    offsets: Mapping[str, int]
    workspace_bytes: int
    constant_bytes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", MappingProxyType(dict(self.offsets)))


def plan_buffers(program: CpuProgram) -> BufferPlan:
    """Give every buffer of `program` a place; those alive at the same time do not overlap."""
    offsets: dict[str, int] = {}
    constant_bytes = 0
    for buffer in program.buffers.values():
        if buffer.home is Home.CONSTANT:
            offsets[buffer.name] = constant_bytes
            constant_bytes += _room(buffer)
    workspace = plan_memory(_lifetimes(program), ALIGNMENT_BYTES)
    return BufferPlan(
        offsets={**offsets, **workspace.offsets},
        workspace_bytes=workspace.size_bytes,
        constant_bytes=constant_bytes,
    )


def _lifetimes(program: CpuProgram) -> list[Lifetime]:
    """Return, per workspace buffer, the first and the last kernel that uses it."""
    spans: dict[str, tuple[int, int]] = {}
    for position, kernel in enumerate(program.kernels):
        for name in (*kernel.reads, *kernel.writes):
            if program.buffers[name].home is Home.WORKSPACE:
                spans[name] = (spans.get(name, (position, position))[0], position)
    return [
        Lifetime(name=name, size_bytes=_room(program.buffers[name]), first=first, last=last)
        for name, (first, last) in spans.items()
    ]


def _room(buffer: Buffer) -> int:
    return -(-(buffer.size_bytes + SLACK_BYTES) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
