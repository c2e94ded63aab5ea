"""The demo network classifies the digits that ship with it, by ONNX Runtime's reckoning."""

import numpy as np
import onnx
import onnxruntime
import pytest

from tilewright import demo


@pytest.fixture(scope="module")
def samples() -> demo.Samples:
    return demo.load_samples()


def test_samples_hold_four_images_of_each_digit(samples: demo.Samples) -> None:
    assert samples.images.shape == (40, 1, 16, 16)
    assert samples.images.dtype == np.float32
    assert (samples.images.min(), samples.images.max()) == (0.0, 1.0)
    assert np.bincount(samples.labels).tolist() == [4] * 10


def test_enlarge_doubles_each_pixel() -> None:
    pixels = np.arange(64, dtype=np.uint8).reshape(1, 8, 8) % 17
    inputs = demo.enlarge(pixels)
    for row in range(16):
        for column in range(16):
            assert inputs[0, 0, row, column] * 16 == pixels[0, row // 2, column // 2]


def test_network_is_int8_and_static() -> None:
    model = onnx.load(demo.MODEL_PATH)
    onnx.checker.check_model(model, full_check=True)
    types = {
        tensor.data_type for tensor in model.graph.initializer if "weight_quantized" in tensor.name
    }
    assert types == {onnx.TensorProto.INT8}
    (image,), (logits,) = model.graph.input, model.graph.output
    assert [d.dim_value for d in image.type.tensor_type.shape.dim] == [1, 1, 16, 16]
    assert [d.dim_value for d in logits.type.tensor_type.shape.dim] == [1, 10]


def test_network_classifies_the_samples(samples: demo.Samples) -> None:
    session = onnxruntime.InferenceSession(demo.MODEL_PATH, providers=["CPUExecutionProvider"])
    logits = [session.run(None, {"image": image[None]})[0][0] for image in samples.images]
    assert np.mean(np.argmax(logits, axis=1) == samples.labels) >= 0.97
