"""Shape of the transfers of `Load` and `Store`: the bursts of their rows and the steps of each.

What matters for timing is where rows begin within a burst, not where they lie in memory, so the
shapes of a whole network are few and are made once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import Load, Store
from tilewright.isa.memories import Memory
from tilewright.isa.timing import cycles_per_entry


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transfer:
    """All bursts of one instruction, in order: consecutive beats of one row each."""

    #: Per burst the padding entries that are written before its data; none for a store.
    paddings: tuple[int, ...]
    #: Per burst the beats on the port.
    beats: tuple[int, ...]
    #: Per burst the cycles in which its data moves between data buffer and scratchpad.
    data_steps: tuple[int, ...]
    #: Padding entries after the last burst.
    padding_after: int
    #: Bytes that are moved.
    data_bytes: int
    #: Steps of all data and padding.
    steps: int


#: Everything that decides the bursts of a transfer: address and strides modulo the longest burst.
TransferKey: TypeAlias = tuple[int, ...]


def load_key(load: Load, config: AcceleratorConfig) -> TransferKey:
    """Reduce a load to what decides its bursts."""
    length = config.burst_bytes
    return (
        load.memory,
        load.address % length,
        load.entries,
        load.rows,
        load.planes,
        load.row_stride % length,
        load.plane_stride % length,
        load.pad_left,
        load.pad_right,
        load.pad_top,
        load.pad_bottom,
    )


def store_key(store: Store, config: AcceleratorConfig) -> TransferKey:
    """Reduce a store to what decides its bursts."""
    length = config.burst_bytes
    return (
        Memory.OUT,
        store.address % length,
        store.entries,
        store.rows,
        store.planes,
        store.row_stride % length,
        store.plane_stride % length,
        *(0, 0, 0, 0),
    )


def make_transfer(key: TransferKey, config: AcceleratorConfig) -> Transfer:
    """Cut the rows of a transfer into bursts."""
    memory, address, entries, rows, planes, row_stride, plane_stride, *pads = key
    left, right, top, bottom = pads
    width = left + entries + right
    beats_per_entry, entries_per_beat = cycles_per_entry(Memory(memory), config)
    entry_bytes = beats_per_entry * config.port_bytes // entries_per_beat
    paddings: list[int] = []
    bursts: list[tuple[int, int]] = []
    cuts: dict[int, list[tuple[int, int]]] = {}
    padding = 0
    for plane in range(planes):
        padding += top * width
        for row in range(rows):
            padding += left
            begin = (address + plane * plane_stride + row * row_stride) % config.burst_bytes
            if begin not in cuts:
                cuts[begin] = [*_row_bursts(begin, entries * entry_bytes, entry_bytes, config)]
            for burst in cuts[begin]:
                bursts.append(burst)
                paddings.append(padding)
                padding = 0
            padding += right
        padding += bottom * width
    data_steps = tuple(steps for _, steps in bursts)
    return Transfer(
        paddings=tuple(paddings),
        beats=tuple(beats for beats, _ in bursts),
        data_steps=data_steps,
        padding_after=padding,
        data_bytes=planes * rows * entries * entry_bytes,
        steps=sum(paddings) + sum(data_steps) + padding,
    )


def _row_bursts(
    begin: int, size: int, entry_bytes: int, config: AcceleratorConfig
) -> Iterator[tuple[int, int]]:
    """Beats and steps of each burst of a row: cut at every multiple of the longest burst."""
    length, beat = config.burst_bytes, config.port_bytes
    end = begin + size
    while begin < end:
        cut = min(end, begin - begin % length + length)
        beats = -(-cut // beat) - begin // beat
        yield beats, max(beats, (cut - begin) // entry_bytes)
        begin = cut
