"""The demo network on the configuration that the ULX3S is built with."""

import numpy as np
import onnxruntime
import pytest

import tilewright as tw
from tilewright import demo
from tilewright.boards.catalogue import ULX3S
from tilewright.compiler.compiled import Target
from tilewright.isa.validator import validate

IMAGES = 8


@pytest.fixture(scope="module")
def compiled() -> tw.CompiledModel:
    return tw.compile(demo.MODEL_PATH, config=ULX3S.config)


def test_the_demo_network_fits_the_memory_on_the_chip(compiled: tw.CompiledModel) -> None:
    hosted = {entry.operator for entry in compiled.placement if entry.target is Target.HOST}
    assert hosted == {"Quantize", "Reshape", "Dequantize"}
    (program,) = compiled.programs
    validate(program)
    assert program.dram_bytes <= ULX3S.memory.size_bytes


def test_it_reads_digits_as_onnx_runtime_does(compiled: tw.CompiledModel) -> None:
    session = onnxruntime.InferenceSession(demo.MODEL_PATH, providers=["CPUExecutionProvider"])
    for image in demo.load_samples().images[:IMAGES]:
        (scores,) = compiled.run(image[None], "sim").outputs.values()
        (reference,) = compiled.run(image[None], "reference").outputs.values()
        (expected,) = session.run(None, {"image": image[None]})
        np.testing.assert_array_equal(scores, reference)
        assert np.argmax(scores) == np.argmax(expected)
