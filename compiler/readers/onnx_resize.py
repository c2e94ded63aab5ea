"""Translation of ONNX Resize and Upsample."""

import numpy as np

from tilewright.compiler.operators import FloatInterpolate, Upsample2d
from tilewright.compiler.readers.onnx_file import OnnxNode
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.compiler.readers.resizing import AxisResize, Coordinates, Rounding
from tilewright.isa.errors import ModelError


def resize(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Resize: one axis at a time, or whole factors of an image at once."""
    axes = _axes(state, node)
    mode = node.text("mode", "nearest")
    if mode == "nearest":
        _nearest(state, node, axes)
    elif mode in ("linear", "cubic"):
        _interpolated(state, node, axes, mode == "cubic")
    else:
        raise ModelError(f"{node.label} is not supported in mode {mode!r}")


def _nearest(state: OnnxTranslation, node: OnnxNode, axes: tuple[AxisResize, ...]) -> None:
    old = state.opset < 11
    wanted = "floor" if old else node.text("nearest_mode", "round_prefer_floor")
    if wanted not in {rounding.value for rounding in Rounding}:
        raise ModelError(f"{node.label} rounds in the unknown way {wanted!r}")
    indices = [axis.nearest(Rounding(wanted)) for axis in axes]
    factors = [max(axis.result // axis.size, 1) for axis in axes]
    whole = all(
        np.array_equal(taken, np.repeat(np.arange(axis.size), factor))
        for taken, axis, factor in zip(indices, axes, factors, strict=True)
    )
    if len(axes) == 4 and whole and factors[:2] == [1, 1]:
        op = Upsample2d(factor=(factors[2], factors[3]))
        state.finish_image(node, op, [state.channels_last(node)])
        return
    x = state.tensor(node)
    for axis, taken in enumerate(indices):
        if not np.array_equal(taken, np.arange(axes[axis].size)):
            x = state.taken(node, x, taken, axis, f"axis{axis}")
    state.finish_copy(node, x)


def _interpolated(
    state: OnnxTranslation, node: OnnxNode, axes: tuple[AxisResize, ...], cubic: bool
) -> None:
    x = state.tensor(node)
    for number, axis in enumerate(axes):
        if axis.size == axis.result and axis.scale == 1.0:
            continue
        indices, weights = axis.taps(
            cubic=node.real("cubic_coeff_a", -0.75) if cubic else None,
            antialias=bool(node.integer("antialias", 0)),
            exclude_outside=bool(node.integer("exclude_outside", 0)),
        )
        operands = [
            x,
            state.builder.add_constant(f"{node.name}/entries{number}", indices),
            state.builder.add_constant(f"{node.name}/weights{number}", weights),
        ]
        x = state.add(node, FloatInterpolate(axis=number), operands, f"axis{number}")
    state.finish_copy(node, x)


def _axes(state: OnnxTranslation, node: OnnxNode) -> tuple[AxisResize, ...]:
    shape = state.shape(node)
    coordinates = _coordinates(state, node)
    if not shape or min(shape) < 1:
        raise ModelError(f"{node.label} resizes {list(shape)}")
    chosen = tuple(range(len(shape)))
    if "axes" in node.attributes:
        chosen = tuple(state.axis(node, axis, len(shape)) for axis in node.integers("axes", ()))
    results, scales = _sizes(state, node, tuple(shape[axis] for axis in chosen))
    if len(results) != len(chosen) or min(results, default=1) < 1:
        raise ModelError(f"{node.label} resizes {list(shape)} to {results}")
    given = dict(zip(chosen, zip(results, scales, strict=True), strict=True))
    axes = tuple(
        AxisResize(
            size=size,
            result=given.get(axis, (size, 1.0))[0],
            scale=given.get(axis, (size, 1.0))[1],
            coordinates=coordinates,
        )
        for axis, size in enumerate(shape)
    )
    if not all(axis.is_possible for axis in axes):
        raise ModelError(f"{node.label} resizes {list(shape)} to {results}")
    return axes


def _sizes(
    state: OnnxTranslation, node: OnnxNode, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the sizes of the result and the scales, whichever of them the file states."""
    if state.opset >= 11 and state.has_input(node, 3):
        results = state.integers(node, 3)
        if len(results) != len(shape):
            raise ModelError(f"{node.label} names {len(results)} sizes for {len(shape)} axes")
        scales = tuple(result / size for result, size in zip(results, shape, strict=True))
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        if policy == "stretch":
            return results, scales
        if policy not in ("not_larger", "not_smaller"):
            raise ModelError(f"{node.label} has the unknown policy {policy!r}")
        shared = min(scales) if policy == "not_larger" else max(scales)
        kept = tuple(int(np.floor(shared * size + 0.5)) for size in shape)
        return kept, (shared,) * len(shape)
    if "scales" in node.attributes:
        values = np.array(node.attributes["scales"], dtype=np.float64).reshape(-1)
    else:
        values = state.constant(node, 2 if state.opset >= 11 else 1).astype(np.float64).reshape(-1)
    if len(values) != len(shape) or not np.isfinite(values).all() or (values <= 0).any():
        raise ModelError(f"{node.label} has scales that do not suit {len(shape)} axes")
    results = tuple(int(np.floor(s * size)) for s, size in zip(values, shape, strict=True))
    return results, tuple(float(value) for value in values)


def _coordinates(state: OnnxTranslation, node: OnnxNode) -> Coordinates:
    if state.opset < 11 or node.op_type == "Upsample":
        return Coordinates.ASYMMETRIC
    wanted = node.text("coordinate_transformation_mode", "half_pixel")
    if wanted not in {coordinates.value for coordinates in Coordinates}:
        raise ModelError(f"{node.label} is not supported with coordinates {wanted!r}")
    return Coordinates(wanted)
