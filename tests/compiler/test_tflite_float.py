"""Every float TFLite operator alone, against LiteRT's reference kernels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tflite_writer import OperatorSpec, TensorSpec, write_tflite

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers.tflite_file import OPERATORS
from tilewright.compiler.readers.tflite_reader import HANDLERS, read_tflite

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
RunLitert = Callable[[bytes, Mapping[str, Array]], dict[str, Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One operator: an operand is the shape of an input or the values of a constant."""

    name: str
    operands: tuple[Shape | Array, ...]
    results: tuple[Shape, ...]
    options_type: str = ""
    options: tuple[tuple[str, float], ...] = ()
    positive: bool = False


def ints(*values: Any) -> Array:
    """Return a constant of int32."""
    return np.array(values, np.int32)


def floats(*shape: int) -> Array:
    """Return a constant of float32."""
    return np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)


def plain(name: str, *operands: Shape | Array, **more: Any) -> Case:
    """Return a case whose result has the shape of the first input."""
    return Case(name=name, operands=operands, results=(operands[0],), **more)  # type: ignore[arg-type]


IMAGE = (1, 4, 6, 8)
CASES = (
    *(plain(name, IMAGE) for name in "ABS CEIL EXP FLOOR NEG ROUND TANH LOGISTIC".split()),
    *(plain(name, IMAGE) for name in "ELU HARD_SWISH RELU RELU6 RELU_N1_TO_1 SQUARE".split()),
    *(plain(name, IMAGE, positive=True) for name in ("LOG", "SQRT", "RSQRT")),
    plain("GELU", IMAGE, options_type="GeluOptions", options=(("Approximate", 0),)),
    plain("GELU", IMAGE, options_type="GeluOptions", options=(("Approximate", 1),)),
    plain("LEAKY_RELU", IMAGE, options_type="LeakyReluOptions", options=(("Alpha", 0.3),)),
    plain("SOFTMAX", (3, 7), options_type="SoftmaxOptions", options=(("Beta", 0.5),)),
    plain("LOG_SOFTMAX", (3, 7)),
    plain("L2_NORMALIZATION", (3, 7)),
    plain("PRELU", IMAGE, floats(1, 1, 8)),
    *(plain(name, IMAGE, (1, 1, 1, 8)) for name in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")),
    *(
        plain(name, IMAGE, (1, 1, 1, 8), options_type=f"{name.title()}Options", options=activation)
        for name in ("ADD", "SUB", "MUL")
        for activation in ((), (("FusedActivationFunction", 1),))
    ),
    plain("DIV", IMAGE, (6, 1), options_type="DivOptions", positive=True),
    plain("POW", IMAGE, IMAGE, positive=True),
    *(
        Case(
            name=name,
            operands=(IMAGE, ints(1, 3)),
            results=((1, 1, 6, 1) if keep else (1, 6),),
            options_type="ReducerOptions",
            options=(("KeepDims", keep),),
        )
        for name in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
        for keep in (0, 1)
    ),
    Case(name="CONV_2D", operands=(IMAGE, floats(5, 3, 3, 8), floats(5)), results=((1, 2, 3, 5),),
         options_type="Conv2DOptions", options=(("StrideW", 2), ("StrideH", 2))),
    Case(name="DEPTHWISE_CONV_2D", operands=(IMAGE, floats(1, 3, 3, 16)), results=((1, 2, 4, 16),),
         options_type="DepthwiseConv2DOptions",
         options=(("Padding", 1), ("StrideW", 1), ("StrideH", 1), ("DepthMultiplier", 2))),
    *(
        Case(name="TRANSPOSE_CONV",
             operands=(ints(*result), floats(5, 3, 4, 8), IMAGE, floats(5)), results=(result,),
             options_type="TransposeConvOptions",
             options=(("Padding", padding), ("StrideW", 2), ("StrideH", 3)))
        for padding, result in ((0, (1, 12, 12, 5)), (1, (1, 12, 14, 5)))
    ),
    Case(name="FULLY_CONNECTED", operands=((2, 3, 8), floats(5, 8), floats(5)), results=((6, 5),),
         options_type="FullyConnectedOptions"),
    Case(name="BATCH_MATMUL", operands=((2, 3, 4), (2, 4, 5)), results=((2, 3, 5),),
         options_type="BatchMatMulOptions"),
    Case(name="BATCH_MATMUL", operands=((2, 4, 3), (2, 5, 4)), results=((2, 3, 5),),
         options_type="BatchMatMulOptions", options=(("AdjX", 1), ("AdjY", 1))),
    Case(name="AVERAGE_POOL_2D", operands=(IMAGE,), results=((1, 2, 3, 8),),
         options_type="Pool2DOptions",
         options=(("StrideW", 2), ("StrideH", 2), ("FilterWidth", 3), ("FilterHeight", 3))),
    Case(name="MAX_POOL_2D", operands=(IMAGE,), results=((1, 2, 3, 8),),
         options_type="Pool2DOptions",
         options=(("StrideW", 2), ("StrideH", 2), ("FilterWidth", 3), ("FilterHeight", 3))),
    *(
        Case(name="RESIZE_NEAREST_NEIGHBOR", operands=(IMAGE, ints(*size)),
             results=((1, *size, 8),), options_type="ResizeNearestNeighborOptions",
             options=(("AlignCorners", corners), ("HalfPixelCenters", centres)))
        for size in ((8, 18), (7, 5))
        for corners, centres in ((0, 0), (1, 0), (0, 1))
    ),
    *(
        Case(name="RESIZE_BILINEAR", operands=(IMAGE, ints(*size)), results=((1, *size, 8),),
             options_type="ResizeBilinearOptions",
             options=(("AlignCorners", corners), ("HalfPixelCenters", centres)))
        for size in ((8, 18), (7, 5))
        for corners, centres in ((0, 0), (1, 0), (0, 1))
    ),
    Case(name="DEPTH_TO_SPACE", operands=(IMAGE,), results=((1, 8, 12, 2),),
         options_type="DepthToSpaceOptions", options=(("BlockSize", 2),)),
    Case(name="SPACE_TO_DEPTH", operands=(IMAGE,), results=((1, 2, 3, 32),),
         options_type="SpaceToDepthOptions", options=(("BlockSize", 2),)),
    Case(name="SPLIT", operands=(np.array(-1, np.int32), IMAGE), results=((1, 4, 6, 4),) * 2,
         options_type="SplitOptions", options=(("NumSplits", 2),)),
    Case(name="SPLIT_V", operands=(IMAGE, ints(1, 3, 2), np.array(2, np.int32)),
         results=((1, 4, 1, 8), (1, 4, 3, 8), (1, 4, 2, 8)),
         options_type="SplitVOptions", options=(("NumSplits", 3),)),
    Case(name="PACK", operands=((3, 4), (3, 4)), results=((3, 2, 4),), options_type="PackOptions",
         options=(("ValuesCount", 2), ("Axis", 1))),
    Case(name="UNPACK", operands=((3, 2, 4),), results=((3, 4),) * 2, options_type="UnpackOptions",
         options=(("Num", 2), ("Axis", 1))),
    Case(name="TILE", operands=((2, 3), ints(2, 3)), results=((4, 9),)),
    Case(name="BROADCAST_TO", operands=((2, 1), ints(4, 2, 3)), results=((4, 2, 3),)),
    Case(name="GATHER", operands=((5, 6), ints(3, 0, 3)), results=((5, 3),),
         options_type="GatherOptions", options=(("Axis", 1),)),
    *(
        Case(name="MIRROR_PAD", operands=((3, 4), ints([1, 2], [0, 3])), results=((6, 7),),
             options_type="MirrorPadOptions", options=(("Mode", mode),))
        for mode in (0, 1)
    ),
    Case(name="CONCATENATION", operands=((2, 3), (2, 4)), results=((2, 7),),
         options_type="ConcatenationOptions", options=(("Axis", 1),)),
    Case(name="PAD", operands=((3, 4), ints([1, 2], [0, 3])), results=((6, 7),)),
    Case(name="PADV2", operands=((3, 4), ints([1, 2], [0, 3]), np.array(1.5, np.float32)),
         results=((6, 7),)),
    Case(name="TRANSPOSE", operands=((2, 3, 4), ints(2, 0, 1)), results=((4, 2, 3),)),
    Case(name="RESHAPE", operands=((2, 6), ints(3, 4)), results=((3, 4),)),
    Case(name="SQUEEZE", operands=((2, 1, 6),), results=((2, 6),), options_type="SqueezeOptions"),
    Case(name="EXPAND_DIMS", operands=((2, 6), np.array(1, np.int32)), results=((2, 1, 6),)),
    Case(name="SLICE", operands=((4, 6), ints(1, 2), ints(2, -1)), results=((2, 4),)),
    Case(name="STRIDED_SLICE", operands=((4, 6), ints(0, 1), ints(4, 6), ints(2, 2)),
         results=((2, 3),), options_type="StridedSliceOptions"),
)  # fmt: skip


#: What LiteRT has no kernel of this version for.
IN_NUMPY: Mapping[str, Callable[[Array], Array]] = {
    "BROADCAST_TO": lambda x: np.broadcast_to(x, (4, 2, 3)),
    "CEIL": np.ceil,
    "ELU": lambda x: np.where(x < 0, np.exp(x) - 1, x),
    "ROUND": np.rint,
}


def written(case: Case) -> bytes:
    """Return the file of a case; inputs are called ``x0``, results ``y0``, by position."""
    tensors = []
    for index, operand in enumerate(case.operands):
        if isinstance(operand, tuple):
            tensors.append(TensorSpec(name=f"x{index}", shape=operand, dtype="float32"))
        else:
            dtype = str(operand.dtype)
            tensors.append(
                TensorSpec(name=f"c{index}", shape=operand.shape, dtype=dtype, data=operand)
            )
    count = len(tensors)
    tensors += [
        TensorSpec(name=f"y{index}", shape=shape, dtype="float32")
        for index, shape in enumerate(case.results)
    ]
    outputs = tuple(range(count, len(tensors)))
    operator = OperatorSpec(
        name=case.name,
        inputs=tuple(range(count)),
        outputs=outputs,
        options_type=case.options_type,
        options=case.options,
    )
    dynamic = [index for index, operand in enumerate(case.operands) if isinstance(operand, tuple)]
    return write_tflite(tensors, [operator], dynamic, list(outputs))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_are_those_of_the_reference_kernels(
    case: Case, rng: np.random.Generator, run_litert: RunLitert
) -> None:
    model = written(case)
    feeds = {}
    for index, operand in enumerate(case.operands):
        if isinstance(operand, tuple):
            values = rng.normal(0, 2, operand).astype(np.float32)
            feeds[f"x{index}"] = np.abs(values) + np.float32(0.1) if case.positive else values
    graph = lower_to_integer(read_tflite(model, "single"))
    found = evaluate(graph, feeds)
    if case.name in IN_NUMPY:
        expected = {"y0": IN_NUMPY[case.name](feeds["x0"])}
    else:
        expected = run_litert(model, feeds)
    for output in graph.outputs:
        np.testing.assert_allclose(found[output], expected[output], rtol=2e-5, atol=2e-5)


def test_every_handler_is_tested() -> None:
    assert {case.name for case in CASES} | {"QUANTIZE", "DEQUANTIZE"} == HANDLERS.keys()


def test_operators_have_the_numbers_of_the_schema() -> None:
    schema = pytest.importorskip("tflite").BuiltinOperator
    for number, name in enumerate(OPERATORS):
        assert getattr(schema, name) == number


def test_half_precision_weights_are_read_as_float32(
    rng: np.random.Generator, run_litert: RunLitert
) -> None:
    halves = rng.normal(0, 1, (5, 8)).astype(np.float16)
    tensors = [
        TensorSpec(name="h", shape=(5, 8), dtype="float16", data=halves),
        TensorSpec(name="w", shape=(5, 8), dtype="float32"),
        TensorSpec(name="x", shape=(3, 8), dtype="float32"),
        TensorSpec(name="y", shape=(3, 5), dtype="float32"),
    ]
    operators = [
        OperatorSpec(name="DEQUANTIZE", inputs=(0,), outputs=(1,)),
        OperatorSpec(
            name="FULLY_CONNECTED",
            inputs=(2, 1),
            outputs=(3,),
            options_type="FullyConnectedOptions",
        ),
    ]
    model = write_tflite(tensors, operators, [2], [3])
    feeds = {"x": rng.normal(0, 1, (3, 8)).astype(np.float32)}
    graph = lower_to_integer(read_tflite(model, "halves"))
    found, expected = evaluate(graph, feeds)["y"], run_litert(model, feeds)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
