"""Graphs and configurations that cannot be compiled, and what the compiler says."""

import pytest
from integer_graphs import GraphBuilder

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.compiled import Target
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.presets import PRESETS

TINY = PRESETS["tiny"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            TINY.replace(inp_entries=8),
            (
                "'Conv2d0' does not fit configuration 'tiny': the smallest tile does not"
                " fit scratchpad inp (9 of 8 entries)"
            ),
        ),
        (
            TINY.replace(**{"dram.size_bytes": 4096}),
            "the network needs 45408 bytes of DRAM, configuration 'tiny' has 4096",
        ),
    ],
)
def test_a_configuration_that_is_too_small(config: AcceleratorConfig, message: str) -> None:
    builder = GraphBuilder(seed=1)
    graph = builder.build(builder.conv(builder.input(1, 19, 19, 24), 24, kernel=(3, 3)))
    with pytest.raises(CompileError) as caught:
        compile_graph(graph, config)
    assert str(caught.value).startswith(message)


def test_a_window_whose_rows_no_load_takes() -> None:
    builder = GraphBuilder(seed=1)
    graph = builder.build(builder.average_pool(builder.input(1, 1, 4500, 4), (1, 4500), (1, 1)))
    with pytest.raises(CompileError, match="4500 entries, a load takes at most 4095"):
        compile_graph(graph, TINY.replace(vec_entries=16384))


def test_only_scratchpads_that_are_used_are_named() -> None:
    builder = GraphBuilder(seed=1)
    graph = builder.build(builder.max_pool(builder.input(1, 10, 10, 4), (9, 9), (1, 1)))
    with pytest.raises(CompileError, match=r"scratchpad vuop \(81 of 64 entries\)$"):
        compile_graph(graph, TINY)


def test_padding_that_no_load_can_make_stays_on_the_host() -> None:
    builder = GraphBuilder(seed=1)
    graph = builder.build(builder.pad(builder.input(1, 2, 2, 4), (0, 0, 300, 0), (0, 0, 0, 0), 1))
    (placement,) = compile_graph(graph, TINY).placement
    assert placement.target is Target.HOST
    assert placement.reason == "300 padding entries, a load makes at most 255"
