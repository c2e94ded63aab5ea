"""Trains, quantises and writes the demo network that ``tilewright.demo`` ships.

The data are the 1797 test images of the UCI "Optical Recognition of Handwritten Digits" set
(E. Alpaydin and C. Kaynak, 1998, https://doi.org/10.24432/C50P49, CC BY 4.0), which scikit-learn
carries: 8x8 pixels of 0 to 16. One fifth of them, drawn by the seed, is held out; the set does not
name the writers, so one may have images in both parts.

    pip install .[train]
    python benchmarks/train_digits.py --out api/demo
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

from tilewright.demo import enlarge

CLASSES = 10
CHANNELS = 16
OPSET = 13
SAMPLES_PER_CLASS = 4
CALIBRATION_IMAGES = 200

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Raw images, uint8 of shape (n, 8, 8), and their labels, for training or held out."""

    images: npt.NDArray[np.uint8]
    labels: Ints

    @property
    def inputs(self) -> Floats:
        """The images as the network takes them, (n, 1, 16, 16)."""
        return enlarge(self.images)


class ConvBatchNorm(nn.Module):
    """A convolution without bias, followed by batch normalisation."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            channels_in, channels_out, kernel, padding=kernel // 2, groups=groups, bias=False
        )
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve and normalise."""
        normalised: torch.Tensor = self.norm(self.conv(x))
        return normalised

    def folded(self) -> tuple[Floats, Floats]:
        """Return weight and bias of the one convolution that both layers are at inference."""
        gain = self.norm.weight / torch.sqrt(self.norm.running_var + self.norm.eps)
        weight = self.conv.weight * gain[:, None, None, None]
        bias = self.norm.bias - self.norm.running_mean * gain
        return weight.detach().numpy(), bias.detach().numpy()


class DigitNet(nn.Module):
    """A stem, a residual block of depthwise and pointwise convolution, two convolutions, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBatchNorm(1, CHANNELS, 3)
        self.depthwise = ConvBatchNorm(CHANNELS, CHANNELS, 3, groups=CHANNELS)
        self.pointwise = ConvBatchNorm(CHANNELS, CHANNELS, 1)
        self.widen = ConvBatchNorm(CHANNELS, 2 * CHANNELS, 3)
        self.deepen = ConvBatchNorm(2 * CHANNELS, 2 * CHANNELS, 3)
        self.dense = nn.Linear(2 * CHANNELS, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (n, 1, 16, 16) to logits (n, 10)."""
        stem = functional.relu(self.stem(x))
        branch = self.pointwise(functional.relu(self.depthwise(stem)))
        block = functional.max_pool2d(functional.relu(stem + branch), 2)
        wide = functional.max_pool2d(functional.relu(self.widen(block)), 2)
        features = functional.relu(self.deepen(wide)).mean(dim=(2, 3))
        logits: torch.Tensor = self.dense(features)
        return logits


def split_digits(seed: int) -> tuple[Split, Split]:
    """Return the training and the held-out images."""
    digits = load_digits()
    train, held, train_labels, held_labels = train_test_split(
        digits.images.astype(np.uint8),
        digits.target.astype(np.int64),
        test_size=0.2,
        stratify=digits.target,
        random_state=seed,
    )
    return Split(images=train, labels=train_labels), Split(images=held, labels=held_labels)


def shift_at_random(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Move the whole batch by at most one pixel each way."""
    down, right = (int(torch.randint(-1, 2, (), generator=generator)) for _ in range(2))
    return torch.roll(functional.pad(images, (1, 1, 1, 1)), (down, right), (2, 3))[:, :, 1:-1, 1:-1]


def train(split: Split, *, epochs: int, seed: int) -> DigitNet:
    """Train with Adam on a cosine schedule; the same seed gives the same weights on one machine."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(seed)
    images, labels = torch.from_numpy(split.inputs), torch.from_numpy(split.labels)
    net = DigitNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(labels), generator=generator).split(32):
            loss = functional.cross_entropy(
                net(shift_at_random(images[batch], generator)), labels[batch], label_smoothing=0.05
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return net.eval()


def to_onnx(net: DigitNet) -> onnx.ModelProto:
    """Write the network with folded batch normalisation as a float ONNX model of batch 1."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def add(op: str, inputs: list[str], output: str, **attributes: object) -> None:
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))

    def weight(name: str, value: Floats) -> str:
        weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def conv(layer: ConvBatchNorm, source: str, output: str) -> None:
        value, bias = layer.folded()
        names = [weight(f"{output}_weight", value), weight(f"{output}_bias", bias)]
        pads, groups = [layer.conv.kernel_size[0] // 2] * 4, layer.conv.groups
        kernel = list(layer.conv.kernel_size)
        add("Conv", [source, *names], output, kernel_shape=kernel, pads=pads, group=groups)

    conv(net.stem, "image", "stem")
    add("Relu", ["stem"], "stem_relu")
    conv(net.depthwise, "stem_relu", "depthwise")
    add("Relu", ["depthwise"], "depthwise_relu")
    conv(net.pointwise, "depthwise_relu", "pointwise")
    add("Add", ["stem_relu", "pointwise"], "residual")
    add("Relu", ["residual"], "residual_relu")
    add("MaxPool", ["residual_relu"], "block", kernel_shape=[2, 2], strides=[2, 2])
    conv(net.widen, "block", "widen")
    add("Relu", ["widen"], "widen_relu")
    add("MaxPool", ["widen_relu"], "wide", kernel_shape=[2, 2], strides=[2, 2])
    conv(net.deepen, "wide", "deepen")
    add("Relu", ["deepen"], "deepen_relu")
    add("GlobalAveragePool", ["deepen_relu"], "average")
    add("Flatten", ["average"], "features")
    dense = [
        weight("dense_weight", net.dense.weight.detach().numpy()),
        weight("dense_bias", net.dense.bias.detach().numpy()),
    ]
    add("Gemm", ["features", *dense], "logits", transB=1)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 16, 16])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])
    model = helper.make_model(
        helper.make_graph(nodes, "digits", [image], [logits], weights),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
        producer_name="tilewright",
    )
    onnx.checker.check_model(model, full_check=True)
    return model


class Calibration(CalibrationDataReader):
    """Feeds the first training images to the quantiser, which observes the activations' ranges."""

    def __init__(self, split: Split) -> None:
        self._images: Iterator[Floats] = iter(split.inputs[:CALIBRATION_IMAGES, None])

    def get_next(self) -> dict[str, Floats] | None:
        """Return the next feed, or None at the end."""
        image = next(self._images, None)
        return None if image is None else {"image": image}


def quantize(model: onnx.ModelProto, calibration: Split, path: Path) -> None:
    """Write the int8 QDQ form of `model`: weights symmetric per channel, activations per tensor."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "float.onnx")
        onnx.save(onnx.shape_inference.infer_shapes(model), source)
        quantize_static(
            source,
            path,
            Calibration(calibration),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
        )


def accuracy(model: bytes, split: Split) -> float:
    """Return the share of images that ONNX Runtime classifies rightly."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    logits = [session.run(None, {"image": image})[0][0] for image in split.inputs[:, None]]
    return float(np.mean(np.argmax(logits, axis=1) == split.labels))


def first_of_each_class(split: Split) -> Split:
    """Return the first few images of every class, right or wrong, in the order of the split."""
    chosen = np.sort(
        np.concatenate(
            [np.flatnonzero(split.labels == c)[:SAMPLES_PER_CLASS] for c in range(CLASSES)]
        )
    )
    return Split(images=split.images[chosen], labels=split.labels[chosen])


def main() -> None:
    """Train, quantise, write both networks and ``digits.npz``, print both accuracies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    training, held_out = split_digits(args.seed)
    model = to_onnx(train(training, epochs=args.epochs, seed=args.seed))
    onnx.save(model, args.out / "digits_float.onnx")
    path = args.out / "digits.onnx"
    quantize(model, training, path)
    samples = first_of_each_class(held_out)
    np.savez_compressed(
        args.out / "digits.npz", images=samples.images, labels=samples.labels.astype(np.uint8)
    )
    print(f"held-out images {len(held_out.labels)}")
    print(f"float accuracy  {accuracy(model.SerializeToString(), held_out):.2%}")
    print(f"int8 accuracy   {accuracy(path.read_bytes(), held_out):.2%}")


if __name__ == "__main__":
    main()
