"""Machine code of a program's host steps for the processor of a board, made ahead of time.

The code is part of the compiled model's file and is loaded where the processor is the one that it
was made for; elsewhere it lies idle. It needs no LLVM, only the C library of the process.
"""

import ctypes
import platform
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.compiler.compiled import CompiledGraph, HostStep
from tilewright.compiler.graph import Array, Graph, Node
from tilewright.compiler.subgraph import subgraph
from tilewright.cpu_gpu_backends.cpu.exact import exact_runs
from tilewright.isa.errors import CompileError, InputError
from tilewright.runtime.native_graphs import require_code_generator

#: What Python calls the machine, and its word in bits, by the processors that boards have.
_MACHINES = {"cortex-a9": ("armv7l", 32), "cortex-a53": ("aarch64", 64)}
#: Of the workspace, and of its beginning.
_ALIGNMENT = 64
_PREFIX = "host"
_Run: TypeAlias = Callable[[Any, Any, int], int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostLibrary:
    """A shared library that computes nodes which follow each other in a host step.

    Attributes
    ----------
    nodes
        Names of the nodes. Inputs and outputs are those of their `subgraph`.
    workspace_bytes
        Memory that a run takes.
    library
        The bytes of the shared library.
    """

    nodes: tuple[str, ...]
    workspace_bytes: int
    library: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostCode:
    """What a compiled model holds for one processor."""

    processor: str
    libraries: tuple[HostLibrary, ...]

    def __post_init__(self) -> None:
        if self.processor not in _MACHINES:
            raise InputError(
                f"host steps are compiled ahead of time for {' and '.join(_MACHINES)},"
                f" not for {self.processor!r}",
                hint="a workstation needs none: it compiles what pays when it runs",
            )

    @property
    def fits_here(self) -> bool:
        """Whether this process runs on such a processor."""
        machine, bits = _MACHINES[self.processor]
        return platform.machine() == machine and (sys.maxsize > 1 << 32) is (bits == 64)


def build_host_code(compiled: CompiledGraph, processor: str) -> HostCode:
    """Compile the exact operators of all host steps for a processor.

    What is not exact stays with numpy, so that results keep every bit.

    Raises
    ------
    InputError
        If boards have no such processor, or the code generator is not installed.
    CompileError
        If there is no linker for the processor.
    """
    empty = HostCode(processor=processor, libraries=())
    require_code_generator()
    libraries = [
        _build(subgraph(compiled.graph, nodes), nodes, processor)
        for step in compiled.steps
        if isinstance(step, HostStep)
        for exact, nodes in exact_runs(step.nodes)
        if exact
    ]
    return replace(empty, libraries=tuple(libraries))


def _build(graph: Graph, nodes: tuple[Node, ...], processor: str) -> HostLibrary:
    from tilewright.cpu_gpu_backends.codegen.target import find_target
    from tilewright.cpu_gpu_backends.cpu.ahead_of_time import build_library, link_bare
    from tilewright.cpu_gpu_backends.cpu.lower import lower_graph

    target = find_target(processor)
    library = build_library(lower_graph(graph, target), target, _PREFIX)
    return HostLibrary(
        nodes=tuple(node.name for node in nodes),
        workspace_bytes=library.workspace_bytes,
        library=np.frombuffer(link_bare(library, target), np.uint8),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Loaded:
    """A library in the process; the workspace begins at `start`."""

    graph: Graph
    run: _Run
    workspace: Array
    start: int


@dataclass(slots=True, kw_only=True, eq=False)
class HostLibraries:
    """The code that a compiled model carries, if any, loaded on first use."""

    code: HostCode | None = None
    _loaded: dict[str, _Loaded] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def node_names(self) -> frozenset[str]:
        """Names of the nodes that there is code for."""
        libraries = () if self.code is None else self.code.libraries
        return frozenset(name for library in libraries for name in library.nodes)

    def compute(
        self, graph: Graph, nodes: tuple[Node, ...], values: Mapping[str, Array]
    ) -> dict[str, Array] | None:
        """Return what nodes yield for those after them; None where there is no code for them.

        Raises
        ------
        CompileError
            If the library cannot be loaded.
        """
        if self.code is None or not self.code.fits_here:
            return None
        names = tuple(node.name for node in nodes)
        library = next((one for one in self.code.libraries if one.nodes == names), None)
        if library is None:
            return None
        with self._lock:
            if names[0] not in self._loaded:
                self._loaded[names[0]] = _load(library, subgraph(graph, nodes))
            return _run(self._loaded[names[0]], values)


def _load(library: HostLibrary, graph: Graph) -> _Loaded:
    # The library names no others: it takes what the process has.
    ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "host.so"
        path.write_bytes(library.library.tobytes())
        try:
            loaded = ctypes.CDLL(str(path))
        except OSError as error:
            raise CompileError(
                f"the code of host step {library.nodes[0]!r} does not load: {error}",
                hint="compile the model without --processor to compute it in numpy",
            ) from error
    run = loaded[f"{_PREFIX}_run"]
    run.argtypes, run.restype = (ctypes.c_void_p,) * 3, ctypes.c_int
    workspace = np.zeros(library.workspace_bytes + _ALIGNMENT, np.uint8)
    start = workspace.ctypes.data + -workspace.ctypes.data % _ALIGNMENT
    return _Loaded(graph=graph, run=run, workspace=workspace, start=start)


def _run(loaded: _Loaded, values: Mapping[str, Array]) -> dict[str, Array]:
    graph = loaded.graph
    given = [np.ascontiguousarray(values[name]) for name in graph.inputs]
    tensors = [graph.tensors[name] for name in graph.outputs]
    results = [np.empty(tensor.shape, tensor.dtype.value) for tensor in tensors]
    status = loaded.run(_addresses(given), _addresses(results), loaded.start)
    assert status == 0, "code without bounds checks finds no faults"
    return dict(zip(graph.outputs, results, strict=True))


def _addresses(arrays: list[Array]) -> "ctypes.Array[ctypes.c_void_p]":
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def code_fits(code: HostCode, compiled: CompiledGraph) -> bool:
    """Whether each library belongs to nodes of a step, so that it gets what it was made for."""
    runs = {
        tuple(node.name for node in nodes)
        for step in compiled.steps
        if isinstance(step, HostStep)
        for _, nodes in exact_runs(step.nodes)
    }
    return all(one.nodes in runs and one.workspace_bytes >= 0 for one in code.libraries)
