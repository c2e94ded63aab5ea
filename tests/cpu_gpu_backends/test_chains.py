"""Chains of layers in bands of rows: the bits of the integer graph, however rows are cut."""

import numpy as np
import pytest
from integer_graphs import GraphBuilder

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph, Tensor
from tilewright.compiler.graph_builder import GraphBuilder as FloatBuilder
from tilewright.compiler.operators import Add, Conv2d, DataType, FloatConv2d
from tilewright.cpu_gpu_backends.codegen.target import host_target
from tilewright.cpu_gpu_backends.cpu import chain_plans
from tilewright.cpu_gpu_backends.cpu.arithmetic import Arithmetic
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.cpu_gpu_backends.cpu.native import load_program
from tilewright.cpu_gpu_backends.cpu.program import Chain
from tilewright.runtime.inputs import random_inputs


def inverted_residual(seed: int, *, stride: int, height: int, batch: int = 1) -> Graph:
    """Return a product, a depthwise convolution and a product, with what the block began with."""
    build = GraphBuilder(seed)
    x = build.input(batch, height, 9, 24)
    y = build.conv(x, 40)
    y = build.conv(y, 40, kernel=(3, 3), stride=(stride, stride), pads=(1, 1, 1, 1), groups=40)
    y = build.conv(y, 24)
    if stride == 1:
        sum_ = Add(
            a_coefficient=300,
            b_coefficient=200,
            bias=1000,
            multiplier=1 << 23,
            shift=32,
            zero_point=3,
            low=-128,
            high=127,
        )
        y = build.node(sum_, x, y)
    return build.build(y)


def first_layers(seed: int) -> Graph:
    """Return a convolution of a window, a depthwise one without padding above, and a product."""
    build = GraphBuilder(seed)
    x = build.input(1, 33, 31, 3)
    y = build.conv(x, 16, kernel=(3, 3), stride=(2, 2), pads=(1, 1, 1, 1))
    y = build.conv(y, 16, kernel=(3, 3), pads=(0, 1, 1, 1), groups=16)
    return build.build(build.conv(y, 8))


def two_depthwise(seed: int) -> Graph:
    """Return two depthwise convolutions in a row, one dilated."""
    build = GraphBuilder(seed)
    x = build.input(1, 24, 11, 48)
    y = build.conv(x, 48, kernel=(3, 3), pads=(1, 1, 1, 1), groups=48)
    y = build.conv(y, 48, kernel=(3, 3), pads=(2, 2, 2, 2), dilation=(2, 2), groups=48)
    return build.build(build.conv(y, 24))


GRAPHS = {
    "stride 1": inverted_residual(1, stride=1, height=16),
    "stride 2": inverted_residual(2, stride=2, height=24),
    "two images": inverted_residual(3, stride=1, height=8, batch=2),
    "window first": first_layers(4),
    "two depthwise": two_depthwise(5),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("scratch_bytes", [6000, 1 << 20])
def test_chains_keep_every_bit(
    name: str, scratch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_plans, "_FEWEST_BYTES", 0)
    monkeypatch.setattr(chain_plans, "_MOST_SCRATCH_BYTES", scratch_bytes)
    graph, target = GRAPHS[name], host_target()
    program = lower_graph(graph, target)
    bands = [len(step.bands) for step in program.steps if isinstance(step, Chain)]
    assert bands, f"{name} is a chain"
    inputs = random_inputs(graph, 0)
    expected = evaluate(graph, inputs)
    checked = load_program(program, target, check_bounds=True)
    usual = load_program(program, target)
    for native, threads in ((checked, 1), (usual, 2), (usual, 3)):
        (result,) = native.run([inputs[one] for one in graph.inputs], threads)
        (output,) = graph.outputs
        np.testing.assert_array_equal(result.reshape(expected[output].shape), expected[output])


def test_less_scratch_memory_makes_more_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_plans, "_FEWEST_BYTES", 0)
    counts = []
    for scratch_bytes in (1 << 20, 3500):
        monkeypatch.setattr(chain_plans, "_MOST_SCRATCH_BYTES", scratch_bytes)
        program = lower_graph(GRAPHS["stride 1"], host_target())
        counts += [len(step.bands) for step in program.steps if isinstance(step, Chain)]
    assert counts == [4, 8]


def test_small_tensors_are_no_chain() -> None:
    steps = lower_graph(GRAPHS["stride 1"], host_target()).steps
    assert not any(isinstance(step, Chain) for step in steps)


def test_a_tensor_with_two_readers_ends_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_plans, "_FEWEST_BYTES", 0)
    build = GraphBuilder(6)
    x = build.input(1, 16, 9, 24)
    y = build.conv(x, 40)
    z = build.conv(y, 40, kernel=(3, 3), pads=(1, 1, 1, 1), groups=40)
    graph = build.build(build.conv(z, 24), build.conv(y, 24))
    program = lower_graph(graph, host_target())
    (chain,) = (step for step in program.steps if isinstance(step, Chain))
    (depthwise,) = (
        node for node in graph.nodes if isinstance(node.op, Conv2d) and node.op.groups > 1
    )
    written = {name for name in chain.writes if not name.startswith(graph.outputs)}
    assert written == {depthwise.outputs[0]}


def real_layers(channels: int) -> Graph:
    """Return a convolution of a window, a product, a depthwise convolution and a product."""
    build, rng = FloatBuilder("real"), np.random.default_rng(channels)

    def conv(x: str, outputs: int, size: int, inputs: int, **attributes: object) -> str:
        weights = rng.standard_normal((outputs, size, size, inputs)).astype(np.float32)
        operands = [x, build.add_constant("w", weights / np.float32(size * inputs**0.5))]
        return build.add(FloatConv2d(**attributes), operands, node="conv")  # type: ignore[arg-type]

    image = Tensor(name="x", shape=(1, 31, 31, 3), dtype=DataType.FLOAT32)
    y = conv(build.add_input(image), channels, 3, 3, stride=(2, 2), pads=(1, 1, 1, 1))
    y = conv(y, 24, 1, channels)
    y = conv(y, 24, 3, 1, pads=(1, 1, 1, 1), groups=24)
    return build.build([conv(y, 20, 1, 24)])


@pytest.mark.parametrize("channels", [16, 21])
def test_chains_in_bfloat16_keep_every_bit(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, target = real_layers(channels), host_target()
    inputs = random_inputs(graph, 0)
    results = []
    for fewest_bytes in (1 << 30, 0):
        monkeypatch.setattr(chain_plans, "_FEWEST_BYTES", fewest_bytes)
        program = lower_graph(graph, target, arithmetic=Arithmetic(half=True, direct=True))
        assert any(isinstance(step, Chain) for step in program.steps) is (fewest_bytes == 0)
        results += load_program(program, target).run(list(inputs.values()), threads=2)
    np.testing.assert_array_equal(*results)
    (expected,) = evaluate(graph, inputs).values()
    error = np.abs(results[0].reshape(expected.shape) - expected).max()
    assert 0 < error <= 2e-2 * np.abs(expected).max()
