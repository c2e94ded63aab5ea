"""A compiled model runs on its devices, and all of them yield the same bits."""

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from tilewright import demo
from tilewright.compiler.compiled import Target
from tilewright.isa.errors import InputError, ModelError
from tilewright.isa.presets import PRESETS
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.model import Model, compile_model, load


@pytest.mark.parametrize("preset", list(PRESETS))
def test_simulator_and_integer_graph_yield_the_same_bits(
    digits: Model, image: npt.NDArray[np.float32], preset: str
) -> None:
    compiled = compile_model(digits, PRESETS[preset])
    simulated = compiled.run(image)
    reference = compiled.run({"image": image}, device="reference")
    assert list(simulated.outputs) == ["logits"]
    assert simulated.outputs["logits"].dtype == np.float32
    np.testing.assert_array_equal(simulated.outputs["logits"], reference.outputs["logits"])


def test_outputs_are_within_a_step_of_onnxruntime(
    compiled_digits: CompiledModel, digits: Model
) -> None:
    session = onnxruntime.InferenceSession(demo.MODEL_PATH, providers=["CPUExecutionProvider"])
    step = next(
        digits.graph.tensors[node.inputs[0]].scale
        for node in digits.graph.nodes
        if node.outputs == ("logits",)
    )
    for image in demo.load_samples().images[:8]:
        (expected,) = session.run(None, {"image": image[None]})
        found = compiled_digits.run(image[None]).outputs["logits"]
        assert np.abs(found - expected).max() <= 1.01 * step


def test_it_classifies_the_labelled_images(compiled_digits: CompiledModel) -> None:
    samples = demo.load_samples()
    results = [compiled_digits.run(image[None]) for image in samples.images]
    classes = [int(np.argmax(result.outputs["logits"])) for result in results]
    assert np.mean(np.array(classes) == samples.labels) >= 0.97
    # What the machine does never depends on the data.
    assert len({result.stats for result in results}) == 1


def test_placement_names_every_operator(compiled_digits: CompiledModel) -> None:
    placed = {item.node: item for item in compiled_digits.placement}
    assert placed.keys() == {node.name for node in compiled_digits.graph.nodes}
    assert placed["stem"].target is Target.ACCELERATOR
    assert placed["image/quantized"].target is Target.HOST
    assert all(item.reason for item in compiled_digits.placement)
    assert str(compiled_digits) == "digits for pynq: operators 11 on the accelerator, 3 on the host"


def test_progress_ends_at_the_number_of_instructions(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    calls: list[tuple[int, int]] = []
    compiled_digits.run(image, progress=lambda done, total: calls.append((done, total)))
    (program,) = compiled_digits.programs
    assert calls[-1] == (len(program.instructions),) * 2
    assert sorted(calls) == calls


def test_an_unknown_device_is_refused(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    with pytest.raises(InputError) as caught:
        compiled_digits.run(image, "toaster")
    assert str(caught.value) == "there is no device 'toaster'"


def test_the_reference_counts_no_cycles(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    result = compiled_digits.run(image, "reference")
    with pytest.raises(InputError) as caught:
        _ = result.stats
    assert str(caught.value) == "device 'reference' counts no cycles"
    assert caught.value.hint == "run the model on device 'sim'"


def test_a_model_knows_its_inputs_and_outputs(digits: Model) -> None:
    assert [str(tensor) for tensor in digits.inputs] == ["image: float32[1, 1, 16, 16]"]
    assert [(tensor.name, tensor.shape) for tensor in digits.outputs] == [("logits", (1, 10))]


def test_a_compiled_model_is_no_model_file(compiled_digits: CompiledModel, tmp_path) -> None:
    compiled_digits.save(tmp_path / "digits.tw")
    with pytest.raises(ModelError) as caught:
        load(tmp_path / "digits.tw")
    assert str(caught.value) == f"{tmp_path}/digits.tw is a compiled model, not a model file"


def test_a_folder_is_no_model_file(tmp_path) -> None:
    with pytest.raises(ModelError) as caught:
        load(tmp_path)
    assert str(caught.value) == f"{tmp_path} is a folder, not a model file"
