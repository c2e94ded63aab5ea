"""Checks of the self-test: memory patterns, instructions and a network against definitions."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.evaluate import evaluate
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import TilewrightError
from tilewright.isa.instructions import (
    Finish,
    Gemm,
    Load,
    Opcode,
    Store,
    Vector,
    VectorOperation,
    VectorTarget,
)
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.program import Program
from tilewright.isa.semantics import MachineState, execute
from tilewright.runtime.board_machine import Bytes, Machine, Patch, Region
from tilewright.runtime.execution import execute_steps
from tilewright.runtime.selftest_network import network_input, small_network
from tilewright.runtime.selftest_programs import (
    PAGE_BYTES,
    Piece,
    code_bytes,
    copy_program,
    piece_entries,
    unit_bytes,
)
from tilewright.runtime.selftest_report import Check, Failure, Verdict
from tilewright.sim.random_programs import random_program

_SEED = 812
#: Memory that the address lines are tried in.
_SPAN_BYTES = 1 << 24
#: Memory that a random program needs.
_RANDOM_BYTES = 1 << 17
_RANDOM_INSTRUCTIONS, _MOST_PROGRAMS = 40, 40
_PIECES = 48


def run_check(name: str, check: Callable[[], str]) -> Check:
    """Do a check, which says what it has tried or raises what it has found."""
    try:
        return Check(name=name, verdict=Verdict.PASSED, detail=check())
    except TilewrightError as error:
        return Check(name=name, verdict=Verdict.FAILED, detail=str(error))


def skip_check(name: str, reason: str) -> Check:
    """Leave a check out."""
    return Check(name=name, verdict=Verdict.SKIPPED, detail=reason)


def check_data_lines(machine: Machine, config: AcceleratorConfig) -> str:
    """Copy beats with one bit set and with one bit clear."""
    bits = config.port_bits
    ones = np.zeros((bits, config.port_bytes), np.uint8)
    ones[np.arange(bits), np.arange(bits) // 8] = 1 << np.arange(bits) % 8
    data = np.concatenate([ones, ~ones]).reshape(-1)
    entry = config.lane_entry_bytes
    data = np.pad(data, (0, -data.size % entry))
    count, most = data.size // entry, piece_entries(config)
    pieces = [(first, min(most, count - first)) for first in range(0, count, most)]
    source = PAGE_BYTES + code_bytes(config, len(pieces))
    target = source + _pages(data.size)
    program = copy_program(
        config,
        [
            Piece(source=source + first * entry, target=target + first * entry, entries=entries)
            for first, entries in pieces
        ],
        code_address=PAGE_BYTES,
        dram_bytes=target + _pages(data.size),
    )
    (got,) = machine.run(
        program,
        [Patch(address=source, data=data)],
        [Region(address=target, size_bytes=data.size)],
    ).regions
    _compare(got, data, target)
    return f"one bit set and one bit clear on each of {bits} lines"


def check_address_lines(machine: Machine, config: AcceleratorConfig) -> str:
    """Copy entries from, and then to, addresses that differ from a common one in one bit each."""
    entry = config.lane_entry_bytes
    span = min(config.dram.size_bytes, _SPAN_BYTES)
    base = 1 << (span.bit_length() - 2)
    lines = range((entry - 1).bit_length(), base.bit_length() - 1)
    far = [base, *(base + (1 << line) for line in lines)]
    near = PAGE_BYTES + code_bytes(config, len(far))
    places = list(zip(far, range(near, near + len(far) * entry, entry), strict=True))
    reads = [Piece(source=away, target=here, entries=1) for away, here in places]
    writes = [Piece(source=here, target=away, entries=1) for away, here in places]
    for number, pieces in enumerate((reads, writes)):
        data = _random(len(pieces) * entry, seed=number).reshape(-1, entry)
        program = copy_program(
            config, pieces, code_address=PAGE_BYTES, dram_bytes=max(far) + PAGE_BYTES
        )
        patches = [
            Patch(address=piece.source, data=one) for piece, one in zip(pieces, data, strict=True)
        ]
        regions = [Region(address=piece.target, size_bytes=entry) for piece in pieces]
        got = machine.run(program, patches, regions).regions
        for piece, ours, expected in zip(pieces, got, data, strict=True):
            _compare(ours, expected, piece.target)
    return f"lines {lines[0]} to {lines[-1]}, read and written"


def check_transfers(machine: Machine, config: AcceleratorConfig) -> str:
    """Copy pieces of random sizes between random places, and see that nothing else changes."""
    rng, unit, entry = np.random.default_rng(_SEED), unit_bytes(config), config.lane_entry_bytes
    most = min(piece_entries(config), max(2, 2 * config.burst_bytes // entry))
    source = PAGE_BYTES + code_bytes(config, _PIECES)
    room = _pages(4 * most * entry)
    data = _random(room)
    target, place = source + room, 0
    pieces: list[Piece] = []
    expected = _random(room * 4, seed=1)
    before = expected.copy()
    while len(pieces) < _PIECES:
        count = int(rng.integers(1, most + 1))
        place += unit * int(rng.integers(0, 6))
        if place + count * entry > expected.size:
            break
        begin = unit * int(rng.integers(0, (room - count * entry) // unit + 1))
        expected[place : place + count * entry] = data[begin : begin + count * entry]
        pieces.append(Piece(source=source + begin, target=target + place, entries=count))
        place += count * entry
    program = copy_program(config, pieces, code_address=PAGE_BYTES, dram_bytes=target + before.size)
    (got,) = machine.run(
        program,
        [Patch(address=source, data=data), Patch(address=target, data=before)],
        [Region(address=target, size_bytes=before.size)],
    ).regions
    _compare(got, expected, target)
    return f"{len(pieces)} pieces of 1 to {most} entries at multiples of {unit} bytes"


def check_instructions(machine: Machine, config: AcceleratorConfig) -> str:
    """Run random programs until every instruction has been used in all its forms."""
    missing = set(_FORMS)
    for seed in range(_MOST_PROGRAMS):
        program = random_program(config, seed, size=_RANDOM_INSTRUCTIONS)
        whole = Region(address=0, size_bytes=program.dram_bytes)
        patch = _fill(program)
        (got,) = machine.run(program, patch, [whole]).regions
        try:
            _compare(got, _by_definition(program, patch), 0)
        except Failure as error:
            raise Failure(f"random program {seed}: {error}") from None
        missing.difference_update(form for item in program.instructions for form in _forms(item))
        if not missing:
            return f"{len(_FORMS)} forms of {len(Opcode)} instructions in {seed + 1} programs"
    raise Failure(f"no random program has {', '.join(sorted(missing))}")


def check_network(machine: Machine, config: AcceleratorConfig) -> str:
    """Run the small network and compare it with its integer graph."""
    graph, inputs = small_network(), network_input()
    compiled = compile_graph(graph, config)
    values = execute_steps(compiled, inputs, machine).values
    for name, expected in evaluate(graph, inputs).items():
        if name in graph.outputs and not np.array_equal(values[name], expected):
            wrong = int((values[name] != expected).sum())
            raise Failure(f"{wrong} of {expected.size} elements of the result are wrong")
    return f"{len(graph.nodes)} layers, equal to the integer graph"


def random_programs_fit(config: AcceleratorConfig) -> bool:
    """Whether `check_instructions` has room enough."""
    return (
        config.dram.size_bytes >= _RANDOM_BYTES and config.token_limit >= _RANDOM_INSTRUCTIONS + 20
    )


def _forms(item: Load | Gemm | Vector | Store | Finish) -> Iterator[str]:
    match item:
        case Load():
            yield f"load {item.memory.name.lower()}"
            if item.written_entries > item.planes * item.rows * item.entries:
                yield "load with padding"
        case Gemm():
            yield "gemm accumulate" if item.accumulate else "gemm overwrite"
        case Vector():
            yield f"vector {item.operation.name.lower()} to {item.target.name.lower()}"
            if item.requantise:
                yield "vector requantise"
            if item.lookup:
                yield "vector lookup"
        case Store():
            yield "store rows" if item.rows * item.planes > 1 else "store row"
        case Finish():
            yield "finish"


_FORMS = (
    *(f"load {memory.name.lower()}" for memory in Memory if memory not in (Memory.ACC, Memory.OUT)),
    *("load with padding", "gemm overwrite", "gemm accumulate"),
    *(
        f"vector {operation.name.lower()} to {target.name.lower()}"
        for operation in VectorOperation
        for target in VectorTarget
    ),
    *("vector requantise", "vector lookup", "store row", "store rows", "finish"),
)


def _fill(program: Program) -> list[Patch]:
    """Random bytes for all of DRAM that is neither code nor constants."""
    taken = [(program.code_address, program.code_bytes)]
    taken += [(segment.address, len(segment.data)) for segment in program.constants]
    patches, place = [], 0
    for begin, size in [*sorted(taken), (program.dram_bytes, 0)]:
        if begin > place:
            patches.append(Patch(address=place, data=_random(begin - place, seed=place)))
        place = begin + size
    return patches


def _by_definition(program: Program, patches: Sequence[Patch]) -> Bytes:
    """DRAM after the program by the semantics of its instructions, each when its tokens are there.

    In a legal program the order among those that have their tokens does not matter.
    """
    dram = program.initial_dram()
    for patch in patches:
        dram[patch.address : patch.address + patch.data.size] = patch.data
    state = MachineState(program.config, dram)
    queues = {
        engine: deque(item for item in program.instructions if item.engine is engine)
        for engine in Engine
    }
    tokens: Counter[tuple[Engine, Engine]] = Counter()
    while any(queues.values()):
        for engine, queue in queues.items():
            while queue and all(tokens[giver, engine] for giver in _engines(queue[0].wait)):
                item = queue.popleft()
                tokens.subtract((giver, engine) for giver in _engines(item.wait))
                execute(item, state)
                tokens.update((engine, taker) for taker in _engines(item.signal))
    return dram


def _engines(mask: int) -> list[Engine]:
    return [engine for engine in Engine if mask >> engine & 1]


def _compare(got: Bytes, expected: Bytes, address: int) -> None:
    wrong = np.flatnonzero(got != expected)
    if wrong.size:
        first = int(wrong[0])
        raise Failure(
            f"{wrong.size} of {expected.size} bytes are wrong, the first at"
            f" {address + first:#x}: {got[first]:#04x} instead of {expected[first]:#04x}"
        )


def _random(size: int, seed: int = 0) -> Bytes:
    return np.random.default_rng((_SEED, seed)).integers(0, 256, size, dtype=np.uint8)


def _pages(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES
