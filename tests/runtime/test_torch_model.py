"""PyTorch modules as models, against PyTorch itself."""

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.operators import DataType, FloatOperator, FloatUnary, Function
from tilewright.isa.errors import TilewrightError

torch = pytest.importorskip("torch")


def network() -> Any:
    """Return a small network with batch normalisation and two activations."""
    torch.manual_seed(1)
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    net(torch.randn(16, 3, 8, 8))  # The normalisation sees some statistics.
    return net


def test_a_module_is_loaded_quantised_and_compiled(rng: np.random.Generator) -> None:
    net = network()
    samples = rng.normal(0, 1, (16, 3, 8, 8)).astype(np.float32)
    model = tw.load(net, example=torch.from_numpy(samples[:1]))
    functions = [n.op.function for n in model.graph.nodes if isinstance(n.op, FloatUnary)]
    assert functions == [Function.SILU, Function.GELU]
    assert net.training
    with torch.no_grad():
        expected = net.eval()(torch.from_numpy(samples)).numpy()
    (name,) = model.graph.inputs
    found = evaluate(model.graph, {name: samples})[model.graph.outputs[0]]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    quantized = tw.quantize(net, samples)
    assert not any(isinstance(node.op, FloatOperator) for node in quantized.graph.nodes)
    assert quantized.inputs[0].dtype is DataType.FLOAT32
    (logits,) = tw.compile(quantized, "tiny").run(samples[:1]).outputs.values()
    assert np.abs(logits - expected[:1]).max() < 0.05 * np.abs(expected).max()


def test_a_module_needs_an_example() -> None:
    with pytest.raises(TilewrightError, match="a PyTorch module needs example inputs"):
        tw.load(network())


def test_a_module_that_cannot_be_exported_says_why() -> None:
    with pytest.raises(TilewrightError) as caught:
        tw.load(network(), example=torch.zeros(1, 4, 8, 8))
    assert str(caught.value).startswith("PyTorch cannot export module Sequential: ")
    assert "\n" not in str(caught.value)
