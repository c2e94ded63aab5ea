"""Allocation of scratchpad entries: rings that remember what is still on chip."""

from collections.abc import Hashable
from dataclasses import dataclass

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.memories import Memory, memory_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive entries of one scratchpad."""

    memory: Memory
    begin: int
    entries: int

    @property
    def end(self) -> int:
        """Index after the last entry."""
        return self.begin + self.entries


class Ring:
    """Entries of one scratchpad, handed out in a circle so that old contents live longest.

    A span stays resident under its key until the ring comes around; asking for a resident key
    again returns it without a new load. Overwriting a span is always legal for the program, since
    the tokens order the new load after the last use; holding several spans at once is not, which
    is what `pinned` is for.
    """

    def __init__(self, memory: Memory, config: AcceleratorConfig) -> None:
        self.memory = memory
        self.entries = memory_shape(memory, config).entries
        self._next = 0
        self._resident: dict[Hashable, Span] = {}

    def find(self, key: Hashable) -> Span | None:
        """Return the span that holds `key`, if it is still resident."""
        return self._resident.get(key)

    def allocate(self, key: Hashable, entries: int, pinned: tuple[Span, ...] = ()) -> Span:
        """Reserve `entries` consecutive entries for `key`, away from the `pinned` spans.

        Raises
        ------
        CompileError
            If they do not fit.
        """
        for begin in self._candidates(entries, pinned):
            span = Span(memory=self.memory, begin=begin, entries=entries)
            if not any(_overlap(span, other) for other in pinned if other.memory is self.memory):
                self._resident = {
                    name: other
                    for name, other in self._resident.items()
                    if not _overlap(span, other)
                }
                self._resident[key] = span
                self._next = span.end
                return span
        used = sum(span.entries for span in pinned if span.memory is self.memory)
        beside = f", of which {used} are in use" if used else ""
        raise CompileError(
            f"{entries} entries do not fit scratchpad {self.memory.name.lower()}"
            f" of {self.entries} entries{beside}"
        )

    def _candidates(self, entries: int, pinned: tuple[Span, ...]) -> list[int]:
        starts = [self._next, 0, *(span.end for span in pinned if span.memory is self.memory)]
        return [begin for begin in starts if begin + entries <= self.entries]


def _overlap(first: Span, second: Span) -> bool:
    return first.begin < second.end and second.begin < first.end
