"""Convolutions of 3 x 3 by Winograd's minimal filtering, on a GPU: three kernels.

Each thread transforms one tile of one channel; the products of all frequencies are one stack of
matrix products; then each thread transforms the products of one tile of one channel to outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from tilewright.compiler.operators import FloatConv2d
from tilewright.compiler.tensor.build import all_of, select
from tilewright.compiler.tensor.declare import compute, placeholder
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopKind
from tilewright.cpu_gpu_backends.gpu.device import Capability
from tilewright.cpu_gpu_backends.gpu.layers import Layer
from tilewright.cpu_gpu_backends.gpu.matrix_form import (
    MatrixForm,
    MatrixSizes,
    declare_total,
    rounded_up,
)
from tilewright.cpu_gpu_backends.gpu.matrix_schedule import arrange_matrix
from tilewright.cpu_gpu_backends.gpu.row_schedule import LOCAL_SCOPE, fuse_loops
from tilewright.cpu_gpu_backends.gpu.tiles import MatrixTile, matrix_tiles
from tilewright.cpu_gpu_backends.winograd import (
    LARGE_TILES,
    SMALL_TILES,
    Transforms,
    declare_frequencies,
    declare_results,
    suitable_tiles,
    suits_winograd,
)

#: Threads of a block that transforms.
_THREADS = 128
#: Multiplications and additions in the time of one byte from or to memory; a guess for GPUs of
#: today, tuning measures.
_WORK_PER_BYTE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradTile(MatrixTile):
    """A tile of the products, for tiles of the image of ``outputs x outputs`` results."""

    outputs: int

    @property
    def transforms(self) -> Transforms:
        """The matrices of its size."""
        return LARGE_TILES if self.outputs == LARGE_TILES.outputs else SMALL_TILES


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradForm:
    """A declared convolution.

    Attributes
    ----------
    result
        What the operator yields, in the shape of the graph.
    pixels, frequencies
        Tiles of the image before and after their transformation.
    product, products
        The products over the channels, and the stage that keeps their results.
    sums
        Results in tiles.
    """

    result: Tensor
    pixels: Tensor
    frequencies: Tensor
    product: MatrixForm
    products: Tensor
    sums: Tensor


def winograd_tiles(layer: Layer, capability: Capability) -> tuple[WinogradTile, ...]:
    """Return the search space of a convolution, the default tile first; often it is empty.

    float16 is left to tensor cores, and to sums of products that lose nothing.
    """
    node = layer.anchor
    if not isinstance(node.op, FloatConv2d) or node.inputs[1] not in layer.constants:
        return ()
    operands, shape = layer.operands(node), layer.tensors[node.outputs[0]].shape
    real = {layer.stored(name) for name in node.inputs[:2]} == {ScalarType.FLOAT32}
    if not real or not suits_winograd(node.op, operands[1].shape, (shape[1], shape[2])):
        return ()
    first = suitable_tiles((shape[1], shape[2]))
    second = SMALL_TILES if first is LARGE_TILES else LARGE_TILES
    return tuple(
        WinogradTile(
            outputs=tiles.outputs,
            **{field.name: getattr(tile, field.name) for field in fields(MatrixTile)},
        )
        for tiles in (first, second)
        for tile in matrix_tiles(_product_sizes(layer, tiles), ScalarType.FLOAT32, capability)
    )


def saves_time(layer: Layer) -> bool:
    """Whether fewer products are likely to outweigh what is moved between the kernels."""
    operands, shape = layer.operands(layer.anchor), layer.tensors[layer.anchor.outputs[0]].shape
    outputs, _, _, channels = operands[1].shape
    positions = shape[0] * shape[1] * shape[2]
    sizes = _product_sizes(layer, suitable_tiles((shape[1], shape[2])))
    moved = sizes.batch * (2 * sizes.m * (channels + outputs) + outputs * channels)
    direct = 2 * 9 * positions * outputs * channels + 4 * _WORK_PER_BYTE * 9 * outputs * channels
    return 2 * sizes.products + 4 * _WORK_PER_BYTE * moved < direct


def _product_sizes(layer: Layer, tiles: Transforms) -> MatrixSizes:
    batch, height, width, outputs = layer.tensors[layer.anchor.outputs[0]].shape
    positions = batch * -(-height // tiles.outputs) * -(-width // tiles.outputs)
    channels = layer.operands(layer.anchor)[1].shape[3]
    return MatrixSizes(batch=tiles.inputs**2, m=positions, n=outputs, k=channels)


def declare_winograd(
    layer: Layer, inputs: Mapping[str, Tensor], tile: WinogradTile
) -> WinogradForm:
    """Declare the convolution that a layer begins with."""
    node, tiles = layer.anchor, tile.transforms
    name, weights = node.outputs[0], node.inputs[1]
    batch, height, width, outputs = layer.tensors[name].shape
    rows, columns = -(-height // tiles.outputs), -(-width // tiles.outputs)
    pixels = _pixels(layer, inputs[node.inputs[0]], tiles, (batch * rows, columns))
    frequencies = declare_frequencies(
        (batch * rows, columns, pixels.shape[-1]), pixels.at, tiles, f"{name}.frequencies"
    )
    product = _product(layer, frequencies, tile, f"{weights}.winograd")
    sizes, size = _product_sizes(layer, tiles), tiles.inputs
    shape = (sizes.batch, sizes.m, sizes.n)
    products = compute(shape, lambda f, m, n: product.total[f, m, n], f"{name}.products")

    def read(i: Expr, j: Expr, ty: Expr, tx: Expr, o: Expr) -> Expr:
        return products[i * size + j, ty * columns + tx, o]

    sums = declare_results((batch * rows, columns, outputs), read, tiles, f"{name}.sums")
    step = tiles.outputs
    bias = inputs[node.inputs[2]] if len(node.inputs) == 3 else None

    def element(n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        value = sums[y % step, x % step, n * rows + y // step, x // step, o]
        return value if bias is None else value + bias[o]

    return WinogradForm(
        result=compute((batch, height, width, outputs), element, name),
        pixels=pixels, frequencies=frequencies, product=product, products=products, sums=sums,
    )  # fmt: skip


def _pixels(layer: Layer, image: Tensor, tiles: Transforms, counts: tuple[int, int]) -> Tensor:
    """Declare the pixels ``[a, b, ty, tx, c]`` of tiles, 0 around the image."""
    op, (batch, height, width, channels) = layer.anchor.op, image.shape
    assert isinstance(op, FloatConv2d), "only float convolutions are filtered so"
    rows, step, pads = counts[0] // batch, tiles.outputs, op.pads

    def element(a: Expr, b: Expr, ty: Expr, tx: Expr, c: Expr) -> Expr:
        y, x = ty % rows * step + a - pads[0], tx * step + b - pads[1]
        inside = all_of(0 <= y, y < height, 0 <= x, x < width)
        return select(inside, image[ty // rows, y, x, c], 0)

    shape = (tiles.inputs, tiles.inputs, *counts, channels)
    return compute(shape, element, f"{layer.anchor.outputs[0]}.pixels")


def _product(layer: Layer, frequencies: Tensor, tile: WinogradTile, packed: str) -> MatrixForm:
    """Declare the products of all frequencies, with extents of whole tiles."""
    sizes, padding = _product_sizes(layer, tile.transforms), tile.padding
    size, columns = tile.transforms.inputs, frequencies.shape[3]
    name, depth = layer.anchor.outputs[0], rounded_up(sizes.k, padding.k)

    def padded(f: Expr, m: Expr, k: Expr) -> Expr:
        value = frequencies[f // size, f % size, m // columns, m % columns, k]
        return select(all_of(m < sizes.m, k < sizes.k), value, 0)

    extents = (sizes.batch, rounded_up(sizes.m, padding.m), depth)
    left = compute(extents, padded, f"{name}.left")
    extents = (sizes.batch, rounded_up(sizes.n, padding.n), depth)
    right = placeholder(extents, ScalarType.FLOAT32, packed)
    total = declare_total(left, right, f"{name}.total")
    return MatrixForm(
        result=total, left=left, right=right, total=total, rows=None, columns=None,
        packed=layer.anchor.inputs[1],
    )  # fmt: skip


def arrange_winograd(s: Schedule, form: WinogradForm, tile: WinogradTile) -> None:
    """Schedule the convolution of `form`; all stages but its own have been inlined."""
    (out,) = s.state.outputs
    _arrange_results(s, out, form, tile.transforms.outputs)
    arrange_matrix(s, form.product, tile, form.products.name)
    frequencies = form.frequencies.name
    s.reorder(frequencies, "ty", "tx", "c", "i", "j")
    thread = _shared_out(s, frequencies, ("ty", "tx", "c"))
    for loop in ("i", "j"):
        s.unroll(frequencies, loop)
    for stage, loops in ((f"{frequencies}.half", ("i", "b")), (form.pixels.name, ("a", "b"))):
        _in_registers(s, stage, frequencies, thread, loops)


def _arrange_results(s: Schedule, out: str, form: WinogradForm, step: int) -> None:
    """Let each thread bring one tile of one channel to memory."""
    n, y, x, o = s.loops(out)
    s.split(out, y, step, names=("y.tile", "y.own"))
    s.split(out, x, step, names=("x.tile", "x.own"))
    # An axis of one image may be read as image 0: then it must not be part of a fused loop.
    images = (n,) if form.result.shape[0] > 1 else ()
    s.reorder(out, n, "y.tile", "x.tile", o, "y.own", "x.own")
    thread = _shared_out(s, out, (*images, "y.tile", "x.tile", o))
    for loop in ("y.own", "x.own"):
        s.unroll(out, loop)
    _in_registers(s, form.sums.name, out, thread, ("i", "j"))
    _in_registers(s, f"{form.sums.name}.half", out, thread, ("i", "b"))


def _shared_out(s: Schedule, stage: str, loops: tuple[str, ...]) -> str:
    """Share loops among threads and return the loop over those of a block."""
    elements = fuse_loops(s, stage, loops, "elements")
    assert elements is not None, "tiles have axes"
    block, thread = s.split(stage, elements, _THREADS, names=("block", "thread"))
    s.bind(stage, block, LoopKind.BLOCK_X)
    s.bind(stage, thread, LoopKind.THREAD_X)
    return thread


def _in_registers(
    s: Schedule, stage: str, consumer: str, thread: str, unrolled: tuple[str, ...]
) -> None:
    s.set_scope(stage, LOCAL_SCOPE)
    s.compute_at(stage, consumer, thread)
    for loop in unrolled:
        s.unroll(stage, loop)
