"""Places of buffers: constants one behind the other, the workspace reused where buffers die."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.cpu_gpu_backends.cpu.program import SLACK_BYTES, Buffer, CpuProgram, Home
from tilewright.cpu_gpu_backends.memory_places import Life, place_tensors

#: Buffers begin at a cache line.
ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Offsets in bytes, of constants within the constants and of other buffers in the workspace."""

    offsets: Mapping[str, int]
    workspace_bytes: int
    constant_bytes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", MappingProxyType(dict(self.offsets)))


def plan_memory(program: CpuProgram) -> MemoryPlan:
    """Give every buffer of `program` a place; those alive at the same time do not overlap."""
    offsets: dict[str, int] = {}
    constant_bytes = 0
    for buffer in program.buffers.values():
        if buffer.home is Home.CONSTANT:
            offsets[buffer.name] = constant_bytes
            constant_bytes += _room(buffer)
    lives = _lives(program)
    sizes = {name: _room(program.buffers[name]) for name in lives}
    workspace = place_tensors(sizes, lives, ALIGNMENT_BYTES)
    return MemoryPlan(
        offsets={**offsets, **workspace.offsets},
        workspace_bytes=workspace.size_bytes,
        constant_bytes=constant_bytes,
    )


def _lives(program: CpuProgram) -> dict[str, Life]:
    """Return, per workspace buffer, the first and the last kernel that uses it."""
    lives: dict[str, Life] = {}
    for position, kernel in enumerate(program.kernels):
        for name in (*kernel.reads, *kernel.writes):
            if program.buffers[name].home is Home.WORKSPACE:
                lives[name] = Life(lives.get(name, Life(position, position)).first, position)
    return lives


def _room(buffer: Buffer) -> int:
    return -(-(buffer.size_bytes + SLACK_BYTES) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
