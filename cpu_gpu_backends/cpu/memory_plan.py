"""Places of buffers: constants one behind the other, the workspace reused where buffers die.

The scratch buffers of a chain lie one behind the other on the stack of each thread. Where the
workspace stays the program's own, borders are filled once: a buffer with one shares its place with
such buffers only that have the same border.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tilewright.compiler.memory_plan import Lifetime, plan_memory
from tilewright.compiler.tensor.printing import format_nest
from tilewright.cpu_gpu_backends.codegen.target import LINE_BYTES
from tilewright.cpu_gpu_backends.cpu.program import (
    SLACK_BYTES,
    Buffer,
    CpuProgram,
    Home,
    Kernel,
    Step,
    View,
)

#: Buffers begin at a cache line.
ALIGNMENT_BYTES = LINE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlan:
    """Offsets in bytes, of constants within the constants and of other buffers in the workspace.

    `scratch_bytes` is what the chain with the most scratch buffers needs. What `borders` fill
    stays from one run to the next.
    """

    offsets: Mapping[str, int]
    workspace_bytes: int
    scratch_bytes: int
    constant_bytes: int
    borders: tuple[Kernel, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", MappingProxyType(dict(self.offsets)))


def plan_buffers(program: CpuProgram, *, keeps_borders: bool = False) -> BufferPlan:
    """Give every buffer of `program` a place; those alive at the same time do not overlap.

    Parameters
    ----------
    keeps_borders
        Whether nobody but the program writes to the workspace, from its first run on.
    """
    offsets: dict[str, int] = {}
    constant_bytes = 0
    for buffer in program.buffers.values():
        if buffer.home is Home.CONSTANT:
            offsets[buffer.name] = constant_bytes
            constant_bytes += _room(buffer)
    borders = _kept_borders(program) if keeps_borders else {}
    lifetimes = _lifetimes(program)
    places = _shared_places(lifetimes, borders, len(program.steps))
    kept = {place.name: place for place in places.values()}
    others = [lifetime for lifetime in lifetimes if lifetime.name not in borders]
    workspace = plan_memory([*kept.values(), *others], ALIGNMENT_BYTES)
    scratch = [_scratch(program, step) for step in program.steps]
    return BufferPlan(
        offsets={
            **offsets,
            **workspace.offsets,
            **{name: workspace.offsets[place.name] for name, place in places.items()},
            **{k: v for part, _ in scratch for k, v in part.items()},
        },
        workspace_bytes=workspace.size_bytes,
        scratch_bytes=max((size for _, size in scratch), default=0),
        constant_bytes=constant_bytes,
        borders=tuple(kernel for kernels in borders.values() for kernel in kernels),
    )


def _kept_borders(program: CpuProgram) -> dict[str, list[Kernel]]:
    """Return the kernels that fill the border of each buffer in the workspace that has one."""
    borders: dict[str, list[Kernel]] = {}
    for step in program.steps:
        if isinstance(step, Kernel) and step.is_border:
            (name,) = step.writes
            if program.buffers[name].home is Home.WORKSPACE:
                borders.setdefault(name, []).append(step)
    return borders


def _shared_places(
    lifetimes: list[Lifetime], borders: Mapping[str, list[Kernel]], steps: int
) -> dict[str, Lifetime]:
    """Return the place of each buffer with a border, which lasts for all steps.

    Buffers that are not used at the same time share one if their borders are the same.
    """
    places: dict[str, Lifetime] = {}
    free_from: dict[tuple[object, ...], list[tuple[int, Lifetime]]] = {}
    for lifetime in sorted(lifetimes, key=lambda one: one.first):
        if lifetime.name not in borders:
            continue
        same = free_from.setdefault((lifetime.size_bytes, *map(_drawn, borders[lifetime.name])), [])
        found = next((one for one in same if one[0] < lifetime.first), None)
        if found is None:
            place = replace(lifetime, first=0, last=steps - 1)
        else:
            same.remove(found)
            place = found[1]
        same.append((lifetime.last, place))
        places[lifetime.name] = place
    return places


def _drawn(kernel: Kernel) -> tuple[str, View]:
    """Return what a kernel fills, wherever its buffer lies."""
    (view,) = kernel.views
    return format_nest(kernel.nest), replace(view, buffer="")


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
