"""Runs the ONNX node tests through the reader and the float graph, and prints what came of each.

Run as ``python benchmarks/onnx_coverage.py [-v] [--device cpu|opencl|cuda]``; exit status 1 if any
result is wrong. The cases are those that the installed onnx package generates. Each is tried with
all its inputs given at run time; where the file then is refused, with all but the first one as
initialisers, which is how networks state weights, shapes and axes.
"""

import argparse
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Array, Graph
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers.onnx_reader import HANDLERS, read_onnx
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.cuda_device import open_cuda_device
from tilewright.cpu_gpu_backends.gpu.device import KernelDevice
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.opencl_device import OpenClDevice
from tilewright.isa.errors import TilewrightError
from tilewright.runtime.native_graphs import NativeGraphs

#: Element types of half precision, which the graph widens: results differ by their rounding.
HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
#: Cases left out: they divide by the length before it is rounded down, the operator's description
#: and onnxruntime by the length of the result.
DISPUTED = {
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
}
Results: TypeAlias = Mapping[str, Array]
#: From a graph and its inputs to its outputs.
Runner: TypeAlias = Callable[[Graph, Mapping[str, Array]], Results]
PASSED, REFUSED, WRONG = "passed", "refused", "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of one case, and why."""

    case: str
    operator: str
    outcome: str
    reason: str = ""


def node_cases() -> list[Any]:
    """Return the node tests of the installed onnx package."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(collect_testcases(None))


def judge(cases: Sequence[Any], run: Runner = evaluate) -> Iterator[Verdict]:
    """Run the cases whose operators the reader knows; each counts for its last one."""
    for case in cases:
        kinds = {node.op_type for node in case.model.graph.node}
        domains = {node.domain for node in case.model.graph.node}
        if case.name not in DISPUTED and kinds <= HANDLERS.keys() and domains <= {"", "ai.onnx"}:
            yield _judge(case, run)


def _judge(case: Any, run: Runner) -> Verdict:
    operator = case.model.graph.node[-1].op_type
    reasons = []
    for fixed in (0, 1):
        try:
            wrong = _difference(case, run, constants_from=fixed)
        except TilewrightError as error:
            reasons.append(str(error))
            continue
        outcome = WRONG if wrong else PASSED
        return Verdict(case=case.name, operator=operator, outcome=outcome, reason=wrong)
    return Verdict(case=case.name, operator=operator, outcome=REFUSED, reason=reasons[-1])


def _difference(case: Any, run: Runner, *, constants_from: int) -> str:
    """Return what is wrong with the results of a case, nothing where they are right."""
    inputs, expected = case.data_sets[0]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    values = list(model.graph.input)
    feeds: dict[str, Any] = {}
    for index, (value, array) in enumerate(zip(values, inputs, strict=False)):
        if isinstance(array, onnx.TensorProto):
            array = numpy_helper.to_array(array)
        if not isinstance(array, np.ndarray | np.generic):
            raise TilewrightError(f"input {value.name!r} is not a tensor")
        array = np.asarray(array)
        if index >= constants_from > 0:
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            continue
        half = value.type.tensor_type.elem_type in HALVES
        feeds[value.name] = array.astype(np.float32) if half else array
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = lower_to_integer(read_onnx(model.SerializeToString(), case.name))
        found = run(graph, {name: feeds[name] for name in graph.inputs})
    for value, want in zip(model.graph.output, expected, strict=False):
        difference = _compare(found[value.name], want, value.type.tensor_type.elem_type, case)
        if difference:
            return f"output {value.name!r} {difference}"
    return ""


def _compare(found: Any, want: Any, element_type: int, case: Any) -> str:
    if isinstance(want, onnx.TensorProto):
        want = numpy_helper.to_array(want)
    if found.shape != want.shape:
        return f"has shape {list(found.shape)}, not {list(want.shape)}"
    wanted = want.astype(np.float64) if want.dtype.kind in "fV" else want
    tolerance = 4e-3 if element_type in HALVES else case.rtol
    if found.dtype.kind == "f":
        close = np.isclose(found, wanted, rtol=tolerance, atol=max(case.atol, 1e-6), equal_nan=True)
    else:
        close = found == wanted
    return "" if close.all() else f"differs in {np.count_nonzero(~close)} of {close.size} elements"


def run_natively(graph: Graph, inputs: Mapping[str, Array]) -> Results:
    """Run a graph as machine code."""
    return NativeGraphs().run(graph, inputs, 1)


def run_as_kernels(device: KernelDevice, graph: Graph, inputs: Mapping[str, Array]) -> Results:
    """Run a graph as kernels of a device."""
    model = GpuModel.load(compile_for_gpu(graph, device.capability, device.dialect), device)
    results = model.run(inputs)
    model.close()
    return results


@cache
def _opencl() -> KernelDevice:
    return OpenClDevice(optimise=False)


@cache
def _cuda() -> KernelDevice:
    return open_cuda_device()


RUNNERS: Mapping[str, Runner] = {
    "reference": evaluate,
    "cpu": run_natively,
    "opencl": lambda graph, inputs: run_as_kernels(_opencl(), graph, inputs),
    "cuda": lambda graph, inputs: run_as_kernels(_cuda(), graph, inputs),
}


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """Return one line per operator, and one in all."""
    counts: Mapping[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        counts[verdict.operator][verdict.outcome] += 1
    lines = [f"{'operator':24}{PASSED:>8}{REFUSED:>9}{WRONG:>7}"]
    for operator in sorted(counts):
        passed, refused, wrong = (counts[operator][o] for o in (PASSED, REFUSED, WRONG))
        lines.append(f"{operator:24}{passed:8}{refused:9}{wrong:7}")
    totals = Counter(verdict.outcome for verdict in verdicts)
    lines.append(f"{'in all':24}{totals[PASSED]:8}{totals[REFUSED]:9}{totals[WRONG]:7}")
    return lines


def main() -> int:
    """Print the table; with ``-v`` also why cases were refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="name every refused case")
    parser.add_argument("--device", choices=RUNNERS, default="reference")
    arguments = parser.parse_args()
    run = RUNNERS[arguments.device]
    verdicts = list(judge(node_cases(), run))
    print("\n".join(table(verdicts)))
    for verdict in verdicts:
        if verdict.outcome == WRONG or (arguments.verbose and verdict.outcome == REFUSED):
            print(f"{verdict.outcome} {verdict.case}: {verdict.reason}")
    return 1 if any(verdict.outcome == WRONG for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
