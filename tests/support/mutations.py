"""Damage to model files: bytes flipped, cut, spliced; valid ONNX files with invalid contents."""

import random
from collections.abc import Sequence

import onnx

#: Numbers at which sizes, offsets and attributes go wrong.
EXTREMES = (0, 1, -1, 2, 127, 255, 65_535, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**62))
WORDS = tuple((value % 2**32).to_bytes(4, "little") for value in EXTREMES)


def mutated_bytes(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Return `data` damaged in one of several ways; `others` are files to splice from."""
    damaged = bytearray(data)
    kind = rng.randrange(5)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        for _ in range(rng.choice((1, 1, 2, 4, 16, 64))):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        for _ in range(rng.choice((1, 2, 8))):
            position = rng.randrange(len(damaged))
            damaged[position : position + 4] = rng.choice(WORDS)
    elif kind == 3:
        other = rng.choice(others)
        start, length = rng.randrange(len(other)), rng.randrange(1, 200)
        position = rng.randrange(len(damaged))
        damaged[position : position + length] = other[start : start + length]
    else:
        position, length = rng.randrange(len(damaged)), rng.randrange(1, 64)
        if rng.random() < 0.5:
            del damaged[position : position + length]
        else:
            damaged[position:position] = damaged[position : position + length]
    return bytes(damaged)


def mutated_network(data: bytes, kinds: Sequence[str], rng: random.Random) -> bytes:
    """Return a valid ONNX file whose graph has had one to three things changed.

    `kinds` are operator names to put in the place of others.
    """
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.randrange(1, 4)):
        _mutate_graph(model.graph, kinds, rng)
    mutated: bytes = model.SerializeToString()
    return mutated


def _mutate_graph(graph: onnx.GraphProto, kinds: Sequence[str], rng: random.Random) -> None:
    kind = rng.randrange(8)
    node = rng.choice(graph.node)
    if kind == 0:
        node.op_type = rng.choice(kinds)
    elif kind == 1 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(
            ["", *(name for other in graph.node for name in other.output)]
        )
    elif kind == 2 and node.input:
        del node.input[rng.randrange(len(node.input))]
    elif kind == 3:
        node.input.append(rng.choice([tensor.name for tensor in graph.initializer]))
    elif kind == 4:
        _mutate_attribute(node, rng)
    elif kind == 5 and graph.initializer:
        _mutate_tensor(rng.choice(graph.initializer), rng)
    elif kind == 6:
        axes = rng.choice(graph.input).type.tensor_type.shape.dim
        if axes:
            rng.choice(axes).dim_value = rng.choice(EXTREMES)
    elif kind == 7 and len(graph.node) > 1:
        graph.node.remove(node)


def _mutate_attribute(node: onnx.NodeProto, rng: random.Random) -> None:
    if not node.attribute or rng.random() < 0.3:
        name = rng.choice(("axis", "pads", "strides", "perm", "group", "kernel_shape", "alpha"))
        if not any(item.name == name for item in node.attribute):
            node.attribute.append(onnx.helper.make_attribute(name, rng.choice(EXTREMES)))
        return
    attribute = rng.choice(node.attribute)
    if attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(EXTREMES)
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(EXTREMES)
    else:
        node.attribute.remove(attribute)


def _mutate_tensor(tensor: onnx.TensorProto, rng: random.Random) -> None:
    kind = rng.randrange(4)
    if kind == 0 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(EXTREMES)
    elif kind == 1:
        tensor.data_type = rng.randrange(25)
    elif kind == 2 and tensor.raw_data:
        raw = bytearray(tensor.raw_data)
        for _ in range(rng.randrange(1, 9)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        tensor.raw_data = bytes(raw)
    elif kind == 3 and tensor.raw_data:
        values = [rng.choice(EXTREMES) for _ in range(len(tensor.raw_data) // 8)]
        tensor.raw_data = (
            b"".join((value % 2**64).to_bytes(8, "little") for value in values) or tensor.raw_data
        )
