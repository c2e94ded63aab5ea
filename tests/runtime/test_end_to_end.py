"""Each model on each device: equal bits, speed near the bound, and the classes of LiteRT."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.cpu_gpu_backends.gpu.device import DeviceError
from tilewright.isa.presets import PRESETS
from tilewright.isa.validator import validate
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.devices import Device, counts_cycles
from tilewright.runtime.gpu_graphs import open_gpu
from tilewright.runtime.inputs import random_inputs
from tilewright.runtime.model import compile_model, load
from tilewright.sim.rtl_build import ToolError, find_toolchain

QUICK = (
    "mnist_cnn_qdq_u8s8.onnx",
    "resnet8_cifar10_int8.tflite",
    "resnet20_cifar10_qdq_s8s8_pc.onnx",
    "resnet20_cifar10_qop_u8u8_pt.onnx",
    "kws_dscnn_int8.tflite",
    "ad01_autoencoder_int8.tflite",
    "vww_96_int8.tflite",
    "mobilenet_v1_0.25_128_uint8.tflite",
)
LONG = "mobilenet_v2_1.0_224_ptq.tflite"
OTHER_DEVICES = [device for device in Device if device is not Device.REFERENCE]
#: Networks that also run on the hardware in every test run.
ON_HARDWARE = ("resnet8_cifar10_int8.tflite", "kws_dscnn_int8.tflite")
#: Networks whose kernels are compiled in every test run.
ON_GPU = ("mnist_cnn_qdq_u8s8.onnx",)

#: The least share of the array-shape bound that must be reached on preset pynq.
LEAST_SHARE = {
    "resnet8_cifar10_int8.tflite": 0.6,
    "resnet20_cifar10_qdq_s8s8_pc.onnx": 0.6,
    "resnet20_cifar10_qop_u8u8_pt.onnx": 0.6,
}


def assert_equal_bits(compiled: CompiledModel, inputs: object, device: Device) -> None:
    expected = compiled.run(inputs, Device.REFERENCE.value).outputs
    result = compiled.run(inputs, device.value)
    if counts_cycles(device):
        assert result.stats.cycles == compiled.run(inputs, Device.SIM.value).stats.cycles
    found = result.outputs
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)


def cases() -> list[object]:
    """Every network on every device; the long ones marked slow."""
    return [
        pytest.param(
            name,
            device,
            marks=[pytest.mark.slow]
            if name == LONG
            or (device is Device.RTL and name not in ON_HARDWARE)
            or (device is Device.OPENCL and name not in ON_GPU)
            else [],
        )
        for name in (*QUICK, LONG)
        for device in OTHER_DEVICES
    ]


def require_tools(device: Device) -> None:
    if device is Device.RTL:
        try:
            find_toolchain()
        except ToolError as error:
            pytest.skip(f"{error}: {error.hint}")
    if device in (Device.OPENCL, Device.CUDA):
        try:
            open_gpu(device)
        except DeviceError as error:
            pytest.skip(str(error))


@pytest.mark.parametrize(("name", "device"), cases())
def test_every_device_yields_the_same_bits(shared_models: Path, name: str, device: Device) -> None:
    require_tools(device)
    compiled = compile_model(load(shared_models / "models" / name), PRESETS["pynq"])
    for seed in range(2):
        assert_equal_bits(compiled, random_inputs(compiled.graph, seed), device)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["vta", "ultra96", "ecp5", "tiny"])
@pytest.mark.parametrize("name", QUICK)
def test_every_preset_yields_the_same_bits(shared_models: Path, name: str, preset: str) -> None:
    compiled = compile_model(load(shared_models / "models" / name), PRESETS[preset])
    for program in compiled.programs:
        validate(program)
    assert_equal_bits(compiled, random_inputs(compiled.graph, 0), Device.SIM)


@pytest.mark.parametrize("name", LEAST_SHARE)
def test_residual_networks_come_near_their_bound(shared_models: Path, name: str) -> None:
    compiled = compile_model(load(shared_models / "models" / name), PRESETS["pynq"])
    assert len(compiled.programs) == 1
    stats = compiled.run(random_inputs(compiled.graph, 0)).stats
    assert stats.ideal_cycles / stats.cycles >= LEAST_SHARE[name]


def cifar_images(shared_models: Path, count: int) -> npt.NDArray[np.uint8]:
    with np.load(shared_models / "data/cifar10_test_0_1000.npz") as data:
        images: npt.NDArray[np.uint8] = data["x"][:count]
    return images


def test_classes_are_those_of_litert(shared_models: Path) -> None:
    name = "resnet8_cifar10_int8.tflite"
    compiled = compile_model(load(shared_models / "models" / name), PRESETS["pynq"])
    with np.load(shared_models / "golden" / f"{name}.npz") as golden:
        expected = golden["ref_out"][:16]
    images = cifar_images(shared_models, 16)
    outputs = []
    for image in images:
        pixels = (image.astype(np.int16) - 128).astype(np.int8)[None]
        outputs += compiled.run(pixels).outputs.values()
    found = np.concatenate(outputs)
    assert found.shape == expected.shape
    assert np.mean(found.argmax(axis=1) == expected.argmax(axis=1)) >= 15 / 16
