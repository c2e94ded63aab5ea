"""Every class of a compiled graph survives the way through records, and nothing else gets in."""

import dataclasses
import json
from typing import Any, get_args

import numpy as np
import pytest

from tilewright.compiler.compiled import CompiledGraph
from tilewright.compiler.graph import Array, Node, Tensor
from tilewright.compiler.operators import (
    Add,
    AveragePool2d,
    BinaryFunction,
    BorderScale,
    Cast,
    Clip,
    Compare,
    Concat,
    Connective,
    Conv2d,
    ConvTranspose2d,
    DataType,
    Dequantize,
    DequantizeWeights,
    Expand,
    FloatAveragePool2d,
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatInterpolate,
    FloatLayerNorm,
    FloatMatMul,
    FloatReduce,
    FloatSoftmax,
    FloatUnary,
    Function,
    Gather,
    LayerNorm,
    Logical,
    Lookup,
    MatMul,
    MaxPool2d,
    Mul,
    Operator,
    Pad,
    Quantize,
    Reduction,
    Reinterpret,
    Relation,
    Requantize,
    Reshape,
    Select,
    Slice,
    Softmax,
    Transpose,
    Upsample2d,
)
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.records import RecordError, from_record, to_record

SCALE = {"multiplier": 3, "shift": 7, "zero_point": -1, "low": -128, "high": 127}

OPERATORS: tuple[Operator, ...] = (
    Conv2d(stride=(1, 2), pads=(0, 1, 2, 3), input_zero_point=5, zero_point=-3, low=0, high=9),
    Add(a_coefficient=1, b_coefficient=-2, bias=7, **SCALE),
    AveragePool2d(
        kernel=(2, 3),
        stride=(1, 1),
        input_zero_point=0,
        border=(BorderScale(count=1, multiplier=2, shift=3),),
        **SCALE,
    ),
    Requantize(bias=-4, **SCALE),
    Clip(low=-5, high=6),
    Lookup(),
    Softmax(scale=0.1, zero_point=-128),
    MaxPool2d(kernel=(2, 2), stride=(2, 2)),
    Reshape(shape=(1, 2, 3)),
    Transpose(permutation=(0, 2, 1)),
    Slice(begin=(0, 1), end=(2, 3), stride=(1, 2)),
    Pad(before=(0, 1), after=(2, 0), value=-1.5),
    Concat(axis=3),
    Quantize(scale=1 / 3, zero_point=4, dtype=DataType.UINT8),
    Dequantize(scale=1e-30, zero_point=0),
    DequantizeWeights(axis=1),
    Reinterpret(dtype=DataType.INT8),
    FloatConv2d(groups=3),
    FloatDense(),
    ConvTranspose2d(stride=(2, 1), extra=(1, 0), input_zero_point=5, zero_point=-3, low=0, high=9),
    MatMul(a_zero_point=1, b_zero_point=-2, **SCALE),
    Mul(a_zero_point=1, b_zero_point=-2, **SCALE),
    LayerNorm(floor=0.5, zero_point=3, low=-128, high=127),
    Expand(shape=(2, 3)),
    Upsample2d(factor=(2, 3)),
    Gather(axis=1),
    Cast(dtype=DataType.INT64),
    Compare(relation=Relation.LESS_OR_EQUAL),
    Logical(connective=Connective.XOR),
    Select(),
    FloatConvTranspose2d(pads=(0, 1, 2, 3)),
    FloatMatMul(),
    FloatBinary(function=BinaryFunction.PRELU),
    FloatReduce(function=Reduction.PRODUCT, axes=(1, 2)),
    FloatLayerNorm(epsilon=1e-5),
    FloatInterpolate(axis=2),
    FloatAveragePool2d(kernel=(1, 1), stride=(1, 1), count_include_pad=True),
    FloatClip(low=-1.0, high=float("inf")),
    FloatSoftmax(beta=2.0, logarithm=True),
    FloatUnary(function=Function.ELU, alpha=0.5),
)

TENSOR = {"name": "x", "shape": [1, 2], "dtype": "int8", "scale": None, "zero_point": None}


def test_the_examples_are_the_closed_set() -> None:
    assert {type(op) for op in OPERATORS} == set(get_args(Operator))


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: type(op).__name__)
def test_an_operator_survives(op: Operator) -> None:
    record = json.loads(json.dumps(to_record(Operator, op, [])))
    assert list(record) == [type(op).__name__]
    assert from_record(Operator, record, (), "op") == op


@pytest.mark.parametrize("dtype", [item.value for item in DataType])
def test_an_array_survives(dtype: str, rng: np.random.Generator) -> None:
    values = rng.integers(0, 100, (2, 3, 4)).astype(dtype)[:, ::-1]
    sections: list[bytes] = [b"another"]
    record = to_record(Array, values, sections)
    assert record == {"section": 1, "dtype": dtype, "shape": [2, 3, 4]}
    found = from_record(Array, record, [memoryview(item) for item in sections], "array")
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


def test_a_compiled_graph_survives(compiled_digits: CompiledModel) -> None:
    sections: list[bytes] = []
    record = json.loads(json.dumps(to_record(CompiledGraph, compiled_digits.compiled, sections)))
    views = [memoryview(section) for section in sections]
    found: CompiledGraph = from_record(CompiledGraph, record, views, "compiled")
    assert found.config == compiled_digits.config
    assert found.steps == compiled_digits.compiled.steps
    assert found.placement == compiled_digits.placement
    assert found.graph.nodes == compiled_digits.graph.nodes
    assert found.graph.tensors == compiled_digits.graph.tensors
    assert found.graph.outputs == compiled_digits.graph.outputs
    assert found.graph.constants.keys() == compiled_digits.graph.constants.keys()
    for name, values in compiled_digits.graph.constants.items():
        np.testing.assert_array_equal(found.graph.constants[name], values)


@pytest.mark.parametrize(
    ("hint", "record", "message"),
    [
        (Operator, {"Conv3d": {}}, "here cannot be a 'Conv3d'"),
        (Operator, {"Lookup": {}, "Clip": {}}, "here must name one class, not 2"),
        (Operator, [], "here must be of type dict, not []"),
        (Operator, {"Clip": {"low": 1}}, "here has or lacks the field 'high'"),
        (Operator, {"Lookup": {"low": 1}}, "here has or lacks the field 'low'"),
        (Operator, {"Clip": {"low": 1, "high": True}}, "here.high must be of type int, not True"),
        (Operator, {"Clip": {"low": 1, "high": 2.0}}, "here.high must be of type int, not 2.0"),
        (Operator, {"Reinterpret": {"dtype": "int128"}}, "here.dtype cannot be 'int128'"),
        (Operator, {"Reinterpret": {"dtype": []}}, "here.dtype cannot be []"),
        (tuple[int, int], [1], "here must have 2 items, not 1"),
        (tuple[int, ...], [1, "2"], "here[1] must be of type int, not '2'"),
        (Tensor, TENSOR, "here has or lacks the field 'source'"),
        (Tensor, TENSOR | {"source": 3}, "here.source must be of type dict, not 3"),
        (
            Array,
            {"section": 1, "dtype": "int8", "shape": [4]},
            "here names section 1 of 1",
        ),
        (
            Array,
            {"section": 0, "dtype": "int8", "shape": [5]},
            "here of 4 bytes does not hold int8[5]",
        ),
        (
            Array,
            {"section": 0, "dtype": "int8", "shape": [-2, -2]},
            "here of 4 bytes does not hold int8[-2, -2]",
        ),
    ],
)
def test_another_record_is_refused(hint: Any, record: Any, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        from_record(hint, record, [memoryview(b"data")], "here")
    assert str(caught.value) == message


def test_a_record_keeps_the_types_of_its_class() -> None:
    node = Node(name="n", op=Lookup(), inputs=("x", "t"), outputs=("y",))
    found = from_record(Node, to_record(Node, node, []), (), "node")
    assert found == node
    assert [type(getattr(found, field.name)) for field in dataclasses.fields(found)] == [
        str,
        Lookup,
        tuple,
        tuple,
        str,
    ]
