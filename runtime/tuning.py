"""Tuning of models, by the simulator or by measurement, and the choices that compilations use."""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from typing_extensions import assert_never

from tilewright.compiler.graph import Graph
from tilewright.compiler.lowering.choices import NO_CHOICES, Choices
from tilewright.compiler.tuning.cache import TuningCache
from tilewright.compiler.tuning.context import Progress
from tilewright.compiler.tuning.store import SHIPPED, TuningStore, user_cache_path
from tilewright.compiler.tuning.tuner import DEFAULT_BUDGET, TuningResult, tune
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.program import Program
from tilewright.runtime.files import PathLike
from tilewright.sim.clockwork import simulate_timing


class Tuning(Enum):
    """Which tuned choices a compilation uses."""

    #: Those that come with the package, and the user's own.
    CACHED = "cached"
    #: None: the estimate of cycles decides.
    NONE = "none"


#: Or a file of choices, which is used beside `Tuning.CACHED`.
TuningSource: TypeAlias = Tuning | PathLike


def simulated_cycles(program: Program) -> int:
    """Return the cycles of a program; data plays no part."""
    return simulate_timing(program).cycles


def open_cache(source: TuningSource = Tuning.CACHED) -> TuningCache | None:
    """Open the files that a source means; what is tuned goes to the last of them."""
    files = _files(source)
    return TuningCache(*files) if files else None


def open_store(source: TuningSource = Tuning.CACHED) -> TuningStore | None:
    """Open the same files for processors and GPUs."""
    files = _files(source)
    return TuningStore(*files) if files else None


def _files(source: TuningSource) -> tuple[Path, ...]:
    if not isinstance(source, Tuning):
        return SHIPPED, user_cache_path(), Path(source)
    match source:
        case Tuning.CACHED:
            return SHIPPED, user_cache_path()
        case Tuning.NONE:
            return ()
        case _:
            assert_never(source)


def tuned_choices(source: TuningSource, config: AcceleratorConfig) -> Choices:
    """Return the choices of a source for a machine."""
    cache = open_cache(source)
    return NO_CHOICES if cache is None else cache.choices(config)


def tune_graph(
    graph: Graph,
    config: AcceleratorConfig,
    cache: TuningCache,
    *,
    budget: int = DEFAULT_BUDGET,
    jobs: int = 1,
    progress: Callable[[Progress], None] = lambda _: None,
) -> TuningResult:
    """Fill a cache with what the simulator finds best for a network."""
    return tune(graph, config, simulated_cycles, cache, budget=budget, jobs=jobs, progress=progress)
