"""TFLite files as plain data: tensors, constants and operators, checked against the file's size.

Field numbers and enumerations are those of the TFLite schema, version 3 (schema.fbs).
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph import Array
from tilewright.compiler.graph_builder import MAX_ELEMENTS
from tilewright.compiler.operators import DataType
from tilewright.compiler.readers.flatbuffer import FlatTable
from tilewright.isa.errors import ModelError

IDENTIFIER = b"TFL3"
#: Most axes of a tensor; more is taken for damage.
MAX_AXES = 8
#: TensorType by number.
ELEMENT_TYPES = (
    "float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 "
    "resource variant uint32 uint16 int4 bfloat16"
).split()
#: Element types whose constants are decoded.
CONSTANT_TYPES = ("float32", "float16", "int32", "uint8", "int64", "int16", "int8", "bool")
#: BuiltinOperator by number, as far as messages name them.
OPERATORS = (
    "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE "
    "EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D "
    "LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 "
    "RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS "
    "SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER "
    "BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE "
    "UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT "
    "LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG "
    "PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE "
    "EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD "
    "REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV "
    "REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU "
    "SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE "
    "RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE "
    "NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM "
    "BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D "
    "IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL "
    "CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS "
    "RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU"
).split()


@dataclass(frozen=True, slots=True, kw_only=True)
class TfliteTensor:
    """One tensor; `key` is its name, made unique by its index where several share a name.

    `scale` and `zero_point` are empty for a tensor that is not quantised, and hold one entry per
    element of `axis` where it is quantised per channel.
    """

    key: str
    shape: tuple[int, ...]
    dynamic_axes: tuple[int, ...]
    element_type: str
    scale: Array
    zero_point: Array
    axis: int
    constant: Array | None

    @property
    def dtype(self) -> DataType:
        """The element type, if the graph has it; half precision is float32 there."""
        if self.element_type == "float16":
            return DataType.FLOAT32
        if self.element_type not in {dtype.value for dtype in DataType}:
            raise ModelError(f"tensor {self.key!r} is {self.element_type}, which is not supported")
        return DataType(self.element_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class TfliteOperator:
    """One operator; -1 among the inputs stands for an optional input that is absent."""

    name: str
    op_type: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: FlatTable | None

    @property
    def label(self) -> str:
        """The operator as an error message names it."""
        return f"node {self.name!r}"

    def option(self, field: int, layout: str = "<i", default: int = 0) -> int:
        """Return an integer among the options."""
        return default if self.options is None else self.options.integer(field, layout, default)

    def real_option(self, field: int, default: float) -> float:
        """Return a float among the options."""
        value = default if self.options is None else self.options.real(field, default)
        if not math.isfinite(value):
            raise ModelError(f"{self.label} has an option that is not a number")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class TfliteModel:
    """The one subgraph of a model file; inputs and outputs index `tensors`."""

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def is_tflite(data: bytes) -> bool:
    """Tell whether a file says that it is a TFLite model."""
    return data[4:8] == IDENTIFIER


def unique_keys(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of tensors with these names: the names, with the index where they repeat."""
    counts = Counter(names)
    return tuple(
        name if name and counts[name] == 1 else f"{name}#{index}"
        for index, name in enumerate(names)
    )


def decode_tflite(data: bytes) -> TfliteModel:
    """Decode the bytes of a TFLite file.

    Raises
    ------
    ModelError
        If they are not a TFLite model or are damaged.
    """
    root = FlatTable.root(data)
    if root.integer(0, "<I") != 3:
        raise ModelError(f"the TFLite model has schema version {root.integer(0, '<I')}, not 3")
    subgraphs = root.tables(2)
    if len(subgraphs) != 1:
        raise ModelError(f"the TFLite model has {len(subgraphs)} subgraphs instead of one")
    graph = subgraphs[0]
    tables, buffers = graph.tables(0), root.tables(4)
    keys = unique_keys(tuple(table.text(3) for table in tables))
    tensors = tuple(_tensor(table, key, buffers) for table, key in zip(tables, keys, strict=True))
    codes = tuple(_operator_type(code) for code in root.tables(1))
    operators = tuple(
        _operator(table, index, codes, len(tensors)) for index, table in enumerate(graph.tables(3))
    )
    inputs = _indices(graph, 1, len(tensors), "the subgraph")
    outputs = _indices(graph, 2, len(tensors), "the subgraph")
    if not operators or not outputs or -1 in inputs + outputs:
        raise ModelError("the TFLite model is damaged: it computes nothing")
    return TfliteModel(tensors=tensors, operators=operators, inputs=inputs, outputs=outputs)


def _tensor(table: FlatTable, key: str, buffers: tuple[FlatTable, ...]) -> TfliteTensor:
    where = f"tensor {key!r}"
    number = table.integer(1, "<b")
    if not 0 <= number < len(ELEMENT_TYPES):
        raise ModelError(f"{where} has element type {number}, which does not exist")
    shape = table.integers(0)
    if len(shape) > MAX_AXES or any(not 0 <= size <= MAX_ELEMENTS for size in shape):
        raise ModelError(f"{where} has an impossible shape: {list(shape)}")
    if table.table(6) is not None:
        raise ModelError(f"{where} is sparse, which is not supported")
    buffer = table.integer(2, "<I")
    if buffer >= len(buffers):
        raise ModelError(f"{where} lies in buffer {buffer} of {len(buffers)}")
    signature = table.integers(7)
    scale, zero_point, axis = _quantisation(table.table(4), where)
    return TfliteTensor(
        key=key,
        shape=shape,
        dynamic_axes=tuple(index for index, size in enumerate(signature) if size < 0),
        element_type=ELEMENT_TYPES[number],
        scale=scale,
        zero_point=zero_point,
        axis=axis,
        constant=_constant(buffers[buffer], ELEMENT_TYPES[number], shape, where),
    )


def _quantisation(table: FlatTable | None, where: str) -> tuple[Array, Array, int]:
    if table is None:
        return np.zeros(0, np.float32), np.zeros(0, np.int32), 0
    scale = table.array(2, "float32").astype(np.float32)
    zero_point = table.array(3, "int64")
    if not np.isfinite(scale).all() or (scale < 0).any():
        raise ModelError(f"{where} has a scale that is not a positive number")
    if not zero_point.size:
        zero_point = np.zeros(scale.shape, np.int64)
    if zero_point.shape != scale.shape or (np.abs(zero_point) > 255).any():
        raise ModelError(f"{where} has zero points that do not suit its scales")
    if table.integer(4, "<B"):
        raise ModelError(f"{where} is quantised in a custom way, which is not supported")
    return scale, zero_point.astype(np.int32), table.integer(6)


def _constant(
    buffer: FlatTable, element_type: str, shape: tuple[int, ...], where: str
) -> Array | None:
    if buffer.integer(1, "<Q") > 1:
        raise ModelError(f"{where} lies behind the model's tables, which is not supported")
    raw = buffer.array(0, "uint8")
    if not raw.size or element_type not in CONSTANT_TYPES:
        return None
    dtype = np.dtype(element_type).newbyteorder("<")
    if raw.size != math.prod(shape) * dtype.itemsize:
        raise ModelError(f"{where} of shape {list(shape)} does not have as many values")
    wide = "float32" if element_type == "float16" else element_type
    values: Array = raw.view(dtype).astype(wide).reshape(shape)
    return values


def _operator_type(table: FlatTable) -> str:
    number = max(table.integer(0, "<b"), table.integer(3))
    if not 0 <= number < len(OPERATORS):
        return f"OPERATOR_{number}"
    return OPERATORS[number]


def _operator(table: FlatTable, index: int, codes: tuple[str, ...], tensors: int) -> TfliteOperator:
    code = table.integer(0, "<I")
    if code >= len(codes):
        raise ModelError(f"operator {index} has code {code} of {len(codes)}")
    name = f"{codes[code]}_{index}"
    return TfliteOperator(
        name=name,
        op_type=codes[code],
        inputs=_indices(table, 1, tensors, f"node {name!r}"),
        outputs=_indices(table, 2, tensors, f"node {name!r}"),
        options=table.table(4),
    )


def _indices(table: FlatTable, field: int, tensors: int, where: str) -> tuple[int, ...]:
    indices = table.integers(field)
    if any(not -1 <= index < tensors for index in indices):
        raise ModelError(f"{where} names a tensor that does not exist")
    return indices
