"""Networks in bfloat16 against onnxruntime on operands rounded by ml_dtypes."""

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from convolutions import CASES, convolution
from onnx import numpy_helper

import tilewright as tw
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.codegen.target import X86_64_V3, CpuTarget, Feature, host_target
from tilewright.cpu_gpu_backends.cpu.arithmetic import Arithmetic, check_arithmetic
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.cpu_gpu_backends.cpu.native import load_program
from tilewright.cpu_gpu_backends.cpu.program import CpuProgram, Home
from tilewright.isa.errors import InputError
from tilewright.runtime.inputs import random_inputs

#: Convolutions that stay in float32: of groups, and of pairs that do not exist.
IN_FLOAT32 = ("depthwise", "groups", "panels of 24, odd depth")
HALF = Arithmetic(half=True, direct=True)
#: Sums are float32: relative to the largest output, as in float32 networks.
TOLERANCE = 2e-5
#: With what lies between layers rounded to 8 bits, a network's outputs keep about as many.
NETWORK_TOLERANCE = 2e-2
#: A processor without instructions for bfloat16, and one with them, if this is one.
PROCESSORS = {
    "emulated": replace(host_target(), features=host_target().features - {Feature.AVX512BF16}),
    **({"host": host_target()} if host_target().multiplies_halves else {}),
}
#: Elements of an image that is run with bounds checks, which take long to compile.
FEW = 2000
MODELS = ("resnet20_cifar10.onnx", "resnet8_cifar10_float.tflite", "kws_dscnn_float.tflite")


def halves(program: CpuProgram) -> list[str]:
    return [
        name
        for name, buffer in program.buffers.items()
        if buffer.dtype is ScalarType.BFLOAT16 and buffer.home is Home.WORKSPACE
    ]


@pytest.mark.parametrize("target", PROCESSORS.values(), ids=PROCESSORS)
@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(IN_FLOAT32)])
def test_products_are_those_of_rounded_operands(
    case: str, target: CpuTarget, tmp_path: Path, rng: np.random.Generator
) -> None:
    image, outputs, kernel, attributes = CASES[case]
    model = convolution(rng, image, outputs, kernel, **attributes)
    onnx.save(model, tmp_path / "conv.onnx")
    graph = tw.load(tmp_path / "conv.onnx").graph
    (weights,) = (one for one in model.graph.initializer if one.name == "w")
    rounded = numpy_helper.to_array(weights).astype(ml_dtypes.bfloat16).astype(np.float32)
    weights.CopyFrom(numpy_helper.from_array(rounded, "w"))
    x = rng.standard_normal(image).astype(np.float32)
    given = {"x": x.astype(ml_dtypes.bfloat16).astype(np.float32)}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, given)
    program = lower_graph(graph, target, arithmetic=HALF)
    assert any("weights" in n for n, b in program.buffers.items() if b.dtype is ScalarType.BFLOAT16)
    for check_bounds in (False, True)[: 1 + (x.size < FEW)]:
        native = load_program(program, target, check_bounds=check_bounds)
        (found,) = native.run([x], threads=2)
        error = np.abs(found.reshape(expected.shape) - expected).max()
        assert error <= TOLERANCE * np.abs(expected).max()


def test_a_processor_without_bfloat16_is_refused() -> None:
    check_arithmetic(Arithmetic(direct=True), X86_64_V3)
    with pytest.raises(InputError) as caught:
        check_arithmetic(Arithmetic(half=True), X86_64_V3)
    message = "bfloat16 needs avx512bf16, which processor 'x86-64-v3' does not have"
    assert str(caught.value) == message


@pytest.mark.parametrize("name", MODELS)
def test_shared_models_keep_their_decisions(name: str, shared_models: Path) -> None:
    target = list(PROCESSORS.values())[-1]
    graph = tw.load(shared_models / "models" / name).graph
    program = lower_graph(graph, target, arithmetic=HALF)
    assert halves(program), "what lies between products is kept in bfloat16"
    inputs = random_inputs(graph, 0)
    native = load_program(program, target)
    results = native.run([inputs[one] for one in graph.inputs], threads=2)
    for expected, found in zip(evaluate(graph, inputs).values(), results, strict=True):
        error = np.abs(found.reshape(expected.shape) - expected).max()
        assert 0 < error <= NETWORK_TOLERANCE * np.abs(expected).max()
        assert found.argmax() == expected.argmax()
