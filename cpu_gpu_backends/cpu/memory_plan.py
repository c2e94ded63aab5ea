"""Places of buffers: constants one behind the other, the workspace reused where buffers die."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.cpu_gpu_backends.cpu.program import SLACK_BYTES, Buffer, CpuProgram, Home

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
    placed: list[tuple[int, int, tuple[int, int]]] = []
    # The largest first: small buffers fit into the gaps that are left.
    for name in sorted(lives, key=lambda name: (-program.buffers[name].size_bytes, name)):
        size, life = _room(program.buffers[name]), lives[name]
        busy = sorted((at, end) for at, end, other in placed if _meet(life, other))
        offset = 0
        for at, end in busy:
            if offset + size <= at:
                break
            offset = max(offset, end)
        offsets[name] = offset
        placed.append((offset, offset + size, life))
    workspace = max((end for _, end, _ in placed), default=0)
    return MemoryPlan(offsets=offsets, workspace_bytes=workspace, constant_bytes=constant_bytes)


def _lives(program: CpuProgram) -> dict[str, tuple[int, int]]:
    """Return, per workspace buffer, the first and the last kernel that uses it."""
    lives: dict[str, tuple[int, int]] = {}
    for position, kernel in enumerate(program.kernels):
        for name in (*kernel.reads, *kernel.writes):
            if program.buffers[name].home is Home.WORKSPACE:
                lives[name] = (lives.get(name, (position, position))[0], position)
    return lives


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _room(buffer: Buffer) -> int:
    return -(-(buffer.size_bytes + SLACK_BYTES) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
