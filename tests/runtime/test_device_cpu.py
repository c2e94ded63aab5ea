"""Device cpu through compiled models, and host steps of mixed graphs in machine code."""

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import tilewright as tw
from tilewright.compiler.compiled import Target
from tilewright.cpu_gpu_backends.codegen.target import host_target
from tilewright.isa.errors import InputError
from tilewright.runtime import native_graphs
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.inputs import random_inputs


@pytest.mark.parametrize("threads", [1, 2])
def test_it_yields_the_bits_of_the_reference(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32], threads: int
) -> None:
    expected = compiled_digits.run(image, "reference").outputs
    found = compiled_digits.run(image, "cpu", threads=threads).outputs
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_a_model_compiled_for_it_has_no_programs(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    compiled = tw.compile(compiled_digits, device="cpu")
    assert compiled.programs == ()
    assert {item.target for item in compiled.placement} == {Target.HOST}
    expected = compiled_digits.run(image, "reference").outputs
    for name, values in compiled.run(image, "cpu").outputs.items():
        np.testing.assert_array_equal(values, expected[name])


def test_heavy_host_steps_run_in_machine_code(
    compiled_digits: CompiledModel,
    image: npt.NDArray[np.float32],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native_graphs, "_HEAVY_OPERATIONS", 0)
    compiled = CompiledModel(compiled=compiled_digits.compiled)
    expected = compiled.run(image, "reference").outputs
    for name, values in compiled.run(image, "sim").outputs.items():
        np.testing.assert_array_equal(values, expected[name])
    assert compiled.native._programs, "the digits' quantisation is a host step"


def test_without_the_code_generator_it_says_so(
    compiled_digits: CompiledModel,
    image: npt.NDArray[np.float32],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "llvmlite" else find(name)
    )
    for use in (
        lambda: compiled_digits.run(image, "cpu"),
        lambda: compiled_digits.save_library(tmp_path / "m.o"),
    ):
        with pytest.raises(InputError) as caught:
            use()
        assert str(caught.value) == "device 'cpu' needs llvmlite, which is not installed"
        assert caught.value.hint == "pip install llvmlite"


def test_a_library_is_saved_for_another_processor(
    compiled_digits: CompiledModel, tmp_path: Path
) -> None:
    files = compiled_digits.save_library(tmp_path / "digits.o", "cortex-a9")
    names = ["digits.o", "digits.constants.o", "digits.h"]
    assert [file.name for file in files] == names
    assert all((tmp_path / name).stat().st_size for name in names)
    assert "int digits_run(" in (tmp_path / "digits.h").read_text()


def test_a_float_network_agrees_apart_from_rounding(shared_models: Path) -> None:
    model = tw.load(shared_models / "models" / "resnet8_cifar10_float.tflite")
    inputs = random_inputs(model.graph, 0)
    comparison = tw.compare(tw.compile(model, device="cpu"), inputs, devices=["cpu", "reference"])
    assert comparison.agrees
    assert not comparison.equal  # sums in another order: equality would mean nothing was compared


@pytest.mark.parametrize("arithmetic", [{"half": True}, {"direct": True}])
def test_other_arithmetic_yields_other_roundings(
    arithmetic: dict[str, bool], shared_models: Path
) -> None:
    if "half" in arithmetic and not host_target().multiplies_halves:
        pytest.skip("needs a processor with avx512bf16")
    compiled = tw.compile(shared_models / "models" / "resnet20_cifar10.onnx", device="cpu")
    inputs = random_inputs(compiled.graph, 0)
    (usual,) = compiled.run(inputs, "cpu").outputs.values()
    (other,) = compiled.run(inputs, "cpu", **arithmetic).outputs.values()
    assert not np.array_equal(usual, other)
    np.testing.assert_allclose(other, usual, atol=2e-2 * np.abs(usual).max())
    (again,) = compiled.run(inputs, "cpu").outputs.values()
    np.testing.assert_array_equal(usual, again)


def test_arithmetic_that_a_device_has_not_is_refused(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"^device 'sim' computes no real numbers of 16 bits$"):
        compiled_digits.run(image, "sim", half=True)
    message = "^device 'reference' has no other convolution than the direct one$"
    with pytest.raises(InputError, match=message):
        compiled_digits.run(image, "reference", direct=True)
    message = "^bfloat16 needs avx512bf16, which processor 'cortex-a53' does not have$"
    with pytest.raises(InputError, match=message):
        compiled_digits.save_library(tmp_path / "m.o", "cortex-a53", half=True)
