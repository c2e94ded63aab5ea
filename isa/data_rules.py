"""Rules for data that is known before a program runs: micro-ops, parameters, constants, code."""

from collections.abc import Sequence

import numpy as np

from tilewright.isa.accesses import ByteRanges, EntrySet
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import Bytes, Values, decode_uops
from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import AnyUop, GemmUop, Load, VectorUop
from tilewright.isa.integers import MAX_SHIFT
from tilewright.isa.memories import PRM_CHANNEL_BYTES, Memory, memory_shape
from tilewright.isa.program import Program, Segment

#: The memories that hold micro-ops, and their class.
UOP_CLASSES: dict[Memory, type[AnyUop]] = {Memory.GUOP: GemmUop, Memory.VUOP: VectorUop}


class StaticData:
    """The regions of DRAM that no instruction of a program may write."""

    def __init__(self, program: Program) -> None:
        self._config = program.config
        segments = sorted(
            (item for item in program.constants if item.data), key=lambda item: item.address
        )
        self._segments: Sequence[Segment] = segments
        self._segment_starts = np.array([item.address for item in segments], dtype=np.int64)
        regions = [(item.address, item.address + len(item.data)) for item in segments]
        regions.append((program.code_address, program.code_address + program.code_bytes))
        self._starts, self._ends = np.array(sorted(regions), dtype=np.int64).T

    def overlap(self, ranges: ByteRanges) -> int | None:
        """Find the first byte of some ranges that belongs to the constants or the code."""
        region = np.searchsorted(self._ends, ranges.starts, side="right")
        inside = region < len(self._starts)
        first = self._starts[np.where(inside, region, 0)]
        hits = np.flatnonzero(inside & (first < ranges.starts + ranges.size_bytes))
        if not hits.size:
            return None
        return int(max(first[hits[0]], ranges.starts[hits[0]]))

    def loaded(self, load: Load, ranges: ByteRanges | None) -> Bytes | None:
        """Compute the entries that a load writes, or nothing where they are not all constant.

        Parameters
        ----------
        ranges
            What the load reads of DRAM, none if it only pads.

        Returns
        -------
        uint8 array of shape (written entries, bytes of an entry).
        """
        entry_bytes = memory_shape(load.memory, self._config).entry_bytes
        shape = (load.planes, load.pad_top + load.rows + load.pad_bottom, load.width, entry_bytes)
        result = np.full(shape, load.pad_value, dtype=np.int8).view(np.uint8)
        if ranges is not None:
            data = [self._read(int(start), ranges.size_bytes) for start in ranges.starts]
            if None in data:
                return None
            constant = b"".join(item for item in data if item is not None)
            result[
                :,
                load.pad_top : load.pad_top + load.rows,
                load.pad_left : load.pad_left + load.entries,
            ] = np.frombuffer(constant, dtype=np.uint8).reshape(
                load.planes, load.rows, load.entries, entry_bytes
            )
        return result.reshape(-1, entry_bytes)

    def _read(self, start: int, size: int) -> bytes | None:
        """Read constant bytes, from adjoining segments if need be."""
        result = b""
        while len(result) < size:
            position = start + len(result)
            index = int(np.searchsorted(self._segment_starts, position, side="right")) - 1
            if index < 0:
                return None
            segment = self._segments[index]
            offset = position - segment.address
            part = segment.data[offset : offset + size - len(result)]
            if not part:
                return None
            result += part
        return result


class LoadedUops:
    """Contents of `guop` or `vuop`, which must come from constants."""

    def __init__(self, memory: Memory, config: AcceleratorConfig) -> None:
        self._memory = memory
        self._config = config
        entries = memory_shape(memory, config).entries
        self._loaded = np.zeros(entries, dtype=np.bool_)
        self._values = np.zeros((entries, 3), dtype=np.int64)

    def load(self, written: EntrySet, data: Bytes | None) -> None:
        """Note what a load has brought; raises `ProgramError` where that is no constant."""
        if data is None:
            raise ProgramError(
                f"micro-ops must be loaded from constants of the program, so that what"
                f" {self._memory.name.lower()} holds is known before it runs"
            )
        self._loaded[written.entries] = True
        values = decode_uops(UOP_CLASSES[self._memory], data, self._config)
        self._values[written.entries] = values

    def of(self, entries: EntrySet) -> Values:
        """Return the micro-ops in some entries, as `decode_uops` does."""
        loaded = self._loaded[entries.entries]
        if not loaded.all():
            entry = int(entries.entries[int(np.argmin(loaded))])
            raise ProgramError(
                f"reads entry {entry} of {self._memory.name.lower()},"
                f" which nothing has written before"
            )
        return self._values[entries.entries]


def check_parameters(data: Bytes | None) -> None:
    """Check constant entries of `prm`; what a program computes itself is not known before."""
    if data is not None:
        shifts = data.reshape(-1, PRM_CHANNEL_BYTES)[:, -1]
        if shifts.size and shifts.max() > MAX_SHIFT:
            raise ProgramError(
                f"loads a requantisation shift of {shifts.max()}, more than {MAX_SHIFT}"
            )
