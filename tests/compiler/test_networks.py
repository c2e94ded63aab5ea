"""The usual networks have the multiply-accumulates that are published for them."""

import math

import pytest

from tilewright.compiler.networks import LayerBuilder, Network, build_network
from tilewright.compiler.operators import Conv2d

#: Millions: torchvision's model pages (GFLOPS there are multiply-accumulates); MobileNet-v1 as in
#: Howard et al., 2017, table 8; ResNet-20 as counted for He et al., 2015, with projections.
PUBLISHED = {
    Network.RESNET_18: 1814,
    Network.RESNET_34: 3664,
    Network.RESNET_50: 4089,
    Network.MOBILENET_V1: 569,
    Network.MOBILENET_V2: 301,
    Network.RESNET_20: 41,
}


@pytest.mark.parametrize("network", Network)
def test_multiply_accumulates_are_as_published(network: Network) -> None:
    graph = build_network(network)
    total = 0
    for node in graph.nodes:
        if isinstance(node.op, Conv2d):
            weights = graph.constants[node.inputs[1]]
            _, height, width, _ = graph.tensors[node.outputs[0]].shape
            total += height * width * math.prod(weights.shape)
    assert round(total / 1e6) == PUBLISHED[network]


def test_weights_follow_the_seed() -> None:
    first, again, other = (build_network(Network.RESNET_20, seed=seed) for seed in (1, 1, 2))
    name = "conv1.weight"
    assert (first.constants[name] == again.constants[name]).all()
    assert (first.constants[name] != other.constants[name]).any()


def test_a_transposed_layer_enlarges_the_image() -> None:
    layers = LayerBuilder("layer", (1, 4, 4, 8), seed=0)
    layers.transposed("conv", 16, kernel=4, stride=2)
    graph = layers.build()
    assert graph.tensors[graph.outputs[0]].shape == (1, 8, 8, 16)
