"""What a graph refuses, and how it looks as text."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.graph import Graph, Node, Source, Tensor
from tilewright.compiler.graph_builder import MAX_AXIS, GraphBuilder
from tilewright.compiler.operators import Clip, Concat, DataType, MaxPool2d, Reshape
from tilewright.isa.errors import ModelError


def image(name: str, *shape: int, scale: float | None = None) -> Tensor:
    zero = None if scale is None else -3
    return Tensor(name=name, shape=shape, dtype=DataType.INT8, scale=scale, zero_point=zero)


def pooled() -> Graph:
    """Return a graph that pools its input and joins it with a constant."""
    tensors = (
        image("x", 1, 4, 4, 2, scale=0.5),
        image("p", 1, 2, 2, 2, scale=0.5),
        image("c", 1, 2, 2, 1),
        image("y", 1, 2, 2, 3, scale=0.5),
    )
    return Graph(
        name="pooled",
        tensors={tensor.name: tensor for tensor in tensors},
        nodes=(
            Node(
                name="pool",
                op=MaxPool2d(kernel=(2, 2), stride=(2, 2)),
                inputs=("x",),
                outputs=("p",),
            ),
            Node(name="join", op=Concat(axis=3), inputs=("p", "c"), outputs=("y",)),
        ),
        inputs=("x",),
        outputs=("y",),
        constants={"c": np.zeros((1, 2, 2, 1), np.int8)},
    )


def test_text_lists_inputs_nodes_and_outputs() -> None:
    assert str(pooled()) == (
        "graph pooled\n"
        "  input  x: int8[1, 4, 4, 2] scale 0.5 zero -3\n"
        "  p: int8[1, 2, 2, 2] scale 0.5 zero -3 = MaxPool2d(x) "
        "{kernel=(2, 2), stride=(2, 2), pads=(0, 0, 0, 0)}\n"
        "  y: int8[1, 2, 2, 3] scale 0.5 zero -3 = Concat(p, c<int8[1, 2, 2, 1]>) {axis=3}\n"
        "  output y: int8[1, 2, 2, 3] scale 0.5 zero -3"
    )


def test_consumers_and_operands() -> None:
    graph = pooled()
    assert {name: [n.name for n in nodes] for name, nodes in graph.consumers().items()} == {
        "x": ["pool"],
        "p": ["join"],
        "c": ["join"],
        "y": [],
    }
    assert [tensor.name for tensor in graph.operands(graph.nodes[1])] == ["p", "c"]


def test_constants_are_read_only_and_the_callers_array_is_not() -> None:
    values = np.zeros((1, 2, 2, 1), np.int8)
    graph = replace(pooled(), constants={"c": values})
    with pytest.raises(ValueError, match="read-only"):
        graph.constants["c"][0, 0, 0, 0] = 1
    values[0, 0, 0, 0] = 1


def changed(**changes: object) -> dict[str, object]:
    return changes


def nodes(**changes: object) -> dict[str, object]:
    pool, join = pooled().nodes
    return {"nodes": (replace(pool, **changes), join)}


DEFECTS = {
    "order": (
        changed(nodes=tuple(reversed(pooled().nodes))),
        "node 'join' reads 'p' before it is defined",
    ),
    "a wrong shape": (
        changed(tensors={**pooled().tensors, "p": image("p", 1, 2, 2, 5)}),
        "node 'pool' (MaxPool2d) yields int8[1, 2, 2, 2], declared as int8[1, 2, 2, 5]",
    ),
    "an operator that does not suit": (
        nodes(op=Reshape(shape=(3, 3))),
        "node 'pool' (Reshape) cannot view int8[1, 4, 4, 2] as [3, 3]",
    ),
    "a name twice": (nodes(name="join"), "2 nodes are called 'join'"),
    "a tensor twice": (nodes(outputs=("x",)), "tensor 'x' is defined twice"),
    "two outputs": (
        nodes(outputs=("p", "q")),
        "node 'pool' (MaxPool2d) has 2 outputs instead of one",
    ),
    "an undeclared tensor": (nodes(outputs=("q",)), "output 'q' is not declared"),
    "an undeclared input": (changed(inputs=("x", "z")), "input 'z' is not declared"),
    "an output nobody computes": (
        changed(outputs=("z",)),
        "tensor 'z' is not computed by any node",
    ),
    "a tensor nobody computes": (
        changed(tensors={**pooled().tensors, "z": image("z", 1)}),
        "tensor 'z' is not computed by any node",
    ),
    "a constant of another type": (
        changed(constants={"c": np.zeros((1, 2, 2, 1), np.int16)}),
        "constant 'c' is int16[1, 2, 2, 1], declared as int8[1, 2, 2, 1]",
    ),
    "a tensor under another name": (
        changed(tensors={**pooled().tensors, "z": image("x", 1)}),
        "tensor 'x' is filed under the name 'z'",
    ),
}


@pytest.mark.parametrize("case", sorted(DEFECTS))
def test_a_defect_is_named(case: str) -> None:
    changes, message = DEFECTS[case]
    with pytest.raises(ModelError) as caught:
        replace(pooled(), **changes)
    assert str(caught.value) == message


def test_a_source_is_viewed_in_the_graphs_layout_and_sign() -> None:
    values = np.arange(24, dtype=np.uint8).reshape(1, 2, 3, 4)
    source = Source(name="s", axes=(0, 2, 3, 1))
    tensor = image("t", 1, 3, 4, 2)
    view = source.view(values, tensor)
    assert view.dtype == np.int8
    assert view.shape == (1, 3, 4, 2)
    assert view[0, 2, 1, 1] == int(values[0, 1, 2, 1]) - 128


def test_builder_makes_names_unique_and_drops_what_is_not_needed() -> None:
    builder = GraphBuilder("built")
    x = builder.add_input(image("x", 2, 2))
    builder.add(Clip(low=0, high=1), [x], node="clip")
    second = builder.add(Clip(low=0, high=2), [x], node="clip", output="x")
    graph = builder.build([second])
    assert [node.name for node in graph.nodes] == ["clip_1"]
    assert graph.outputs == ("x_1",)


def test_builder_refuses_a_tensor_too_large_to_be_real() -> None:
    builder = GraphBuilder("built")
    with pytest.raises(ModelError) as caught:
        builder.add_input(image("x", MAX_AXIS + 1))
    assert str(caught.value) == f"tensor 'x' of int8[{MAX_AXIS + 1}] is too large"
