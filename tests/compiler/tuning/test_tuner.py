"""The tuner: what it finds, that nothing is lost when it is interrupted, and that results stay."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from integer_graphs import GraphBuilder
from stepping import run_compiled

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.compiler.lowering.choices import NO_CHOICES, Choice, Choices
from tilewright.compiler.lowering.lane_tiling import LaneTiling
from tilewright.compiler.lowering.tiling import MatrixTiling
from tilewright.compiler.networks import Network, build_network
from tilewright.compiler.tuning.cache import TuningCache
from tilewright.compiler.tuning.context import Progress
from tilewright.compiler.tuning.problem import find_stages
from tilewright.compiler.tuning.search import search
from tilewright.compiler.tuning.store import HEADER, SHIPPED, TuningWarning, user_cache_path
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.presets import ECP5, PYNQ, TINY
from tilewright.isa.program import Program
from tilewright.runtime.tuning import simulated_cycles, tune_graph

BUDGET = 6
MATRIX_TILE = MatrixTiling(rows=1, columns=1, out_blocks=1, in_blocks=1, channels_outside=False)


def network() -> tuple[Graph, GraphBuilder]:
    """An inverted residual, and a layer whose best tiles differ from the estimate's."""
    builder = GraphBuilder(seed=5)
    x = builder.input(1, 10, 8, 8)
    y = builder.conv(x, 16)
    y = builder.conv(y, 16, kernel=(3, 3), pads=(1, 1, 1, 1), groups=16)
    y = builder.add(x, builder.conv(y, 8))
    y = builder.max_pool(y, (2, 2), (2, 2))
    return builder.build(builder.conv(y, 12, kernel=(3, 3), pads=(1, 1, 1, 1))), builder


def cycles(graph: Graph, config: AcceleratorConfig, choices: Choices) -> int:
    (step,) = compile_graph(graph, config, choices=choices).steps
    return simulated_cycles(step.program)


def test_tuned_networks_are_no_slower_and_equal(tmp_path: Path) -> None:
    graph, builder = network()
    config = ECP5
    cache = TuningCache(tmp_path / "cache")
    result = tune_graph(graph, config, cache, budget=BUDGET)
    choices = TuningCache(tmp_path / "cache").choices(config)
    assert result.untuned_cycles == cycles(graph, config, NO_CHOICES)
    assert result.tuned_cycles == cycles(graph, config, choices) <= result.untuned_cycles
    inputs = builder.values(graph)
    (name,) = graph.outputs
    values, _ = run_compiled(compile_graph(graph, config, choices=choices), inputs)
    assert (values[name] == evaluate(graph, inputs)[name]).all()


def test_any_kept_choice_leaves_results_unchanged(tmp_path: Path) -> None:
    graph, builder = network()
    inputs = builder.values(graph)
    (name,) = graph.outputs
    expected = evaluate(graph, inputs)[name]
    (stage,) = find_stages(graph, ECP5)
    rng = np.random.default_rng(1)
    found = [search(item, ECP5, simulated_cycles, budget=BUDGET) for item in stage.problems]
    for _ in range(3):
        drawn: dict[str, Choice] = {
            item.digest: item.choices[rng.integers(len(item.choices))] for item in found
        }
        compiled = compile_graph(graph, ECP5, choices=Choices(by_digest=drawn))
        values, _ = run_compiled(compiled, inputs)
        assert (values[name] == expected).all()


class Interruption(Exception):
    """Stands for Ctrl-C."""


def test_a_chain_with_tiles_of_another_kind_counts_as_not_tuned() -> None:
    graph, _ = network()
    (stage,) = find_stages(graph, ECP5)
    found = {
        item.digest: search(item, ECP5, simulated_cycles, budget=BUDGET).choices[0]
        for item in stage.problems
    }
    alone = {digest: choice for digest, choice in found.items() if len(choice.tilings) == 1}
    expected = cycles(graph, ECP5, Choices(by_digest=alone))
    chains = found.keys() - alone.keys()
    assert chains
    for count in (0, 1, 2, 3):
        for tiling in (LaneTiling(rows=1, columns=1, blocks=1), MATRIX_TILE):
            wrong = Choice(tilings=(tiling,) * count, cycles=0)
            choices = Choices(by_digest={**alone, **dict.fromkeys(chains, wrong)})
            assert cycles(graph, ECP5, choices) == expected


def test_an_interrupted_search_goes_on_where_it_was(tmp_path: Path) -> None:
    graph, _ = network()
    path = tmp_path / "cache"

    def stop(progress: Progress) -> None:
        if progress.done == 2:
            raise Interruption

    with pytest.raises(Interruption):
        tune_graph(graph, TINY, TuningCache(path), budget=BUDGET, progress=stop)
    problems = len({p.digest for s in find_stages(graph, TINY) for p in s.problems})
    # The third may be done before the second is shown.
    kept = len(path.read_text().splitlines()) - 1
    assert 2 <= kept < problems
    result = tune_graph(graph, TINY, TuningCache(path), budget=BUDGET)
    assert (result.problems, result.searched) == (problems, problems - kept)
    again = tune_graph(graph, TINY, TuningCache(path), budget=BUDGET)
    assert again.searched == 0
    assert again.tuned_cycles == result.tuned_cycles


def test_a_larger_budget_searches_again(tmp_path: Path) -> None:
    graph, _ = network()
    cache = TuningCache(tmp_path / "cache")
    tune_graph(graph, TINY, cache, budget=2)
    assert tune_graph(graph, TINY, cache, budget=3).searched > 0


def test_choices_belong_to_what_changes_cycles(tmp_path: Path) -> None:
    graph, _ = network()
    cache = TuningCache(tmp_path / "cache")
    tune_graph(graph, TINY, cache, budget=2)
    known = cache.choices(TINY).by_digest
    assert known
    assert cache.choices(TINY.replace(name="other", clock_mhz=99.0)).by_digest == known
    assert not cache.choices(TINY.replace(**{"dram.read_gap_cycles": 3})).by_digest


def filled(path: Path) -> list[str]:
    graph, _ = network()
    tune_graph(graph, TINY, TuningCache(path), budget=2)
    return path.read_text().splitlines()


def test_damaged_lines_are_named_and_not_used(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    lines = filled(path)
    lines[2] = lines[2].replace("choices", "choicez")
    path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20])
    with pytest.warns(TuningWarning) as caught:
        cache = TuningCache(path)
    assert [str(warning.message) for warning in caught] == [
        f"{path}: line 3 and 1 others are damaged and not used"
    ]
    assert len(cache.choices(TINY).by_digest) == len(lines) - 3
    # What is added after a cut line stands on a line of its own.
    graph, _ = network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TuningWarning)
        tune_graph(graph, TINY, cache, budget=2)
        assert len(TuningCache(path).choices(TINY).by_digest) == len(lines) - 2


@pytest.mark.parametrize("text", ["", f"{HEADER}0\n", "anything\n"])
def test_files_of_another_version_are_not_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cache"
    lines = filled(path)
    path.write_text(text + "\n".join(lines[1:]))
    with pytest.warns(TuningWarning, match="it is not used; delete it to tune anew"):
        assert not TuningCache(path).choices(TINY).by_digest


def test_the_cache_is_where_caches_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache_path().parent.parent == tmp_path


def test_the_judge_decides(tmp_path: Path) -> None:
    graph, _ = network()
    (stage,) = find_stages(graph, TINY)
    problem = stage.problems[-1]
    sizes: list[int] = []

    def judge(program: Program) -> int:
        sizes.append(len(program.instructions))
        return len(program.instructions)

    found = search(problem, TINY, judge, budget=BUDGET)
    assert found.choices[0].cycles == min(sizes)
    assert found.choices[-1].cycles == sizes[0]
    assert found.judged == len(sizes) <= BUDGET


@pytest.mark.slow
def test_the_shipped_choices_speed_up_what_they_are_for() -> None:
    graph = build_network(Network.MOBILENET_V2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningWarning)
        choices = TuningCache(SHIPPED).choices(PYNQ)
    assert cycles(graph, PYNQ, choices) < 0.98 * cycles(graph, PYNQ, NO_CHOICES)
