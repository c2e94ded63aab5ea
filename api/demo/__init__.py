"""The demo network, a small CNN, int8 and float, and labelled images of digits for it to classify.

The images are from the UCI set "Optical Recognition of Handwritten Digits" (E. Alpaydin and
C. Kaynak, 1998, https://doi.org/10.24432/C50P49), licensed CC BY 4.0. They were held out of the
training, which ``benchmarks/train_digits.py`` repeats.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

#: The network as an ONNX file: input ``image``, output ``logits`` (1, 10), one per digit.
MODEL_PATH = Path(__file__).with_name("digits.onnx")
#: The network in floating point, from another run of the same training, for `tilewright.quantize`.
FLOAT_MODEL_PATH = Path(__file__).with_name("digits_float.onnx")

#: The largest value of a pixel in the data set.
PIXEL_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Images as the network takes them, float32 of shape (n, 1, 16, 16), and their digits."""

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]


def enlarge(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Turn the data set's images into inputs: each pixel doubled both ways and scaled to [0, 1].

    Parameters
    ----------
    pixels
        Values of 0 to 16, shape (n, 8, 8).

    Returns
    -------
        Shape (n, 1, 16, 16).
    """
    doubled = pixels.repeat(2, axis=1).repeat(2, axis=2)
    inputs: npt.NDArray[np.float32] = doubled[:, None].astype(np.float32) / np.float32(PIXEL_MAX)
    return inputs


def load_samples() -> Samples:
    """Return the labelled images, four of each digit, in no particular order."""
    with np.load(Path(__file__).with_name("digits.npz")) as data:
        return Samples(images=enlarge(data["images"]), labels=data["labels"].astype(np.int64))
