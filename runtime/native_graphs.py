"""Graphs as machine code for the processor at hand, compiled when first run."""

import importlib.util
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tilewright.compiler.graph import Array, Graph, Node
from tilewright.isa.errors import InputError
from tilewright.runtime.files import check_writable, write_atomically
from tilewright.runtime.tuning import Tuning, TuningSource, open_store

if TYPE_CHECKING:
    from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
    from tilewright.cpu_gpu_backends.cpu.arithmetic import Arithmetic
    from tilewright.cpu_gpu_backends.cpu.native import NativeProgram
    from tilewright.cpu_gpu_backends.cpu.plans import Plan

#: Names of the tensors that a graph reads and computes.
_Key: TypeAlias = tuple[str, ...]
#: Host steps of more multiply-accumulates or elements are worth compiling: numpy takes longer for
#: them than the compiler does for their few kernels.
_HEAVY_OPERATIONS = 20_000_000


@dataclass(slots=True, eq=False)
class NativeGraphs:
    """The machine code of some graphs, by their arithmetic and the tensors they compute."""

    #: Which tuned plans to use.
    tuning: TuningSource = Tuning.CACHED
    #: Plans by tensors and threads; programs by arithmetic, tensors and plans, for any threads.
    _plans: "dict[tuple[_Key, int], dict[str, Plan]]" = field(default_factory=dict)
    _programs: "dict[tuple[Arithmetic, _Key, frozenset[tuple[str, Plan]]], NativeProgram]" = field(
        default_factory=dict
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_available(self) -> bool:
        """Whether the code generator is installed."""
        return importlib.util.find_spec("llvmlite") is not None

    def prepare(
        self, graph: Graph, threads: int = 1, *, half: bool = False, direct: bool = False
    ) -> "NativeProgram":
        """Compile `graph` unless that has been done, and return the result.

        Parameters
        ----------
        threads
            For how many the tuned plans are; any number can run the result.
        half, direct
            As `tilewright.cpu_gpu_backends.cpu.arithmetic.Arithmetic` has them.

        Raises
        ------
        InputError
            If the code generator is not installed, does not know this processor, or the processor
            lacks what `half` needs.
        """
        require_code_generator()
        from tilewright.cpu_gpu_backends.codegen.target import host_target
        from tilewright.cpu_gpu_backends.cpu.arithmetic import Arithmetic, check_arithmetic
        from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
        from tilewright.cpu_gpu_backends.cpu.native import load_program

        tensors = _tensors(graph)
        with self._lock:
            target, arithmetic = host_target(), Arithmetic(half=half, direct=direct)
            check_arithmetic(arithmetic, target)
            plans = self._tuned(graph, target, threads)
            key = (arithmetic, tensors, frozenset(plans.items()))
            if key not in self._programs:
                program = lower_graph(graph, target, plans, arithmetic)
                self._programs[key] = load_program(program, target)
            return self._programs[key]

    def _tuned(self, graph: Graph, target: "CpuTarget", threads: int) -> "dict[str, Plan]":
        """Return what a tuner has chosen for a graph; read once."""
        from tilewright.cpu_gpu_backends.cpu.tuning import tuned_plans

        key = (_tensors(graph), threads)
        if key not in self._plans:
            store = open_store(self.tuning)
            found = {} if store is None else tuned_plans(graph, target, threads, store)
            self._plans[key] = found
        return self._plans[key]

    def run(
        self,
        graph: Graph,
        inputs: Mapping[str, Array],
        threads: int,
        *,
        half: bool = False,
        direct: bool = False,
    ) -> dict[str, Array]:
        """Return the outputs of `graph` for arrays that fit its inputs."""
        program = self.prepare(graph, threads, half=half, direct=direct)
        results = program.run([inputs[name] for name in graph.inputs], threads)
        return {
            name: values.reshape(graph.tensors[name].shape)
            for name, values in zip(graph.outputs, results, strict=True)
        }

    def run_layers(
        self, graph: Graph, inputs: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the result of every group of operators, and its milliseconds in one thread.

        The groups and their kernels are those of `run`; but every result is an output, so that none
        is computed in bands with the next.
        """
        require_code_generator()
        from tilewright.cpu_gpu_backends.codegen.target import host_target
        from tilewright.cpu_gpu_backends.cpu.grouping import group_nodes
        from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
        from tilewright.cpu_gpu_backends.cpu.native import load_program

        groups, target = group_nodes(graph), host_target()
        kept = replace(graph, outputs=_with_outputs(graph, [group.output for group in groups]))
        with self._lock:
            plans = self._tuned(graph, target, 1)
        program = load_program(lower_graph(kept, target, plans), target, profile=True)
        arrays = [inputs[name] for name in kept.inputs]
        program.run(arrays)
        call = program.bound_call(arrays)
        start = time.perf_counter()
        call()
        elapsed = (time.perf_counter() - start) * 1e3
        names = {name: group.output for group in groups for name in group.names}
        times = _shares(program.cycles(), names, elapsed)
        results = zip(kept.outputs, program.run(arrays), strict=True)
        return {name: data.reshape(graph.tensors[name].shape) for name, data in results}, times


def _tensors(graph: Graph) -> tuple[str, ...]:
    """Return what tells one part of a model's graph from another: inputs, and outputs."""
    return (*graph.inputs, "", *graph.outputs)


def _with_outputs(graph: Graph, names: Iterable[str]) -> tuple[str, ...]:
    """Return the outputs of a graph and the tensors named, each once."""
    return tuple(dict.fromkeys((*graph.outputs, *names)))


def _shares(
    cycles: Iterable[tuple[str, int]], names: Mapping[str, str], elapsed: float
) -> dict[str, float]:
    """Return the part of the time that each group's kernels took, by its output."""
    counted = list(cycles)
    total = max(1, sum(count for _, count in counted))
    shares: dict[str, float] = {}
    for layer, count in counted:
        # What fills a border or copies a tensor bears its name.
        output = names.get(layer) or names.get(layer.rpartition("/")[0])
        if output is not None:
            shares[output] = shares.get(output, 0.0) + elapsed * count / total
    return shares


def save_native_library(
    graph: Graph, path: Path, processor: str, *, half: bool = False, direct: bool = False
) -> tuple[Path, ...]:
    """Compile a graph ahead of time for a processor and return the files written.

    Raises
    ------
    InputError
        If there is no such processor, it lacks what `half` needs, or the code generator is not
        installed, or a file cannot be written.
    CompileError
        If a shared library cannot be linked.
    """
    require_code_generator()
    from tilewright.cpu_gpu_backends.codegen.target import find_target
    from tilewright.cpu_gpu_backends.cpu.ahead_of_time import build_library, c_name, library_files
    from tilewright.cpu_gpu_backends.cpu.arithmetic import Arithmetic, check_arithmetic
    from tilewright.cpu_gpu_backends.cpu.lower import lower_graph

    target, arithmetic = find_target(processor), Arithmetic(half=half, direct=direct)
    check_arithmetic(arithmetic, target)
    check_writable(path)
    program = lower_graph(graph, target, arithmetic=arithmetic)
    files = library_files(build_library(program, target, c_name(path.stem)), path, target)
    for file, data in files.items():
        write_atomically(file, data)
    return tuple(files)


def require_code_generator() -> None:
    """Raise InputError unless the code generator is installed."""
    if importlib.util.find_spec("llvmlite") is None:
        raise InputError(
            "device 'cpu' needs llvmlite, which is not installed",
            hint="pip install llvmlite",
        )


def is_heavy(graph: Graph, nodes: tuple[Node, ...]) -> bool:
    """Whether nodes take long enough in numpy for compiling them to pay within one run."""
    total = 0
    for node in nodes:
        elements = prod(graph.tensors[node.outputs[0]].shape)
        weights = [prod(graph.constants[n].shape[1:]) for n in node.inputs if n in graph.constants]
        total += elements * max([1, *weights])
    return total > _HEAVY_OPERATIONS
