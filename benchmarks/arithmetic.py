"""Error and accuracy of float classifiers in each arithmetic of device cpu.

    python benchmarks/arithmetic.py [--models FOLDER] [NAME ...]

FOLDER holds `models/` and `data/` as described by its MANIFEST.md. Scores are compared with those
of onnxruntime or LiteRT: the largest error, relative to the largest score of the sample, as its
mean and its maximum over the samples, and the share of right answers. LiteRT multiplies in int8
where weights are int8, as in kws_dscnn_float, which is further from the model than any arithmetic
here. The exit status is 1 if one answers more than half a point less right.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from quantisation import CASES

import tilewright as tw
from tilewright.compiler.graph import Graph
from tilewright.cpu_gpu_backends.codegen.target import host_target
from tilewright.cpu_gpu_backends.cpu.arithmetic import Arithmetic
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.cpu_gpu_backends.cpu.native import load_program

Array = npt.NDArray[Any]

ARITHMETICS = {
    "float32": Arithmetic(),
    "--direct": Arithmetic(direct=True),
    "--half": Arithmetic(half=True),
    "--half --direct": Arithmetic(half=True, direct=True),
}
#: Largest loss of accuracy, in points.
TOLERANCE = 0.5


def scores(graph: Graph, arithmetic: Arithmetic, inputs: Array) -> Array:
    """Return the scores of each sample."""
    target = host_target()
    native = load_program(lower_graph(graph, target, arithmetic=arithmetic), target)
    return np.stack([native.run([sample[np.newaxis]])[0] for sample in inputs])


def reference(path: Path, inputs: Array) -> Array:
    """Return the scores of onnxruntime, or of LiteRT."""
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return np.stack([session.run(None, {name: x[np.newaxis]})[0].ravel() for x in inputs])
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    (given,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()

    def run(sample: Array) -> Array:
        interpreter.set_tensor(given["index"], sample.reshape(given["shape"]))
        interpreter.invoke()
        return np.array(interpreter.get_tensor(result["index"])).ravel()

    return np.stack([run(sample) for sample in inputs])


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a model's name")
    default = Path(__file__).resolve().parents[2] / "shared" / "models"
    parser.add_argument("--models", type=Path, default=default, metavar="FOLDER")
    arguments = parser.parse_args()
    print(
        f"{'model':30} {'arithmetic':16} {'mean error':>11} {'at most':>9} {'right':>8} {'was':>8}"
    )
    kept = True
    for name, load in CASES.items():
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        path, data = arguments.models / "models" / name, load(arguments.models)
        graph = tw.load(path).graph
        expected = reference(path, data.inputs)
        before = 100 * np.mean(expected.argmax(axis=1) == data.labels)
        largest = np.abs(expected).max(axis=1)
        for label, arithmetic in ARITHMETICS.items():
            found = scores(graph, arithmetic, data.inputs)
            errors = np.abs(found - expected).max(axis=1) / largest
            after = 100 * np.mean(found.argmax(axis=1) == data.labels)
            kept = kept and after >= before - TOLERANCE
            print(
                f"{name:30} {label:16} {errors.mean():11.1e} {errors.max():9.1e}"
                f" {after:7.2f}% {before:7.2f}%",
                flush=True,
            )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
