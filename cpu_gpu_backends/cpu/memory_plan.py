"""Places of buffers: constants one behind the other, the workspace reused where buffers die.

The scratch buffers of a chain lie one behind the other on the stack of each thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.compiler.memory_plan import Lifetime, plan_memory
from tilewright.cpu_gpu_backends.cpu.program import SLACK_BYTES, Buffer, CpuProgram, Home, Step

#: Buffers begin at a cache line.
ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlan:
    """Offsets in bytes, of constants within the constants and of other buffers in the workspace.

    `scratch_bytes` is what the chain with the most scratch buffers needs.
    """

    offsets: Mapping[str, int]
    workspace_bytes: int
    scratch_bytes: int
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
    scratch = [_scratch(program, step) for step in program.steps]
    return BufferPlan(
        offsets={
            **offsets,
            **workspace.offsets,
            **{k: v for part, _ in scratch for k, v in part.items()},
        },
        workspace_bytes=workspace.size_bytes,
        scratch_bytes=max((size for _, size in scratch), default=0),
        constant_bytes=constant_bytes,
    )


def _lifetimes(program: CpuProgram) -> list[Lifetime]:
    """Return, per workspace buffer, the first and the last step that uses it."""
    spans: dict[str, tuple[int, int]] = {}
    for position, step in enumerate(program.steps):
        for name in (*step.reads, *step.writes):
            if program.buffers[name].home is Home.WORKSPACE:
                spans[name] = (spans.get(name, (position, position))[0], position)
    return [
        Lifetime(name=name, size_bytes=_room(program.buffers[name]), first=first, last=last)
        for name, (first, last) in spans.items()
    ]


def _scratch(program: CpuProgram, step: Step) -> tuple[dict[str, int], int]:
    """Return the offsets of the scratch buffers of a step, and their size together."""
    offsets: dict[str, int] = {}
    size = 0
    for name in step.writes:
        if program.buffers[name].home is Home.SCRATCH:
            offsets[name] = size
            size += _room(program.buffers[name])
    return offsets, size


def _room(buffer: Buffer) -> int:
    return -(-(buffer.size_bytes + SLACK_BYTES) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
