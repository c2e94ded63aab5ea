"""Inputs of a model from files: .npy arrays and PNG pictures."""

import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.compiler.graph import Array, Tensor
from tilewright.compiler.operators import DataType
from tilewright.isa.errors import InputError
from tilewright.runtime.inputs import describe_input

#: Suffixes of the files that are read.
ARRAY_SUFFIX = ".npy"
PICTURE_SUFFIX = ".png"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picture:
    """How an input tensor holds a picture."""

    height: int
    width: int
    channels: int
    channels_first: bool


def read_inputs(inputs: Sequence[Tensor], arguments: Sequence[str]) -> dict[str, Array]:
    """Read the files that ``--input`` names, as ``FILE`` or ``NAME=FILE``.

    A bare file is for the only input of a model. The arrays are still to be checked against it.
    """
    arrays: dict[str, Array] = {}
    for argument in arguments:
        tensor, path = _split(inputs, argument)
        if tensor.name in arrays:
            raise InputError(f"input {tensor.name!r} is given twice")
        arrays[tensor.name] = _read(tensor, path)
    return arrays


def _split(inputs: Sequence[Tensor], argument: str) -> tuple[Tensor, Path]:
    name, equals, path = argument.partition("=")
    hint = f"inputs: {', '.join(map(describe_input, inputs))}"
    if equals:
        for tensor in inputs:
            if tensor.name == name:
                return tensor, Path(path)
        if not Path(argument).exists():
            raise InputError(f"there is no input {name!r}", hint=hint)
    if len(inputs) != 1:
        raise InputError(
            f"there are {len(inputs)} inputs: say which one {argument} is for with NAME=FILE",
            hint=hint,
        )
    return inputs[0], Path(argument)


def _read(tensor: Tensor, path: Path) -> Array:
    suffix = path.suffix.lower()
    if suffix == ARRAY_SUFFIX:
        return _read_array(path)
    if suffix == PICTURE_SUFFIX:
        return _read_picture(tensor, path)
    raise InputError(f"input file {path} must be a {ARRAY_SUFFIX} or {PICTURE_SUFFIX} file")


def _read_array(path: Path) -> Array:
    try:
        # Mapping the file bounds the memory that a damaged header can ask for.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"there is no input file {path}") from None
    except (OSError, EOFError, ValueError, SyntaxError, TypeError, tokenize.TokenError) as error:
        raise InputError(f"cannot read {path} as a .npy file: {_first_line(error)}") from error
    if isinstance(mapped, Mapping):
        raise InputError(f"{path} is an archive of several arrays, not a .npy file")
    return np.array(mapped)


def _read_picture(tensor: Tensor, path: Path) -> Array:
    form = _picture(tensor)
    # A board need not have Pillow: only this function wants it.
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as image:
            if image.size != (form.width, form.height):
                raise InputError(
                    f"picture {path} is {image.width} x {image.height} pixels, input"
                    f" {tensor.name!r} takes {form.width} x {form.height} (width x height)",
                    hint="resize it first: how to do that is part of the model's preprocessing",
                )
            if image.mode.startswith(("I", "F")):
                raise InputError(f"picture {path} must have 8 bits per channel")
            pixels = np.asarray(image.convert("L" if form.channels == 1 else "RGB"))
    except FileNotFoundError:
        raise InputError(f"there is no input file {path}") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"cannot read {path} as a PNG picture: {_first_line(error)}") from error
    pixels = pixels.reshape(form.height, form.width, form.channels)
    if form.channels_first:
        pixels = pixels.transpose(2, 0, 1)
    return _as_type(np.ascontiguousarray(pixels).reshape(tensor.shape), tensor.dtype)


def _picture(tensor: Tensor) -> _Picture:
    match tensor.shape:
        case (1, height, width, (1 | 3) as channels) | (1, (1 | 3) as channels, height, width):
            return _Picture(
                height=height,
                width=width,
                channels=channels,
                channels_first=tensor.shape[3] not in (1, 3),
            )
        case (height, width) | (1, height, width):
            return _Picture(height=height, width=width, channels=1, channels_first=False)
        case _:
            raise InputError(
                f"input {describe_input(tensor)} does not have the shape of one picture of 1 or 3"
                " channels",
                hint="give a .npy file",
            )


def _as_type(pixels: Array, dtype: DataType) -> Array:
    """Convert pixels 0..255: uint8 and float32 as they are, int8 less 128."""
    if dtype is DataType.INT8:
        shifted: Array = (pixels ^ np.uint8(0x80)).view(np.int8)
        return shifted
    return pixels.astype(dtype.numpy)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
