"""Tuning by measurement, on a target whose times are made up: kernels, networks, files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tilewright.compiler.tuning.context import Progress
from tilewright.compiler.tuning.measured import (
    Description,
    MeasuredResult,
    NetworkTime,
    Space,
    tune_measured,
)
from tilewright.compiler.tuning.store import TuningStore, TuningWarning, Values

USUAL_TIME = 1000.0


@dataclass(frozen=True, kw_only=True)
class FakeSpace:
    """Ten choices, of which every second one becomes the code of the one before."""

    name: str

    @property
    def digest(self) -> str:
        return f"digest of {self.name}"

    def choices(self) -> tuple[Values, ...]:
        return tuple(("tile", number) for number in range(10))

    def describe(self, choices: Sequence[Values]) -> list[Description | None]:
        codes = [choice[1] // 2 if choice else -1 for choice in choices]
        return [Description(features=(float(code),), code=str(code)) for code in codes]


@dataclass(kw_only=True)
class FakeTarget:
    """Kernels get faster with the number of the choice; together, some get slower."""

    names: tuple[str, ...] = ("first", "second")
    #: Kernels whose choices are slow within the network.
    slow: tuple[str, ...] = ()
    #: How much slower the whole machine gets from one measurement to the next.
    drift: float = 1.0
    measured: list[tuple[str, Values]] = field(default_factory=list)
    _slowdown: float = 1.0

    @property
    def machine(self) -> str:
        return "a machine"

    def spaces(self) -> list[Space]:
        return [FakeSpace(name=name) for name in self.names]

    def measure(self, space: Space, choices: Sequence[Values]) -> list[float | None]:
        self._slowdown *= self.drift
        self.measured += [(space.name, values) for values in choices]
        return [self._slowdown * alone(values) for values in choices]

    def measure_networks(self, choices: Sequence[Mapping[str, Values]]) -> list[NetworkTime]:
        times = []
        for chosen in choices:
            kernels = {
                space.digest: 2 * USUAL_TIME
                if space.name in self.slow and chosen.get(space.digest)
                else alone(chosen.get(space.digest, ()))
                for space in self.spaces()
            }
            times.append(NetworkTime(total=sum(kernels.values()), kernels=kernels))
        return times


def alone(values: Values) -> float:
    return USUAL_TIME * (1 - 0.05 * (values[1] // 2)) if values else USUAL_TIME


def tune(target: FakeTarget, path: Path, *, budget: int = 8) -> MeasuredResult:
    return tune_measured(target, TuningStore(path), budget=budget, model=None)


def chosen(path: Path, names: Sequence[str] = ("first", "second")) -> dict[str, Values]:
    store = TuningStore(path)
    (network,) = store.networks("a machine")
    return {key: one.values for key, one in store.chosen("a machine", network).items()}


def test_the_fastest_choices_are_kept_and_used(tmp_path: Path) -> None:
    target = FakeTarget()
    result = tune(target, tmp_path / "cache")
    assert (result.problems, result.searched) == (2, 2)
    assert result.untuned_nanoseconds == 2000
    assert result.tuned_nanoseconds == 1600
    assert {values[1] for values in chosen(tmp_path / "cache").values()} == {8}
    # The same code is measured once.
    asked = [values for name, values in target.measured if name == "first" and values]
    assert len(asked) == len({values[1] // 2 for values in asked}) == 5


def test_times_count_relative_to_the_usual_choice_beside_them(tmp_path: Path) -> None:
    """A machine that gets slower from batch to batch does not change what is best."""
    tune(FakeTarget(drift=3.0), tmp_path / "cache", budget=4)
    tune(FakeTarget(drift=1.0), tmp_path / "other", budget=4)
    assert chosen(tmp_path / "cache") == chosen(tmp_path / "other")


def test_what_is_slow_in_the_network_is_not_chosen(tmp_path: Path) -> None:
    result = tune(FakeTarget(slow=("first",)), tmp_path / "cache")
    assert result.tuned_nanoseconds == 1800
    assert list(chosen(tmp_path / "cache")) == ["digest of second"]


def test_nothing_is_chosen_where_nothing_is_faster(tmp_path: Path) -> None:
    result = tune(FakeTarget(slow=("first", "second")), tmp_path / "cache")
    assert result.tuned_nanoseconds == result.untuned_nanoseconds
    assert chosen(tmp_path / "cache") == {}


class Interruption(Exception):
    """Stands for Ctrl-C."""


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "cache"

    def stop(progress: Progress) -> None:
        raise Interruption

    with pytest.raises(Interruption):
        tune_measured(FakeTarget(), TuningStore(path), budget=8, model=None, progress=stop)
    target = FakeTarget()
    result = tune(target, path)
    assert (result.problems, result.searched) == (2, 1)
    assert {name for name, _ in target.measured} == {"second"}
    again = FakeTarget()
    assert tune(again, path).searched == 0
    assert again.measured == []


def test_a_damaged_line_is_searched_again(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    tune(FakeTarget(), path)
    lines = path.read_text().splitlines()
    lines[1] = lines[1].replace("tile", "tily")
    path.write_text("\n".join(lines) + "\n")
    target = FakeTarget()
    with pytest.warns(TuningWarning, match="line 2 is damaged and not used"):
        result = tune_measured(target, TuningStore(path), budget=8, model=None)
    assert result.searched == 1
    assert {name for name, _ in target.measured} == {"first"}


def test_networks_that_were_not_tuned_use_what_saves_enough(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    tune(FakeTarget(), path)
    found = TuningStore(path).chosen("a machine", "another network")
    assert {one.values for one in found.values()} == {("tile", 8)}
    assert not TuningStore(path).chosen("another machine", "another network")
