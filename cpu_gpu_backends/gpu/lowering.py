"""A layer as kernels: declared, arranged for a device, lowered and bound."""

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from typing_extensions import assert_never

from tilewright.compiler.tensor.build import cast
from tilewright.compiler.tensor.declare import compute, placeholder
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.operators.from_graph import declare_operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopNest
from tilewright.cpu_gpu_backends.gpu.attention_form import attention_length, declare_attention
from tilewright.cpu_gpu_backends.gpu.attention_schedule import (
    AttentionSizes,
    AttentionTile,
    arrange_attention,
    attention_tiles,
)
from tilewright.cpu_gpu_backends.gpu.binding import KernelSet, bind_nest
from tilewright.cpu_gpu_backends.gpu.device import Capability
from tilewright.cpu_gpu_backends.gpu.layers import Layer
from tilewright.cpu_gpu_backends.gpu.matrix_form import (
    MatrixForm,
    MatrixSizes,
    PackedWeights,
    declare_matrix_form,
    matrix_sizes,
)
from tilewright.cpu_gpu_backends.gpu.matrix_schedule import arrange_matrix, dot4
from tilewright.cpu_gpu_backends.gpu.row_schedule import (
    ROW_CHOICES,
    RowChoice,
    arrange_rows,
    arrange_sums,
)
from tilewright.cpu_gpu_backends.gpu.tiles import MatrixTile, WarpTile, matrix_tiles, warp_tiles
from tilewright.cpu_gpu_backends.gpu.warp_schedule import arrange_warps, warp_intrinsics
from tilewright.cpu_gpu_backends.gpu.winograd import (
    WinogradTile,
    arrange_winograd,
    declare_winograd,
    saves_time,
    winograd_tiles,
)
from tilewright.cpu_gpu_backends.winograd import Transforms

#: Products with fewer rows are sums that the threads of a block share.
_FEWEST_ROWS = 4

Choice: TypeAlias = MatrixTile | WarpTile | WinogradTile | AttentionTile | RowChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredLayer:
    """The kernels of a layer.

    Attributes
    ----------
    nest
        The loops that the kernels carry out.
    packed
        For each constant that the kernels read packed, how.
    """

    nest: LoopNest
    kernels: KernelSet
    packed: dict[str, PackedWeights]


def choices_of(
    layer: Layer, capability: Capability, *, winograd: bool = True
) -> tuple[Choice, ...]:
    """Return the search space of a layer on a device, the default choice first.

    Without `winograd`, convolutions are sums of products as they are defined.
    """
    if attention_length(layer.nodes):
        return attention_tiles(_attention_sizes(layer), capability)
    sizes = _product_sizes(layer)
    if sizes is None:
        return ROW_CHOICES
    dtype = layer.stored(layer.anchor.inputs[0])
    warps = warp_tiles(sizes, dtype, capability) if _suits_warps(layer) else ()
    products: tuple[Choice, ...] = (*warps, *matrix_tiles(sizes, dtype, capability))
    filtered = winograd_tiles(layer, capability) if winograd else ()
    return (*filtered, *products) if filtered and saves_time(layer) else (*products, *filtered)


def _attention_sizes(layer: Layer) -> AttentionSizes:
    last = layer.nodes[attention_length(layer.nodes) - 1]
    *leading, queries, head = layer.tensors[last.outputs[0]].shape
    length = layer.tensors[layer.anchor.inputs[0]].shape[-1]
    return AttentionSizes(
        count=prod(leading), queries=queries, key_length=length, value_length=head
    )


def _suits_warps(layer: Layer) -> bool:
    """Whether matrix instructions take the operands of a product."""
    factors = {layer.stored(name) for name in layer.anchor.inputs[:2]}
    return factors in ({ScalarType.INT8}, {ScalarType.FLOAT16})


def _product_sizes(layer: Layer) -> MatrixSizes | None:
    """Return the extents of a product that is worth tiles."""
    sizes = matrix_sizes(layer, layer.anchor)
    return None if sizes is None or sizes.m < _FEWEST_ROWS else sizes


def lower_layer(layer: Layer, choice: Choice, capability: Capability, name: str) -> LoweredLayer:
    """Return the kernels of `layer`, called ``name`` or ``name_0 name_1 ...``.

    Raises
    ------
    ScheduleError, KernelError
        If the choice does not suit the layer.
    """
    stored = {
        tensor.name: placeholder(tensor.shape, layer.stored(tensor.name), tensor.name)
        for tensor in layer.types
        if tensor.name in layer.inputs
    }
    inputs = {name: _computed_with(tensor) for name, tensor in stored.items()}
    packed: dict[str, PackedWeights] = {}
    match choice:
        case WinogradTile():
            schedule, packed = _winograd_schedule(layer, inputs, choice)
        case MatrixTile() | WarpTile():
            form = declare_matrix_form(layer, layer.anchor, stored, inputs, choice.padding)
            schedule = _product_schedule(_with_tail(layer, inputs, form.result), form, choice)
            packed = _packed(form)
        case AttentionTile():
            schedule = _attention_schedule(layer, stored, inputs, choice)
        case RowChoice():
            anchor = layer.anchor
            operands = tuple(inputs[operand] for operand in anchor.inputs)
            result = declare_operator(anchor.op, operands, anchor.outputs[0])
            schedule = Schedule(_with_tail(layer, inputs, result))
            inline_stages(schedule)
            arrange_rows(schedule, capability, choice)
        case _:
            assert_never(choice)
    nest = lower(schedule)
    return LoweredLayer(nest=nest, kernels=bind_nest(nest, name), packed=packed)


def _attention_schedule(
    layer: Layer, stored: dict[str, Tensor], inputs: dict[str, Tensor], tile: AttentionTile
) -> Schedule:
    form = declare_attention(layer, stored, inputs)
    schedule = Schedule(_with_tail(layer, inputs, form.result, attention_length(layer.nodes)))
    kept = (form.query, form.key, form.value, form.scores, form.weights)
    inline_stages(schedule, keep=tuple(tensor.name for tensor in kept))
    arrange_attention(schedule, form, tile)
    return schedule


def _winograd_schedule(
    layer: Layer, inputs: dict[str, Tensor], tile: WinogradTile
) -> tuple[Schedule, dict[str, PackedWeights]]:
    form = declare_winograd(layer, inputs, tile)
    schedule = Schedule(_with_tail(layer, inputs, form.result))
    halves = (f"{tensor.name}.half" for tensor in (form.frequencies, form.sums))
    kept = (form.pixels, form.frequencies, form.product.left, form.products, form.sums)
    inline_stages(schedule, keep=(*halves, *(tensor.name for tensor in kept)))
    arrange_winograd(schedule, form, tile)
    return schedule, _packed(form.product, tile.transforms)


def _product_schedule(result: Tensor, form: MatrixForm, tile: MatrixTile | WarpTile) -> Schedule:
    known = [dot4()] if isinstance(tile, MatrixTile) else warp_intrinsics(form.left.dtype)
    schedule = Schedule(result, intrinsics=known)
    inline_stages(schedule, keep=(form.left.name, form.right.name))
    arrange_sums(schedule, *(one.name for one in (form.rows, form.columns) if one is not None))
    match tile:
        case MatrixTile():
            arrange_matrix(schedule, form, tile, *schedule.state.outputs)
        case WarpTile():
            arrange_warps(schedule, form, tile)
        case _:
            assert_never(tile)
    return schedule


def _packed(form: MatrixForm, filtering: Transforms | None = None) -> dict[str, PackedWeights]:
    if form.packed is None:
        return {}
    buffer, extents = form.right.name, form.right.shape
    return {form.packed: PackedWeights(buffer=buffer, extents=extents, filtering=filtering)}


def _with_tail(layer: Layer, inputs: dict[str, Tensor], result: Tensor, after: int = 1) -> Tensor:
    """Declare the element-wise nodes behind the first `after` nodes, whose result is `result`."""
    known = {**inputs, layer.nodes[after - 1].outputs[0]: result}
    for node in layer.nodes[after:]:
        operands = tuple(known[name] for name in node.inputs)
        result = declare_operator(node.op, operands, node.outputs[0])
        known[node.outputs[0]] = result
    if layer.output not in layer.halves:
        return result
    narrow = ScalarType.FLOAT16
    return compute(result.shape, lambda *at: cast(result[at], narrow), f"{result.name}.half")


def _computed_with(tensor: Tensor) -> Tensor:
    """Declare a tensor in the type that operators compute with."""
    if tensor.dtype is not ScalarType.FLOAT16:
        return tensor
    wide = ScalarType.FLOAT32
    return compute(tensor.shape, lambda *at: cast(tensor[at], wide), f"{tensor.name}.wide")


def inline_stages(s: Schedule, keep: tuple[str, ...] = ()) -> None:
    """Inline every stage but reductions, results and those to `keep`."""
    for stage in s.state.stages:
        if stage.reduce is None and stage.name not in (*keep, *s.state.outputs):
            s.compute_inline(stage.name)
