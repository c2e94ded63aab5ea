"""Exploration of hardware sizes: which configurations fit a part, and how fast they are."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.boards.area import Area
from tilewright.boards.area_model import estimate_area
from tilewright.boards.parts import Part
from tilewright.compiler.compile import compile_graph
from tilewright.compiler.compiled import AcceleratorStep
from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import Conv2d
from tilewright.compiler.tuning.cache import TuningCache
from tilewright.compiler.tuning.context import Progress
from tilewright.config_file import change_config
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError, ConfigError
from tilewright.runtime.tuning import Tuning, simulated_cycles, tune_graph, tuned_choices


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What a configuration takes of a part, by resource."""

    luts: float
    registers: float
    multipliers: float
    block_rams: float

    @property
    def largest(self) -> float:
        """Share of the resource that is scarcest."""
        return max(self.luts, self.registers, self.multipliers, self.block_rams)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A configuration that fits the part, by the area model."""

    config: AcceleratorConfig
    #: Fields of the grid and their values, as a name.
    label: str
    area: Area
    shares: Shares
    #: Array-shape bound of each network, in cycles.
    bounds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A simulated candidate."""

    candidate: Candidate
    #: Simulated cycles of each network.
    cycles: tuple[int, ...]
    #: Whether no other point is faster and takes no more of the part.
    is_best: bool = False
    #: Whether the networks were tuned for it.
    is_tuned: bool = False

    @property
    def rates(self) -> tuple[float, ...]:
        """Images per second of each network, at the clock of the configuration."""
        return tuple(self.candidate.config.clock_mhz * 1e6 / cycles for cycles in self.cycles)

    @property
    def rate(self) -> float:
        """Geometric mean of the rates."""
        return math.prod(self.rates) ** (1 / len(self.rates))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploredTuning:
    """How networks are tuned for the best points of an exploration."""

    cache: TuningCache
    #: Candidates judged per kernel, and per chain of kernels.
    budget: int
    progress: Callable[[Candidate, Progress], None] = lambda *_: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What became of the configurations of a grid."""

    points: tuple[Point, ...]
    #: Configurations of the grid; those that the machine does not allow; those too large.
    tried: int
    illegal: int
    too_large: int
    #: Configurations that fit, but were not simulated because of their bounds.
    not_simulated: int


def candidates(
    base: AcceleratorConfig,
    grid: Mapping[str, Sequence[str]],
    part: Part,
    graphs: Sequence[Graph],
    *,
    limit: float,
) -> tuple[list[Candidate], int, int]:
    """Return the configurations that fit into `limit` of each resource, the fastest bound first.

    Also returns how many were not allowed, and how many too large.
    """
    found: list[Candidate] = []
    illegal = too_large = 0
    for changes in _combinations(grid):
        try:
            config = change_config(base, changes)
        except ConfigError:
            illegal += 1
            continue
        area = estimate_area(config)
        shares = _shares(area, part)
        if shares.largest > limit:
            too_large += 1
            continue
        bounds = tuple(shape_bound(graph, config) for graph in graphs)
        found.append(
            Candidate(
                config=config, label=" ".join(changes), area=area, shares=shares, bounds=bounds
            )
        )
    found.sort(key=lambda candidate: math.prod(candidate.bounds))
    return found, illegal, too_large


def _combinations(grid: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    axes = [[f"{field}={value}" for value in values] for field, values in grid.items()]
    return itertools.product(*axes)


def _shares(area: Area, part: Part) -> Shares:
    return Shares(
        luts=area.luts / part.luts,
        registers=area.registers / part.registers,
        multipliers=area.multipliers / part.multipliers,
        block_rams=area.block_rams / part.block_rams,
    )


def shape_bound(graph: Graph, config: AcceleratorConfig) -> int:
    """Return the cycles of convolutions on the array, channels rounded up to whole blocks.

    Depthwise convolutions, which the lanes compute at the same time, are left out.
    """
    total = 0
    for node in graph.nodes:
        if not isinstance(node.op, Conv2d):
            continue
        outputs, height, width, inputs = graph.constants[node.inputs[1]].shape
        if node.op.groups > 1 and inputs == 1:
            continue
        images, rows, columns, _ = graph.tensors[node.outputs[0]].shape
        positions = -(-images // config.batch) * rows * columns
        taps = height * width
        depth = -(-inputs // config.block_in) * taps
        if node.inputs[0] in graph.inputs:
            depth = min(depth, -(-inputs * taps // config.block_in))
        blocks = -(-(outputs // node.op.groups) // config.block_out)
        total += positions * depth * blocks * node.op.groups
    return total


def simulate_candidate(graphs: Sequence[Graph], candidate: Candidate) -> Point | None:
    """Compile for a configuration and count cycles; None where nothing of a network fits it."""
    choices = tuned_choices(Tuning.CACHED, candidate.config)
    cycles = []
    for graph in graphs:
        try:
            compiled = compile_graph(graph, candidate.config, choices=choices)
        except CompileError:
            return None
        programs = [step.program for step in compiled.steps if isinstance(step, AcceleratorStep)]
        if not programs:
            return None
        cycles.append(sum(map(simulated_cycles, programs)))
    return Point(candidate=candidate, cycles=tuple(cycles))


def explore(
    graphs: Sequence[Graph],
    base: AcceleratorConfig,
    grid: Mapping[str, Sequence[str]],
    part: Part,
    *,
    limit: float = 1.0,
    most: int = 12,
    jobs: int = 1,
    tuning: ExploredTuning | None = None,
    progress: Callable[[int, int, Point | None], None] = lambda *_: None,
) -> Exploration:
    """Simulate those configurations of a grid that fit a part and have the best bounds.

    Parameters
    ----------
    base
        What the grid does not name.
    limit
        Share of each resource of the part that a configuration may take.
    most
        Configurations that are simulated.
    jobs
        Processes, or workers of the cluster that ``joblib.parallel_config`` names.
    tuning
        How to tune the networks for the points that none beats; without it, only choices that are
        known already are used.
    """
    # Imported late: nothing else on the command line needs it.
    from joblib import Parallel, delayed

    fitting, illegal, too_large = candidates(base, grid, part, graphs, limit=limit)
    chosen = fitting[:most]
    points: list[Point] = []
    tasks = (delayed(simulate_candidate)(graphs, candidate) for candidate in chosen)
    results = Parallel(n_jobs=jobs, return_as="generator")(tasks)
    for number, point in enumerate(results, 1):
        progress(number, len(chosen), point)
        if point is not None:
            points.append(point)
    marked = mark_best(points)
    if tuning is not None:
        marked = mark_best([_tuned(graphs, point, tuning, jobs) for point in marked])
    return Exploration(
        points=marked,
        tried=math.prod(len(values) for values in grid.values()),
        illegal=illegal,
        too_large=too_large,
        not_simulated=len(fitting) - len(chosen),
    )


def _tuned(graphs: Sequence[Graph], point: Point, tuning: ExploredTuning, jobs: int) -> Point:
    if not point.is_best:
        return point
    config = point.candidate.config
    results = [
        tune_graph(
            graph,
            config,
            tuning.cache,
            budget=tuning.budget,
            jobs=jobs,
            progress=functools.partial(tuning.progress, point.candidate),
        )
        for graph in graphs
    ]
    return replace(point, cycles=tuple(one.tuned_cycles for one in results), is_tuned=True)


def mark_best(points: Sequence[Point]) -> tuple[Point, ...]:
    """Mark the points that no other one beats in both speed and area; the fastest first."""
    ordered = sorted(points, key=lambda p: (-p.rate, p.candidate.shares.largest))
    marked = []
    smallest = math.inf
    for point in ordered:
        is_best = point.candidate.shares.largest < smallest
        smallest = min(smallest, point.candidate.shares.largest)
        marked.append(replace(point, is_best=is_best))
    return tuple(marked)
