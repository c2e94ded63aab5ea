"""Static placement of tensors in one stretch of memory, reused where they are not needed."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """Size of a tensor and the first and last step (by number) between which it must be kept."""

    name: str
    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Offsets of tensors in one arena."""

    offsets: dict[str, int]
    size_bytes: int


def plan_memory(lifetimes: Sequence[Lifetime], alignment: int) -> MemoryPlan:
    """Place tensors, the largest first, each at the lowest offset free during its lifetime."""
    placed: list[tuple[Lifetime, int]] = []
    offsets: dict[str, int] = {}
    size = 0
    for tensor in sorted(lifetimes, key=lambda one: (-one.size_bytes, one.first, one.name)):
        taken = sorted(
            (offset, offset + other.size_bytes)
            for other, offset in placed
            if other.first <= tensor.last and tensor.first <= other.last
        )
        offset = 0
        for begin, end in taken:
            if offset + tensor.size_bytes <= begin:
                break
            offset = max(offset, -(-end // alignment) * alignment)
        placed.append((tensor, offset))
        offsets[tensor.name] = offset
        size = max(size, offset + tensor.size_bytes)
    return MemoryPlan(offsets=offsets, size_bytes=-(-size // alignment) * alignment)
