"""Programs of the self-test: copies of memory, and chains and streams of transfers to be timed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import encode_uop, instruction_bytes
from tilewright.isa.instructions import (
    AnyInstruction,
    Finish,
    Load,
    Store,
    Vector,
    VectorLoop,
    VectorOperation,
    VectorUop,
)
from tilewright.isa.memories import Engine, Memory, memory_shape
from tilewright.isa.program import Program, Segment, code_alignment_bytes

#: The micro-op that passes an entry of `vec` on lies at address 0; code and data have whole pages.
PAGE_BYTES = 4096
#: Pages that a chain goes through, so that the memory does not find each row still open.
_CHAIN_PAGES = 4
#: What streams of loads fill: its entries are the widest, so that the memory is the bottleneck.
STREAMED = Memory.WGT
_LOAD_UOP = Load(memory=Memory.VUOP, dst=0, address=0, entries=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Entries of `vec` that are copied from one place in DRAM to another."""

    source: int
    target: int
    entries: int


def piece_entries(config: AcceleratorConfig) -> int:
    """Entries that one piece may have."""
    return min(config.vec_entries, config.out_entries, 1 << 8)


def unit_bytes(config: AcceleratorConfig) -> int:
    """What the sources and targets of pieces are aligned to."""
    return min(memory_shape(Memory.VEC, config).entry_bytes, config.port_bytes)


def copy_program(
    config: AcceleratorConfig, pieces: Sequence[Piece], *, code_address: int, dram_bytes: int
) -> Program:
    """Copy pieces one after the other: load, vector engine, store."""
    body: list[AnyInstruction] = [_LOAD_UOP]
    for number, piece in enumerate(pieces):
        count, last = piece.entries, number == len(pieces) - 1
        load = Load(memory=Memory.VEC, dst=0, address=piece.source, entries=count)
        store = Store(src=0, address=piece.target, entries=count)
        body += [
            replace(load, wait=0 if number == 0 else _to(Engine.STORE), signal=_to(Engine.VECTOR)),
            replace(_pass_on(count), wait=_to(Engine.LOAD), signal=_to(Engine.STORE)),
            replace(store, wait=_to(Engine.VECTOR), signal=0 if last else _to(Engine.LOAD)),
        ]
    return _program(config, body, code_address=code_address, dram_bytes=dram_bytes)


def code_bytes(config: AcceleratorConfig, pieces: int) -> int:
    """Bytes of the code of that many pieces, whole pages."""
    return _pages((2 + 3 * pieces) * instruction_bytes(config))


def empty_program(config: AcceleratorConfig) -> Program:
    """Do nothing: what a start costs."""
    return _own_program(config, [])


def load_chain(config: AcceleratorConfig, length: int) -> Program:
    """Load single entries, each after the one before has arrived."""
    place = _data_address(config, 1 + 2 * length)
    body: list[AnyInstruction] = [_LOAD_UOP]
    for number in range(length):
        first, last = number == 0, number == length - 1
        address = place + number % _CHAIN_PAGES * PAGE_BYTES
        load = Load(memory=Memory.VEC, dst=0, address=address, entries=1)
        wait = 0 if first else _to(Engine.VECTOR)
        body.append(replace(load, wait=wait, signal=_to(Engine.VECTOR)))
        answer = 0 if last else _to(Engine.LOAD)
        body.append(replace(_pass_on(1), wait=_to(Engine.LOAD), signal=answer))
    return _own_program(config, body)


def store_chain(config: AcceleratorConfig, length: int) -> Program:
    """Store single entries, each after the one before has been answered."""
    place = _data_address(config, 2 + 2 * length)
    body: list[AnyInstruction] = [
        _LOAD_UOP,
        Load(memory=Memory.VEC, dst=0, address=place, entries=1, signal=_to(Engine.VECTOR)),
    ]
    for number in range(length):
        first, last = number == 0, number == length - 1
        wait = _to(Engine.LOAD) if first else _to(Engine.STORE)
        body.append(replace(_pass_on(1), wait=wait, signal=_to(Engine.STORE)))
        answer = 0 if last else _to(Engine.VECTOR)
        address = place + (1 + number % (_CHAIN_PAGES - 1)) * PAGE_BYTES
        store = Store(src=0, address=address, entries=1)
        body.append(replace(store, wait=_to(Engine.VECTOR), signal=answer))
    return _own_program(config, body)


def stream_program(config: AcceleratorConfig, *, loads: int, stores: int) -> Program:
    """Move as much as a scratchpad holds, several times, by load and store side by side."""
    place = _data_address(config, 3 + loads + stores)
    entries = stream_entries(Memory.OUT, config)
    body: list[AnyInstruction] = []
    if stores:
        first = Load(memory=Memory.VEC, dst=0, address=place, entries=1, signal=_to(Engine.VECTOR))
        fill = _pass_on(entries, source_step=0)
        body = [_LOAD_UOP, first, replace(fill, wait=_to(Engine.LOAD), signal=_to(Engine.STORE))]
    target = place + _pages(stream_bytes(STREAMED, config))
    many = stream_entries(STREAMED, config)
    for number in range(max(loads, stores)):
        if number < loads:
            body.append(Load(memory=STREAMED, dst=0, address=place, entries=many))
        if number < stores:
            wait = _to(Engine.VECTOR) if number == 0 else 0
            body.append(Store(src=0, address=target, entries=entries, wait=wait))
    return _own_program(config, body)


def stream_entries(memory: Memory, config: AcceleratorConfig) -> int:
    """Entries of one transfer of `stream_program`: whole bursts, and no more than fit."""
    shape = memory_shape(memory, config)
    most = min(shape.entries, (1 << 12) - 1, 64 * config.burst_bytes // shape.entry_bytes)
    whole = max(1, config.burst_bytes // shape.entry_bytes)
    return max(1, most // whole * whole if most >= whole else most)


def stream_bytes(memory: Memory, config: AcceleratorConfig) -> int:
    """Bytes of one transfer of `stream_program`."""
    return stream_entries(memory, config) * memory_shape(memory, config).entry_bytes


def _pass_on(entries: int, *, source_step: int = 1) -> Vector:
    """Copy entries from `vec` to `out`."""
    loop = VectorLoop(extent=entries, dst=1, src=source_step)
    return Vector(operation=VectorOperation.SUM, loops=(VectorLoop(), VectorLoop(), loop))


def _to(engine: Engine) -> int:
    return 1 << engine


def _data_address(config: AcceleratorConfig, instructions: int) -> int:
    """First page after the code."""
    return PAGE_BYTES + _pages((instructions + 4) * instruction_bytes(config))


def _own_program(config: AcceleratorConfig, body: Sequence[AnyInstruction]) -> Program:
    """Make a program whose data lies behind its code."""
    data = sum(_pages(stream_bytes(memory, config)) for memory in (STREAMED, Memory.OUT))
    end = _data_address(config, len(body)) + max(data, _CHAIN_PAGES * PAGE_BYTES)
    return _program(config, body, code_address=PAGE_BYTES, dram_bytes=end)


def _program(
    config: AcceleratorConfig,
    body: Sequence[AnyInstruction],
    *,
    code_address: int,
    dram_bytes: int,
) -> Program:
    alignment = code_alignment_bytes(config)
    uop = encode_uop(VectorUop(), config)
    return Program(
        config=config,
        instructions=(*body, Finish()),
        code_address=-(-code_address // alignment) * alignment,
        constants=(Segment(address=0, data=uop),),
        dram_bytes=dram_bytes,
    )


def _pages(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES
