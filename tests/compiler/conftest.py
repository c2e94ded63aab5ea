"""Fixtures of the compiler's tests: the shared models and the runtimes that check them."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.compiler.graph import Graph
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers import read_model
from tilewright.compiler.readers.tflite_file import unique_keys

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]


@pytest.fixture(scope="session")
def integer_graph(shared_models: Path) -> Callable[[str], Graph]:
    """Return the integer graph of a shared model, by file name."""

    @cache
    def load(name: str) -> Graph:
        return lower_to_integer(read_model(shared_models / "models" / name))

    return load


@pytest.fixture(scope="session")
def golden_inputs(shared_models: Path) -> Callable[[str], Array]:
    """Return the stored inputs of a shared model, along axis 0."""

    def load(name: str) -> Array:
        golden = np.load(shared_models / "golden" / f"{name}.npz")
        if "input" in golden:
            return golden["input"]
        return np.concatenate([golden[key] for key in golden if key.startswith("in")])

    return load


@pytest.fixture(scope="session")
def run_onnxruntime() -> Callable[[Any, Tensors, tuple[str, ...]], Tensors]:
    """Return a runner of an ONNX model that yields its outputs and the named tensors."""
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")

    def run(model: Any, feeds: Tensors, tensors: tuple[str, ...] = ()) -> Tensors:
        exposed = onnx.ModelProto()
        exposed.CopyFrom(model)
        known = {value.name for value in model.graph.output}
        for name in tensors:
            if name not in known:
                exposed.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            exposed.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(feeds)), strict=True))

    return run


@pytest.fixture(scope="session")
def run_litert() -> Callable[[bytes, Tensors], Tensors]:
    """Return a runner of a TFLite model with the reference kernels that yields every tensor."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")

    def run(model: bytes, feeds: Tensors) -> Tensors:
        runtime = interpreter.Interpreter(
            model_content=model,
            experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=True,
            num_threads=1,
        )
        runtime.allocate_tensors()
        inputs = {details["name"]: details["index"] for details in runtime.get_input_details()}
        for name, values in feeds.items():
            runtime.set_tensor(inputs[name], values)
        runtime.invoke()
        details = runtime.get_tensor_details()
        keys = unique_keys(tuple(item["name"] for item in details))
        tensors = {}
        for key, item in zip(keys, details, strict=True):
            try:
                tensors[key] = runtime.get_tensor(item["index"]).copy()
            except ValueError:  # Temporary tensors of a kernel hold nothing to read.
                continue
        return tensors

    return run
