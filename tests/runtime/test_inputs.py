"""Inputs are taken as they are or refused with the name of the input and what it should be."""

from typing import Any

import numpy as np
import pytest

from tilewright.compiler.graph import Graph, Node, Tensor
from tilewright.compiler.operators import DataType, Quantize
from tilewright.isa.errors import InputError
from tilewright.runtime.inputs import check_inputs, random_inputs

INT8, FLOAT32 = DataType.INT8, DataType.FLOAT32

ONE = Graph(
    name="one",
    tensors={
        "image": Tensor(name="image", shape=(1, 2, 2), dtype=FLOAT32),
        "bytes": Tensor(name="bytes", shape=(1, 2, 2), dtype=INT8),
    },
    nodes=(
        Node(
            name="quantize",
            op=Quantize(scale=0.5, zero_point=-128),
            inputs=("image",),
            outputs=("bytes",),
        ),
    ),
    inputs=("image",),
    outputs=("bytes",),
    constants={},
)
TWO = Graph(
    name="two",
    tensors={name: Tensor(name=name, shape=(3,), dtype=INT8) for name in ("a", "b")},
    nodes=(),
    inputs=("a", "b"),
    outputs=("a",),
    constants={},
)
IMAGE = np.zeros((1, 2, 2), np.float32)
BYTES = np.zeros(3, np.int8)
HINT_ONE = "inputs: 'image' float32[1, 2, 2]"
HINT_TWO = "inputs: 'a' int8[3], 'b' int8[3]"


def with_value(value: float) -> Any:
    changed = IMAGE.copy()
    changed[0, 1, 0] = value
    return changed


def test_one_array_stands_for_the_only_input() -> None:
    assert check_inputs(ONE, IMAGE)["image"] is IMAGE
    assert check_inputs(ONE, {"image": IMAGE})["image"] is IMAGE


def test_arrays_come_in_the_order_of_the_graph() -> None:
    assert list(check_inputs(TWO, {"b": BYTES, "a": BYTES})) == ["a", "b"]


@pytest.mark.parametrize(
    ("graph", "inputs", "message", "hint"),
    [
        (TWO, BYTES, "model 'two' has 2 inputs: give a dictionary", HINT_TWO),
        (ONE, {"picture": IMAGE}, "model 'one' has no input 'picture'", HINT_ONE),
        (TWO, {"a": BYTES}, "input 'b' is missing", HINT_TWO),
        (TWO, {}, "input 'a' is missing", HINT_TWO),
        (
            ONE,
            np.zeros((2, 2), np.float32),
            "input 'image' must have the shape [1, 2, 2], not [2, 2]",
            None,
        ),
        (
            ONE,
            np.zeros((1, 2, 2)),
            "input 'image' must be of type float32, not float64",
            "convert it with .astype('float32') if its values allow it",
        ),
        (
            ONE,
            np.zeros((1, 2, 2), ">f4"),
            "input 'image' must be of type float32, not >f4",
            "convert it with .astype('float32') if its values allow it",
        ),
        (
            ONE,
            with_value(float("nan")),
            "input 'image' must hold finite values, not nan at [0, 1, 0]",
            None,
        ),
        (
            ONE,
            with_value(float("-inf")),
            "input 'image' must hold finite values, not -inf at [0, 1, 0]",
            None,
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    graph: Graph, inputs: Any, message: str, hint: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        check_inputs(graph, inputs)
    assert (str(caught.value), caught.value.hint) == (message, hint)


def test_a_ragged_list_is_refused() -> None:
    with pytest.raises(InputError, match=r"^input 'image' is not an array: "):
        check_inputs(ONE, {"image": [[1.0], [2.0, 3.0]]})


def test_random_inputs_follow_the_seed() -> None:
    first, again, other = (random_inputs(TWO, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["a"], again["a"])
    assert not np.array_equal(np.stack([*first.values()]), np.stack([*other.values()]))


def test_random_inputs_cover_the_range_that_is_quantised() -> None:
    graph = Graph(
        name="wide",
        tensors={
            name: Tensor(name=name, shape=(4000,), dtype=tensor.dtype)
            for name, tensor in ONE.tensors.items()
        },
        nodes=ONE.nodes,
        inputs=ONE.inputs,
        outputs=ONE.outputs,
        constants={},
    )
    values = random_inputs(graph, 0)["image"]
    assert values.dtype == np.float32
    # int8 less a zero point of -128 is 0 to 255, times a scale of one half.
    assert 0 <= values.min() < 1
    assert 126 < values.max() <= 127.5
