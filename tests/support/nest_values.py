"""Execution of an integer graph by the loop nests of its kernels, with the interpreter of nests."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilewright.compiler.compiled import Target
from tilewright.compiler.graph import Graph
from tilewright.compiler.lowering.bindings import (
    Binding,
    ConstantEntries,
    DramView,
    Fill,
    PairView,
    Terms,
    WeightBlocks,
    WeightTerms,
    WeightTiles,
)
from tilewright.compiler.lowering.lower import generate_code
from tilewright.compiler.lowering.placement import place
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.interpreter import interpret
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.integers import MULTIPLIER_BITS


def run_nests(
    graph: Graph, inputs: Mapping[str, np.ndarray], config: AcceleratorConfig, *, keep: bool
) -> dict[str, np.ndarray]:
    """Return all tensors of a graph that runs on the accelerator as a whole, as the nests say."""
    placed = place(graph, config)
    assert all(stage.target is Target.ACCELERATOR for stage in placed.stages)
    values: dict[str, np.ndarray] = {}
    for stage in placed.stages:
        code = generate_code(stage.nodes, placed.kernels, graph, config, keep_intermediates=keep)
        blocked = {name: _empty(tensor) for name, tensor in code.tensors.items()}
        for name, array in code.stage.constants.items():
            blocked[name][...] = (
                code.tensors[name].pack(array).view(np.int8).reshape(blocked[name].shape)
            )
        for name in code.stage.inputs:
            array = inputs[name]
            if name in code.stage.folds:
                name, rule = code.stage.folds[name]
                array = rule.apply(array)
            packed = code.tensors[name].pack(array).view(np.int8)
            blocked[name][...] = packed.reshape(blocked[name].shape)
        for schedule in code.schedules:
            nest = lower(schedule.tensor_schedule())
            bindings = schedule.bindings(code.tensors)
            arrays = {
                tensor.name: _input(tensor, bindings[tensor.name], blocked)
                for tensor in nest.inputs
            }
            result = interpret(nest, arrays, schedule.scalars())["y"]
            _write(result, bindings["y"], blocked)
        for name, tensor in code.tensors.items():
            values[name] = tensor.unpack(blocked[name].view(np.uint8).reshape(-1))
    return values


def _empty(tensor: BlockedTensor) -> np.ndarray:
    """``[group, block, row, column, bytes of a pixel]``."""
    shape = (tensor.groups, tensor.blocks, tensor.shape.height, tensor.shape.width)
    return np.zeros((*shape, tensor.pixel_bytes), np.int8)


def _part(binding: Binding, shape: tuple[int, ...]) -> tuple[slice, ...]:
    assert isinstance(binding, DramView)
    begins = (0, binding.block, binding.row, binding.column)
    return tuple(slice(begin, begin + size) for begin, size in zip(begins, shape, strict=False))


def _input(tensor: Tensor, binding: Binding, blocked: Mapping[str, np.ndarray]) -> np.ndarray:
    if isinstance(binding, DramView):
        view = blocked[binding.name][_part(binding, tensor.shape)]
        return np.ascontiguousarray(view).reshape(tensor.shape)
    if isinstance(binding, Terms):
        parts = [_input(_without_first(tensor), term, blocked) for term in binding.terms]
        return np.stack(parts)
    if isinstance(binding, WeightTerms):
        parts = [_input(_without_first(tensor), term, blocked) for term in binding.terms]
        return np.stack([np.broadcast_to(part, tensor.shape[1:]) for part in parts])
    if isinstance(binding, WeightTiles):
        groups, rows, blocks, parts, from_blocks, from_parts, *entry = tensor.shape
        stored = blocked[binding.view.name].reshape(
            groups, from_blocks, from_parts, rows, blocks, parts, *entry
        )
        return np.ascontiguousarray(stored.transpose(0, 3, 4, 5, 1, 2, 6, 7))
    if isinstance(binding, PairView):
        view = binding.pairs
        groups, blocks, rows, columns, *_ = tensor.shape
        pairs = blocked[view.name][:groups, :blocks, :rows, : 2 * columns]
        return np.ascontiguousarray(pairs).view("<i2").reshape(tensor.shape)
    if isinstance(binding, Fill):
        return np.full(tensor.shape, binding.value, np.int8)
    if isinstance(binding, WeightBlocks):
        tiles = np.where(binding.present[..., None, None], binding.tiles, 0)
        return tiles.astype(np.int8).reshape(tiles.shape[-len(tensor.shape) :])
    assert isinstance(binding, ConstantEntries)
    data = np.ascontiguousarray(binding.entries)
    if tensor.dtype is not ScalarType.INT32:
        return data.view(tensor.dtype.numpy).reshape(tensor.shape)
    words = data.view("<u4").reshape(*tensor.shape[:-1], 2).astype(np.int64)
    bias = words[..., 0].astype(np.uint32).view(np.int32)
    scale, shift = words[..., 1] % (1 << MULTIPLIER_BITS), words[..., 1] >> MULTIPLIER_BITS
    return np.stack([bias, scale, shift], axis=-1).astype(np.int32)


def _without_first(tensor: Tensor) -> Tensor:
    return replace(tensor, shape=tensor.shape[1:])


def _write(result: np.ndarray, binding: Binding, blocked: Mapping[str, np.ndarray]) -> None:
    assert isinstance(binding, DramView)
    shape = result.shape
    if result.ndim == 9:  # Rows and columns are two axes each.
        shape = (*shape[:2], shape[2] * shape[3], shape[4] * shape[5])
    target = blocked[binding.name][_part(binding, shape)]
    target[...] = result.reshape(target.shape)
