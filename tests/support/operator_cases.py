"""Every operator of the graph at least once, with operands: for devices that must agree."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph import Graph, Node, Tensor
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
from tilewright.compiler.operators.inference import infer
from tilewright.compiler.operators.tensor_type import TensorType

INTEGER_RANGE = {"zero_point": 3, "low": -120, "high": 125}
SCALE = {"multiplier": 12_345_678, "shift": 33}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCase:
    """An operator, its operands, and how far a result may be from the graph's definition.

    The last `constants` operands are known when a network is compiled.
    """

    op: Operator
    operands: tuple[np.ndarray, ...]
    constants: int = 0
    tolerance: float = 0.0

    @property
    def name(self) -> str:
        shapes = " ".join("x".join(map(str, one.shape)) or "1" for one in self.operands)
        function = getattr(self.op, "function", None)
        return f"{type(self.op).__name__}{f' {function.value}' if function else ''} {shapes}"

    @property
    def graph(self) -> Graph:
        """A graph of the one operator."""
        names = tuple(f"in{number}" for number in range(len(self.operands)))
        tensors = {
            name: Tensor(name=name, shape=one.shape, dtype=DataType(str(one.dtype)))
            for name, one in zip(names, self.operands, strict=True)
        }
        types = tuple(TensorType(tensor.shape, tensor.dtype) for tensor in tensors.values())
        kind = infer(self.op, types)
        tensors["out"] = Tensor(name="out", shape=kind.shape, dtype=kind.dtype)
        first = len(names) - self.constants
        return Graph(
            name="single",
            tensors=tensors,
            nodes=(Node(name="node", op=self.op, inputs=names, outputs=("out",)),),
            inputs=names[:first],
            outputs=("out",),
            constants=dict(zip(names[first:], self.operands[first:], strict=True)),
        )

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Values of the graph's inputs."""
        pairs = zip(self.graph.inputs, self.operands, strict=False)
        return dict(pairs)


class _Values:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def int8(self, *shape: int) -> np.ndarray:
        return self.rng.integers(-128, 128, shape).astype(np.int8)

    def int32(self, low: int, high: int, *shape: int) -> np.ndarray:
        return self.rng.integers(low, high, shape).astype(np.int32)

    def real(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def factors(self, outputs: int) -> tuple[np.ndarray, ...]:
        return (
            self.int32(-9000, 9000, outputs),
            self.int32(1 << 23, 1 << 24, outputs),
            self.int32(30, 36, outputs),
        )


def operator_cases() -> tuple[OperatorCase, ...]:
    """Return the cases; they are the same in every call."""
    values = _Values(seed=7)
    return (
        *_integer_convolutions(values),
        *_integer_cases(values),
        *_movement_cases(values),
        *_conversion_cases(values),
        *_float_window_cases(values),
        *_float_cases(values),
        *_logic_cases(values),
    )


def _integer_convolutions(v: _Values) -> Iterator[OperatorCase]:
    x = v.int8(1, 6, 7, 8)
    for attributes, kernel in (
        ({"pads": (1, 1, 1, 1)}, (3, 3)),
        ({"stride": (2, 1), "dilation": (1, 2), "pads": (0, 1, 2, 0)}, (2, 3)),
        ({"groups": 8, "pads": (1, 0, 0, 1), "stride": (2, 2)}, (3, 3)),
        ({"groups": 2}, (1, 2)),
    ):
        op = Conv2d(**attributes, input_zero_point=-4, **INTEGER_RANGE)
        for outputs in (8, 20) if op.groups == 1 else (16,):
            weights = v.int8(outputs, *kernel, 8 // op.groups)
            operands = (x, weights, *v.factors(outputs))
            yield OperatorCase(op=op, operands=operands, constants=4)
    wide = v.int32(-255, 256, 5, 1, 1, 8).astype(np.int16)
    plain = Conv2d(input_zero_point=-4, **INTEGER_RANGE)
    yield OperatorCase(op=plain, operands=(x, wide, *v.factors(5)), constants=4)
    few = v.int8(1, 1, 1, 300)
    operands = (few, v.int8(10, 1, 1, 300), *v.factors(10))
    yield OperatorCase(op=plain, operands=operands, constants=4)
    for attributes in (
        {"stride": (2, 3), "pads": (1, 0, 1, 2), "extra": (0, 1)},
        {"dilation": (2, 1), "groups": 2},
    ):
        transposed = ConvTranspose2d(**attributes, input_zero_point=5, **INTEGER_RANGE)
        weights = v.int8(6, 4, 3, 8 // transposed.groups)
        operands = (x[:, :3, :4], weights, *v.factors(6))
        yield OperatorCase(op=transposed, operands=operands, constants=4)


def _integer_cases(v: _Values) -> Iterator[OperatorCase]:
    x, y = v.int8(2, 5, 6, 8), v.int8(2, 5, 6, 8)
    add = Add(a_coefficient=12_000, b_coefficient=-3_000, bias=777, multiplier=9_000_000,
              shift=36, **INTEGER_RANGE)  # fmt: skip
    mul = Mul(a_zero_point=3, b_zero_point=-5, multiplier=9_000_000, shift=30, **INTEGER_RANGE)
    yield OperatorCase(op=add, operands=(x, y))
    yield OperatorCase(op=add, operands=(x, v.int8(6, 1)))
    yield OperatorCase(op=mul, operands=(v.int8(1, 8), x))
    for shapes in (((2, 9, 20), (20, 12)), ((3, 1, 7, 40), (1, 2, 40, 33))):
        for zeros in ((0, 0), (4, -7)):
            product = MatMul(a_zero_point=zeros[0], b_zero_point=zeros[1], multiplier=1 << 23,
                             shift=35, **INTEGER_RANGE)  # fmt: skip
            yield OperatorCase(op=product, operands=tuple(v.int8(*shape) for shape in shapes))
    border = (BorderScale(count=2, multiplier=1 << 23, shift=25),
              BorderScale(count=4, multiplier=1 << 23, shift=26))  # fmt: skip
    pool = {"kernel": (2, 3), "stride": (1, 2), "pads": (1, 1, 0, 1)}
    window = {**pool, "input_zero_point": -9, **INTEGER_RANGE, "multiplier": 11_111_111}
    yield OperatorCase(op=AveragePool2d(**window, shift=26, border=border), operands=(x,))
    image = {**window, "kernel": (16, 16), "stride": (16, 16), "pads": (0, 0, 0, 0), "shift": 31}
    yield OperatorCase(op=AveragePool2d(**image), operands=(v.int8(1, 16, 16, 6),))
    rescale = Requantize(bias=5, multiplier=9_999_999, shift=23, **INTEGER_RANGE)
    yield OperatorCase(op=rescale, operands=(x,))
    yield OperatorCase(op=Clip(low=-7, high=30), operands=(v.int8(3, 5),))
    yield OperatorCase(op=Lookup(), operands=(x, v.int8(256)), constants=1)
    table = np.rint(2.0**30 * np.exp(-np.arange(256) * 0.05)).astype(np.int32)
    for shape in ((3, 10), (2, 3, 130)):
        softmax = Softmax(scale=1 / 256, zero_point=-128)
        yield OperatorCase(op=softmax, operands=(v.int8(*shape), table), constants=1)
        gains = v.real(shape[-1]) * 20, v.real(shape[-1])
        norm = LayerNorm(floor=1.5, **INTEGER_RANGE)
        yield OperatorCase(op=norm, operands=(v.int8(*shape), *gains), constants=2)


def _movement_cases(v: _Values) -> Iterator[OperatorCase]:
    x = v.int8(1, 6, 8, 4)
    pool = MaxPool2d(kernel=(3, 2), stride=(2, 1), pads=(1, 0, 1, 1))
    yield OperatorCase(op=pool, operands=(x,))
    yield OperatorCase(op=pool, operands=(v.real(1, 6, 8, 4),))
    yield OperatorCase(op=Reshape(shape=(12, 16)), operands=(x,))
    yield OperatorCase(op=Transpose(permutation=(0, 3, 1, 2)), operands=(x,))
    part = Slice(begin=(0, 1, 0, 1), end=(1, 6, 7, 4), stride=(1, 2, 3, 1))
    yield OperatorCase(op=part, operands=(x,))
    pad = Pad(before=(0, 1, 0, 2), after=(1, 0, 2, 0), value=-5)
    yield OperatorCase(op=pad, operands=(x,))
    yield OperatorCase(op=Concat(axis=3), operands=(x, v.int8(1, 6, 8, 3), x))
    yield OperatorCase(op=Expand(shape=(3, 5, 8)), operands=(v.int8(5, 1),))
    yield OperatorCase(op=Upsample2d(factor=(2, 3)), operands=(x,))
    entries = np.array([[2, -1], [0, -3]], np.int64)
    yield OperatorCase(op=Gather(axis=1), operands=(x, entries), constants=1)
    yield OperatorCase(op=Gather(axis=0), operands=(v.real(9, 7), v.int32(-9, 9, 4)))


def _conversion_cases(v: _Values) -> Iterator[OperatorCase]:
    real, signed = v.real(4, 6) * 3, v.int8(4, 6)
    real[0, :4] = 0.05, 0.15, -0.25, 1e6
    yield OperatorCase(op=Quantize(scale=0.1, zero_point=3), operands=(real,))
    unsigned = Quantize(scale=0.1, zero_point=130, dtype=DataType.UINT8)
    yield OperatorCase(op=unsigned, operands=(real,))
    yield OperatorCase(op=Dequantize(scale=0.037, zero_point=-12), operands=(signed,))
    scale, zeros = np.array([0.5, 0.03, 0.7, 1.5], np.float32), np.array([0, 3, -4, 9], np.int32)
    weights = DequantizeWeights(axis=0)
    yield OperatorCase(op=weights, operands=(signed, scale, zeros), constants=2)
    yield OperatorCase(op=Reinterpret(dtype=DataType.UINT8), operands=(signed,))
    yield OperatorCase(op=Reinterpret(dtype=DataType.INT8), operands=(signed.view(np.uint8),))


def _float_window_cases(v: _Values) -> Iterator[OperatorCase]:
    x = v.real(1, 6, 7, 8)
    for op, weights in (
        (FloatConv2d(pads=(1, 1, 1, 1)), v.real(12, 3, 3, 8)),
        (FloatConv2d(stride=(2, 2), groups=8), v.real(8, 3, 3, 1)),
        (FloatConvTranspose2d(stride=(2, 2), pads=(1, 1, 0, 0)), v.real(5, 3, 3, 8)),
    ):
        bias = v.real(weights.shape[0])
        yield OperatorCase(op=op, operands=(x, weights, bias), constants=2, tolerance=1e-4)
        yield OperatorCase(op=op, operands=(x, weights), tolerance=1e-4)
    pool = {"kernel": (2, 3), "stride": (1, 2), "pads": (1, 0, 0, 1)}
    for padded in (False, True):
        mean = FloatAveragePool2d(**pool, count_include_pad=padded)
        yield OperatorCase(op=mean, operands=(x,), tolerance=1e-6)
    indices, weights = v.int32(0, 6, 9, 2), v.real(9, 2)
    resize = FloatInterpolate(axis=1)
    yield OperatorCase(op=resize, operands=(x, indices, weights), constants=2, tolerance=1e-6)


def _float_cases(v: _Values) -> Iterator[OperatorCase]:
    dense = (v.real(2, 9, 40), v.real(11, 40), v.real(11))
    yield OperatorCase(op=FloatDense(), operands=dense, constants=2, tolerance=1e-4)
    yield OperatorCase(op=FloatDense(), operands=(v.real(1, 200), v.real(3, 200)), tolerance=1e-4)
    for shapes in (((2, 9, 20), (20, 12)), ((3, 1, 7, 40), (1, 2, 40, 33))):
        operands = tuple(v.real(*shape) for shape in shapes)
        yield OperatorCase(op=FloatMatMul(), operands=operands, tolerance=1e-4)
    a, b = v.real(2, 3, 4), v.real(3, 1)
    for function in BinaryFunction:
        first = np.abs(a) if function is BinaryFunction.POWER else a
        binary = FloatBinary(function=function)
        yield OperatorCase(op=binary, operands=(first, b), tolerance=1e-5)
    for function in Function:
        domain = np.abs(a) + 0.1 if function in (Function.LOG, Function.SQRT) else a
        unary = FloatUnary(function=function, alpha=0.3, beta=0.4)
        yield OperatorCase(op=unary, operands=(domain,), tolerance=1e-5)
    yield OperatorCase(op=FloatClip(low=-0.5, high=float("inf")), operands=(a,))
    for shape in ((3, 10), (2, 3, 130)):
        x = v.real(*shape)
        for logarithm in (False, True):
            softmax = FloatSoftmax(beta=0.5, logarithm=logarithm)
            yield OperatorCase(op=softmax, operands=(x,), tolerance=1e-5)
        norm = (x, v.real(shape[-1]), v.real(shape[-1]))
        yield OperatorCase(
            op=FloatLayerNorm(epsilon=1e-5), operands=norm, constants=2, tolerance=1e-4
        )
        for function in Reduction:
            reduce = FloatReduce(function=function, axes=(0, len(shape) - 1))
            yield OperatorCase(op=reduce, operands=(x * 0.1 + 1,), tolerance=1e-3)


def _logic_cases(v: _Values) -> Iterator[OperatorCase]:
    a, b = v.int32(-2, 3, 3, 4), v.int32(-2, 3, 4)
    for relation in Relation:
        yield OperatorCase(op=Compare(relation=relation), operands=(a, b))
    for connective in Connective:
        operands = (a > 0,) if connective is Connective.NOT else (a > 0, b > 0)
        yield OperatorCase(op=Logical(connective=connective), operands=operands)
    yield OperatorCase(op=Select(), operands=(a > 0, a, b))
    yield OperatorCase(op=Cast(dtype=DataType.BOOL), operands=(a,))
    yield OperatorCase(op=Cast(dtype=DataType.INT64), operands=(v.real(3, 4) * 9,))
    yield OperatorCase(op=Cast(dtype=DataType.FLOAT32), operands=(a > 0,))
