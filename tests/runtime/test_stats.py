"""What a run cost, reckoned by hand for a made-up timeline and by other sums for a real one."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.compiler.compiled import AcceleratorStep, CompiledGraph, LayerInfo, Target
from tilewright.compiler.graph import Graph
from tilewright.isa.instructions import Finish, Gemm, Load, Store
from tilewright.isa.memories import Engine, Memory, memory_shape
from tilewright.isa.presets import TINY
from tilewright.isa.program import Program
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.stats import RunStats, longest_wait, run_stats
from tilewright.sim.timeline import NO_ENGINE, Timeline


def column(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


#: Two loads, two products and a store for two layers; nothing moves, only the numbers matter.
PROGRAM = Program(
    config=TINY,
    instructions=(
        Load(memory=Memory.INP, dst=0, address=0, entries=1),
        Gemm(dst=0),
        Load(memory=Memory.INP, dst=0, address=0, entries=1),
        Gemm(dst=0),
        Store(src=0, address=0, entries=1),
        Finish(),
    ),
    code_address=0,
    dram_bytes=4096,
    layers=("first", "second"),
    layer_of_instruction=(0, 0, 1, 1, 1, -1),
)
TIMELINE = Timeline(
    cycles=100,
    engine=np.array([0, 1, 0, 1, 3, NO_ENGINE], dtype=np.int8),
    dispatch=column(0, 0, 0, 0, 0, 0),
    start=column(5, 20, 15, 50, 80, 100),
    last_step=column(14, 39, 24, 69, 90, 100),
    finish=column(15, 40, 25, 70, 95, 100),
    fetch_wait=column(5, 6, 0, 0, 7, 0),
    token_wait=column(0, 14, 0, 10, 73, 0),
    token_giver=np.array([-1, 0, -1, 2, 1, -1], dtype=np.int8),
    drain=column(0, 0, 0, 0, 0, 0),
    busy=column(8, 20, 9, 20, 10, 0),
    memory_wait=column(2, 0, 1, 0, 1, 0),
    dram_bytes=column(64, 0, 32, 0, 16, 0),
    fetch_bytes=192,
)
LAYERS = (
    LayerInfo(name="first", operator="Conv2d", nodes=("a",), macs=300, ideal_cycles=20),
    LayerInfo(name="second", operator="Conv2d+Add", nodes=("b", "c"), macs=340, ideal_cycles=25),
)


@pytest.fixture
def stats() -> RunStats:
    empty = Graph(name="made up", tensors={}, nodes=(), inputs=(), outputs=(), constants={})
    step = AcceleratorStep(program=PROGRAM, inputs=(), outputs=(), layers=LAYERS)
    compiled = CompiledGraph(graph=empty, config=TINY, steps=(step,), placement=())
    return run_stats(compiled, (TIMELINE,))


def test_totals(stats: RunStats) -> None:
    assert stats.cycles == 100
    assert stats.milliseconds == pytest.approx(0.002)  # 100 cycles at 50 MHz
    assert (stats.macs, stats.ideal_cycles) == (640, 45)
    assert stats.utilisation == pytest.approx(0.4)  # 640 of 100 * 4 * 4
    assert (stats.dram_read_bytes, stats.dram_write_bytes) == (64 + 32 + 192, 16)


def test_layers_share_the_cycles_out(stats: RunStats) -> None:
    first, second = stats.layers
    assert (first.name, first.op, first.device, first.macs) == (
        "first",
        "Conv2d",
        Target.ACCELERATOR,
        300,
    )
    # The first layer is loaded until cycle 14 and in the array from cycle 20 to 39.
    assert (first.cycles, second.cycles) == (35, 65)
    assert (first.dram_bytes, second.dram_bytes) == (64, 48)


def test_waits_of_a_layer(stats: RunStats) -> None:
    first, second = (layer.waits for layer in stats.layers)
    assert (first[Engine.LOAD].busy, first[Engine.LOAD].memory_wait) == (8, 2)
    assert first[Engine.GEMM].token_wait == (14, 0, 0, 0)
    assert second[Engine.GEMM].token_wait == (0, 0, 10, 0)
    assert second[Engine.STORE].fetch_wait == 7
    assert [longest_wait(layer) for layer in stats.layers] == [
        "gemm for load 14",
        "gemm for vector 10",
    ]


def test_engines_are_accounted_for_in_every_cycle(stats: RunStats) -> None:
    assert all(account.cycles == 100 for account in stats.engines)
    assert stats.engines[Engine.GEMM].busy == 40
    assert stats.engines[Engine.VECTOR].done == 100


def test_programs_add_up(stats: RunStats) -> None:
    empty = Graph(name="twice", tensors={}, nodes=(), inputs=(), outputs=(), constants={})
    step = AcceleratorStep(program=PROGRAM, inputs=(), outputs=(), layers=LAYERS)
    compiled = CompiledGraph(graph=empty, config=TINY, steps=(step, step), placement=())
    twice = run_stats(compiled, (TIMELINE, replace(TIMELINE, cycles=110)))
    assert twice.cycles == 210
    assert [layer.cycles for layer in twice.layers] == [35, 65, 35, 75]
    assert twice.engines[Engine.LOAD].busy == 2 * stats.engines[Engine.LOAD].busy


def test_a_real_run_agrees_with_its_program(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    stats = compiled_digits.run(image).stats
    (program,) = compiled_digits.programs
    layers = [layer for layer in stats.layers if layer.device is Target.ACCELERATOR]
    assert sum(layer.cycles for layer in layers) == stats.cycles
    moved = [0] * len(layers)
    for layer, insn in zip(program.layer_of_instruction, program.instructions, strict=True):
        if isinstance(insn, Load | Store):
            memory = insn.memory if isinstance(insn, Load) else Memory.OUT
            entry = memory_shape(memory, program.config).entry_bytes
            moved[layer] += insn.entries * insn.rows * insn.planes * entry
    assert [layer.dram_bytes for layer in layers] == moved
    assert sum(moved) + program.code_bytes == stats.dram_read_bytes + stats.dram_write_bytes
    for engine in Engine:
        own = [layer.waits[engine].busy for layer in layers]
        assert sum(own) == stats.engines[engine].busy


def test_host_operators_are_layers_without_cycles(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    stats = compiled_digits.run(image).stats
    host = [layer for layer in stats.layers if layer.device is Target.HOST]
    assert [(layer.op, layer.cycles) for layer in host] == [
        ("Quantize", 0),
        ("Reshape", 0),
        ("Dequantize", 0),
    ]
