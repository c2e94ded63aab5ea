"""Tuning by measurement, for any target that runs kernels: each by itself, then the network."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tilewright.compiler.tuning.context import Progress
from tilewright.compiler.tuning.cost_model import CostModel
from tilewright.compiler.tuning.guided import Candidate, GuidedSearch, Measured
from tilewright.compiler.tuning.store import (
    KernelRecord,
    NetworkRecord,
    StoredChoice,
    TuningStore,
    Values,
)
from tilewright.isa.errors import CompileError

#: Choices that are kept for the network: the best ones, and the usual one.
KEPT = 4
#: Candidates that are described to the model, for each one that may be measured.
_DESCRIBED = 2
#: Share of its time that another choice must save a kernel within the network to be preferred.
_MARGIN = 0.01
#: What the usual choice is called: nothing is said, and rules decide.
USUAL: Values = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a candidate looks like to a model, and the code that it becomes."""

    features: tuple[float, ...]
    #: Equal for candidates that become the same code.
    code: str


class Space(Protocol):
    """The choices for some kernels; it travels to other processes."""

    @property
    def name(self) -> str:
        """How people know the kernels."""

    @property
    def digest(self) -> str:
        """The digest of all that their time depends on."""

    def choices(self) -> tuple[Values, ...]:
        """Return all choices but the usual one, more promising ones first."""

    def describe(self, choices: Sequence[Values]) -> list[Description | None]:
        """Return what choices look like; None for those that do not suit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTime:
    """Nanoseconds that a network takes, and those of its kernels by digest where they are known."""

    total: float
    kernels: Mapping[str, float]


class MeasuredTarget(Protocol):
    """What runs a network with choices, and measures."""

    @property
    def machine(self) -> str:
        """The digest of what runs kernels."""

    def spaces(self) -> Sequence[Space]:
        """Return what there is to choose in the network, equal kernels once."""

    def measure(self, space: Space, choices: Sequence[Values]) -> list[float | None]:
        """Return the nanoseconds of some choices, measured in turns; None for what cannot run."""

    def measure_networks(self, choices: Sequence[Mapping[str, Values]]) -> list[NetworkTime]:
        """Measure the network, in turns, with choices by the digest of kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredResult:
    """What tuning a network has brought."""

    #: Of the network as rules have it, and with what was chosen, measured in turns.
    untuned_nanoseconds: int
    tuned_nanoseconds: int
    #: Kernels that differ: all of them, and those that the files did not know.
    problems: int
    searched: int
    #: Candidates measured.
    measured: int


def network_digest(kernels: Sequence[str]) -> str:
    """Return the digest of a network by those of its kernels, in order."""
    return hashlib.sha256("\n".join(kernels).encode()).hexdigest()[:32]


def tune_measured(
    target: MeasuredTarget,
    store: TuningStore,
    *,
    budget: int,
    jobs: int = 1,
    seed: int = 0,
    model: CostModel | None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> MeasuredResult:
    """Fill the store with what is fastest for a network.

    Every finished kernel is kept at once, so that an interrupted run loses nothing. A kernel that
    was searched with at least this budget is not searched again.

    Parameters
    ----------
    budget
        Candidates measured per kernel.
    jobs
        Processes that describe candidates; they are measured one by one.
    model
        What chooses the candidates; without one, a simple order does.
    """
    spaces = target.spaces()
    unknown = [space for space in spaces if store.budget(target.machine, space.digest) < budget]
    search = GuidedSearch(model, seed)
    measured = 0
    for done, space in enumerate(unknown, 1):
        found = _search(target, space, search, budget=budget, jobs=jobs, seed=seed)
        measured += len(found)
        choices = _kept(found)
        store.add(
            KernelRecord(
                machine=target.machine, kernels=space.digest, choices=choices, budget=budget
            )
        )
        usual, best = choices[-1].cost / 1e3, choices[0].cost / 1e3
        text = f"{space.name}: {usual:,.2f} -> {best:,.2f} us"
        progress(Progress(phase="kernels", done=done, total=len(unknown), text=text))
    untuned, tuned = _tune_network(target, spaces, store, renew=bool(unknown))
    text = f"{untuned / 1e3:,.2f} -> {tuned / 1e3:,.2f} us"
    progress(Progress(phase="network", done=1, total=1, text=text))
    return MeasuredResult(
        untuned_nanoseconds=round(untuned),
        tuned_nanoseconds=round(tuned),
        problems=len(spaces),
        searched=len(unknown),
        measured=measured,
    )


def _search(
    target: MeasuredTarget,
    space: Space,
    search: GuidedSearch,
    *,
    budget: int,
    jobs: int,
    seed: int,
) -> list[Measured]:
    candidates = _described(space, _DESCRIBED * budget, jobs, seed)
    reference: list[float] = []

    def measure(batch: Sequence[Candidate]) -> list[float | None]:
        """Measure in turns with the usual choice, relative to which times count."""
        asked = [candidate.values for candidate in batch if candidate.values != USUAL]
        usual, *costs = target.measure(space, [USUAL, *asked])
        if usual is None:
            raise CompileError(f"the kernels of {space.name!r} cannot run")
        reference.append(usual)
        scaled = [None if cost is None else cost * reference[0] / usual for cost in costs]
        return [*([reference[0]] if len(asked) < len(batch) else []), *scaled]

    return search.search(candidates, measure, budget)


def _described(space: Space, most: int, jobs: int, seed: int) -> list[Candidate]:
    """Return the usual choice and, of the others that become different code, some at random."""
    # Imported late: compiling without tuning does not need it.
    from joblib import Parallel, delayed

    choices = space.choices()
    drawn = sorted(np.random.default_rng(seed).permutation(len(choices))[:most])
    asked = [USUAL, *(choices[place] for place in drawn)]
    parts = [asked[start::jobs] for start in range(jobs)]
    described: list[Description | None] = [None] * len(asked)
    results = Parallel(n_jobs=jobs)(delayed(space.describe)(part) for part in parts)
    for start, result in enumerate(results):
        described[start::jobs] = result
    if described[0] is None:
        raise CompileError(f"there is no code for the kernels of {space.name!r}")
    found: dict[str, Candidate] = {}
    for values, description in zip(asked, described, strict=True):
        if description is not None:
            candidate = Candidate(values=values, features=description.features)
            found.setdefault(description.code, candidate)
    return list(found.values())


def _kept(found: Sequence[Measured]) -> tuple[StoredChoice, ...]:
    """Return the best choices in order, and last the usual one."""
    ranked = sorted(found, key=lambda one: one.cost)
    return tuple(
        StoredChoice(cost=round(one.cost), values=one.candidate.values)
        for one in (*ranked[: KEPT - 1], found[0])
    )


def _tune_network(
    target: MeasuredTarget, spaces: Sequence[Space], store: TuningStore, *, renew: bool
) -> tuple[float, float]:
    """Choose between what was kept by times within the network; return these, untuned and tuned.

    What is chosen is never slower than nothing tuned, as measured in turns.
    """
    network = network_digest([space.digest for space in spaces])
    if not renew and network in store.networks(target.machine):
        chosen = {
            digest: choice.values
            for digest, choice in store.chosen(target.machine, network).items()
        }
        untuned, tuned = target.measure_networks([{}, chosen])
        return untuned.total, tuned.total
    kept = {
        space.digest: record.choices
        for space in spaces
        if (record := store.record(target.machine, space.digest)) is not None
    }
    variants: list[Mapping[str, StoredChoice]] = [
        {digest: choices[min(rank, len(choices) - 1)] for digest, choices in kept.items()}
        for rank in range(KEPT - 1)
    ]
    times = target.measure_networks([{}, *map(_values, variants)])
    mixed = _best_of_each(variants, times)
    finalists = [mixed, min(zip(variants, times[1:], strict=True), key=lambda one: one[1].total)[0]]
    untuned, *others = target.measure_networks([{}, *map(_values, finalists)])
    best = min(range(len(finalists)), key=lambda place: others[place].total)
    worthwhile = others[best].total < untuned.total
    store.add(
        NetworkRecord(
            machine=target.machine,
            network=network,
            choices=finalists[best] if worthwhile else {},
        )
    )
    return untuned.total, others[best].total if worthwhile else untuned.total


def _values(choices: Mapping[str, StoredChoice]) -> dict[str, Values]:
    return {digest: choice.values for digest, choice in choices.items()}


def _best_of_each(
    variants: Sequence[Mapping[str, StoredChoice]], times: Sequence[NetworkTime]
) -> dict[str, StoredChoice]:
    """Return for each kernel the choice that is fastest within the network, if one saves enough.

    Where the time of kernels is unknown, nothing is chosen for them.
    """
    usual, *others = times
    chosen = {}
    for digest, own in usual.kernels.items():
        if digest not in variants[0]:
            continue
        best = min(range(len(others)), key=lambda place: others[place].kernels[digest])
        if others[best].kernels[digest] < (1 - _MARGIN) * own:
            chosen[digest] = variants[best][digest]
    return chosen
