"""Cross-engine hazards: every pair of conflicting accesses must be ordered, under any timing."""

from collections.abc import Sequence

import numpy as np

from tilewright.isa.accesses import ByteRanges, EntrySet
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import ProgramError
from tilewright.isa.happens_before import HappensBefore
from tilewright.isa.index_sets import Indices
from tilewright.isa.memories import Engine, Memory, MemoryShape, memory_shape


class LastUses:
    """Which instruction of each of two engines last used each unit of some storage.

    No storage of the machine is read by two engines or written by two, except `acc`, in which
    everything conflicts; so uses by different engines always conflict. Instructions of an engine
    finish in order, so it is enough to look at the last use.
    """

    def __init__(self, engines: Sequence[Engine], units: int, order: HappensBefore) -> None:
        self._order = order
        #: One more than the position in the engine, 0 where it has not used the unit.
        self._last = {engine: np.zeros(units, dtype=np.int32) for engine in engines}

    def use(self, position: int, engine: Engine, units: Indices) -> tuple[int, int] | None:
        """Note that an instruction uses some units.

        Returns the first unit whose last use by another engine is not certain to have finished
        when the instruction starts, and the program position of that use.
        """
        for other, last in self._last.items():
            if other is not engine:
                before = last[units]
                finished = self._order.finished(position, other)
                if before.max(initial=0) > finished:
                    late = int(np.argmax(before > finished))
                    return int(units[late]), self._order.of_engine[other][int(before[late]) - 1]
        self._last[engine][units] = self._order.engine_position[position] + 1
        return None


class ScratchpadHazards:
    """Checks the uses of all scratchpads in an order that agrees with the guaranteed one."""

    def __init__(self, config: AcceleratorConfig, order: HappensBefore) -> None:
        self._order = order
        self._shapes = {memory: memory_shape(memory, config) for memory in Memory}
        self._written = {
            memory: np.zeros(shape.entries, dtype=np.bool_)
            for memory, shape in self._shapes.items()
        }
        self._last_uses = {
            memory: LastUses(
                tuple({*shape.readers, *shape.writers}),
                shape.banks if _exclusive(shape) else shape.entries,
                order,
            )
            for memory, shape in self._shapes.items()
        }

    def read(self, position: int, engine: Engine, access: EntrySet) -> None:
        """Note a read; raises `ProgramError` where it races or the entry was never written."""
        written = self._written[access.memory][access.entries]
        if not written.all():
            entry = int(access.entries[int(np.argmin(written))])
            raise ProgramError(
                f"reads entry {entry} of {access.memory.name.lower()},"
                f" which nothing has written before"
            )
        self._use(position, engine, access, writes=False)

    def write(self, position: int, engine: Engine, access: EntrySet) -> None:
        """Note a write; raises `ProgramError` where it races."""
        self._use(position, engine, access, writes=True)
        self._written[access.memory][access.entries] = True

    def _use(self, position: int, engine: Engine, access: EntrySet, *, writes: bool) -> None:
        shape = self._shapes[access.memory]
        exclusive = _exclusive(shape)
        units = access.entries
        if exclusive:
            units = np.unique(units // (shape.entries // shape.banks))
        conflict = self._last_uses[access.memory].use(position, engine, units)
        if conflict is None:
            return
        unit, other = conflict
        verb, other_verb = ("writes", "reads") if writes else ("reads", "writes")
        if exclusive:
            verb = other_verb = "uses"
        raise ProgramError(
            f"{verb} {'bank' if exclusive else 'entry'} {unit} of {access.memory.name.lower()}"
            f" without waiting for {self._order.name(other)}, which {other_verb} it"
        )


class DramHazards:
    """Checks loads against stores, byte for byte; only bytes that are stored need a record."""

    def __init__(
        self, stored: Sequence[ByteRanges], config: AcceleratorConfig, order: HappensBefore
    ) -> None:
        self._order = order
        self._unit_bytes = _unit_bytes(config)
        self._starts, self._ends = _merged(stored)
        sizes = (self._ends - self._starts) // self._unit_bytes
        self._offsets = np.cumsum(sizes) - sizes
        self._last_uses = LastUses((Engine.LOAD, Engine.STORE), int(sizes.sum()), order)

    def use(self, position: int, engine: Engine, ranges: ByteRanges) -> None:
        """Note what a load reads or a store writes; raises `ProgramError` where it races."""
        addresses, units = self._units(ranges)
        conflict = self._last_uses.use(position, engine, units)
        if conflict is None:
            return
        unit, other = conflict
        verb, other_verb = ("reads", "writes") if engine is Engine.LOAD else ("writes", "reads")
        address = int(addresses[int(np.flatnonzero(units == unit)[0])])
        raise ProgramError(
            f"{verb} DRAM byte {address:#x} without waiting for"
            f" {self._order.name(other)}, which {other_verb} it"
        )

    def _units(self, ranges: ByteRanges) -> tuple[Indices, Indices]:
        """List the addresses and the record positions of the units in some ranges."""
        region = np.searchsorted(self._ends, ranges.starts, side="right")
        ends = ranges.starts + ranges.size_bytes
        touched = region < len(self._starts)
        touched[touched] = self._starts[region[touched]] < ends[touched]
        starts = ranges.starts[touched]
        steps = np.arange(0, ranges.size_bytes, self._unit_bytes)
        addresses = (starts[:, np.newaxis] + steps).ravel()
        region = np.searchsorted(self._starts, addresses, side="right") - 1
        recorded = (region >= 0) & (addresses < self._ends[region])
        addresses, region = addresses[recorded], region[recorded]
        offsets = (addresses - self._starts[region]) // self._unit_bytes
        return addresses, self._offsets[region] + offsets


def alignment_bytes(memory: Memory, config: AcceleratorConfig) -> int:
    """Alignment in DRAM of the rows of a scratchpad: an entry, or a beat if that is less."""
    return min(memory_shape(memory, config).entry_bytes, config.port_bytes)


def _unit_bytes(config: AcceleratorConfig) -> int:
    """Bytes that are always read or written together: the finest alignment, a power of two."""
    return min(alignment_bytes(memory, config) for memory in Memory)


def _exclusive(shape: MemoryShape) -> bool:
    """Whether a bank belongs to one engine at a time, whatever it does there."""
    return len(shape.writers) > 1


def _merged(ranges: Sequence[ByteRanges]) -> tuple[Indices, Indices]:
    """Merge ranges into disjoint ones in ascending order."""
    none = np.zeros(0, dtype=np.int64)
    starts = np.concatenate([none, *(item.starts for item in ranges)])
    ends = np.concatenate([none, *(item.starts + item.size_bytes for item in ranges)])
    ascending = np.argsort(starts)
    starts, ends = starts[ascending], np.maximum.accumulate(ends[ascending])
    begins = np.flatnonzero(starts[1:] > ends[:-1]) + 1
    if not starts.size:
        return starts, ends
    return starts[np.append(0, begins)], ends[np.append(begins, starts.size) - 1]
