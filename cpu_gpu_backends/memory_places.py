"""Places of tensors in one stretch of memory, reused where they are no longer read."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Life:
    """The first and the last step that use a tensor."""

    first: int
    last: int

    def meets(self, other: "Life") -> bool:
        """Whether both are there at some time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Offsets in bytes, and the size of everything together."""

    offsets: Mapping[str, int]
    size_bytes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", MappingProxyType(dict(self.offsets)))


def place_tensors(sizes: Mapping[str, int], lives: Mapping[str, Life], alignment: int) -> Places:
    """Give each tensor a place where none overlaps another that lives at the same time."""
    offsets: dict[str, int] = {}
    rooms: dict[str, int] = {}
    # The largest first: small ones fit into the gaps that are left.
    for name in sorted(lives, key=lambda name: (-sizes[name], name)):
        room = -(-max(sizes[name], 1) // alignment) * alignment
        busy = sorted(
            (offsets[other], offsets[other] + rooms[other])
            for other in offsets
            if lives[other].meets(lives[name])
        )
        offset = 0
        for begin, end in busy:
            if offset + room <= begin:
                break
            offset = max(offset, end)
        offsets[name], rooms[name] = offset, room
    size = max((offsets[name] + rooms[name] for name in offsets), default=0)
    return Places(offsets=offsets, size_bytes=size)
