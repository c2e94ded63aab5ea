"""A compiled model: it runs on every device, and is saved to and loaded from one file."""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from typing_extensions import Self

from tilewright.compiler.compiled import (
    AcceleratorStep,
    CompiledGraph,
    Placement,
    Target,
)
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Array, Graph
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import InputError
from tilewright.isa.program import Program
from tilewright.runtime.board_devices import open_machine
from tilewright.runtime.devices import AnyDevice, Device, PoolDevice, parse_device, runs_graphs
from tilewright.runtime.execution import Execution, execute_steps
from tilewright.runtime.files import PathLike
from tilewright.runtime.gpu_graphs import GpuGraphs
from tilewright.runtime.host_code import HostLibraries, build_host_code
from tilewright.runtime.inputs import Inputs, check_inputs
from tilewright.runtime.model_file import load_compiled, save_compiled
from tilewright.runtime.native_graphs import NativeGraphs, save_native_library
from tilewright.runtime.result import RunResult
from tilewright.sim.simulator import Progress


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CompiledModel:
    """An integer graph compiled for one configuration."""

    compiled: CompiledGraph
    #: Machine code of the graph and of host steps, made on first use.
    native: NativeGraphs = field(default_factory=NativeGraphs)
    #: Machine code of host steps for a board, made ahead of time.
    libraries: HostLibraries = field(default_factory=HostLibraries)
    #: Kernels of the graph, made on first use of a GPU.
    kernels: GpuGraphs = field(default_factory=GpuGraphs)

    @property
    def graph(self) -> Graph:
        """The integer graph, which defines every output bit for bit."""
        return self.compiled.graph

    @property
    def config(self) -> AcceleratorConfig:
        """The machine that the model was compiled for."""
        return self.compiled.config

    @property
    def placement(self) -> tuple[Placement, ...]:
        """Per operator where it runs, and why."""
        return self.compiled.placement

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of the accelerator, in the order in which they run."""
        return tuple(
            step.program for step in self.compiled.steps if isinstance(step, AcceleratorStep)
        )

    def run(
        self,
        inputs: Inputs,
        device: str = Device.SIM.value,
        *,
        progress: Progress | None = None,
        vcd: PathLike | None = None,
        threads: int = 1,
        half: bool = False,
        direct: bool = False,
    ) -> RunResult:
        """Run the model once.

        Parameters
        ----------
        inputs
            Arrays by input name, in the model's own layout and element type; or one array, where
            the model has one input.
        device
            ``sim``, ``rtl``, ``cpu``, ``opencl``, ``cuda``, ``reference``, ``pynq`` on a board,
            ``tcp://host:port``, or several of these with commas.
        progress
            Called with the instructions executed so far and their total.
        vcd
            Where to write the waveforms of device ``rtl``.
        threads
            How many threads share the work of device ``cpu``.
        half
            Whether real numbers have 16 bits: float16 in the memory of devices ``opencl`` and
            ``cuda``, and bfloat16 where device ``cpu`` multiplies them faster.
        direct
            Whether device ``cpu`` computes every convolution as the sum that defines it, without
            Winograd's transformations, which round a little more.

        Raises
        ------
        InputError
            If an input does not fit the model, or if there is no such device.
        TilewrightError
            If a board, a server or a GPU cannot be used.
        """
        target = parse_device(device)
        arrays = check_inputs(self.graph, inputs)
        _check_arithmetic(target, half=half, direct=direct)
        self._prepare(target, threads, half, direct)
        start = time.perf_counter()
        match target:
            case Device.REFERENCE:
                execution = Execution(values=evaluate(self.graph, arrays))
            case Device.CPU:
                values = self.native.run(self.graph, arrays, threads, half=half, direct=direct)
                execution = Execution(values=values)
            case Device.OPENCL | Device.CUDA:
                outputs = self.kernels.run(self.graph, arrays, target, half=half)
                execution = Execution(values=outputs)
            case _:
                with open_machine(target, vcd=None if vcd is None else Path(vcd)) as machine:
                    execution = execute_steps(
                        self.compiled, arrays, machine, progress, self.native, self.libraries
                    )
        return self._result(target, execution, start)

    def run_many(
        self, inputs: Iterable[Inputs], device: str = Device.SIM.value
    ) -> tuple[RunResult, ...]:
        """Run the model once for each item of `inputs`, results in the same order.

        The device is opened once; of a pool each machine runs one of them at a time. Parameters
        and errors are those of `run`.
        """
        target = parse_device(device)
        arrays = [check_inputs(self.graph, item) for item in inputs]
        if target is Device.REFERENCE or runs_graphs(target):
            return tuple(self.run(item, device) for item in arrays)
        jobs = target.jobs if isinstance(target, PoolDevice) else 1
        with open_machine(target) as machine, ThreadPoolExecutor(jobs) as workers:

            def run(item: dict[str, Array]) -> RunResult:
                start = time.perf_counter()
                execution = execute_steps(
                    self.compiled, item, machine, native=self.native, libraries=self.libraries
                )
                return self._result(target, execution, start)

            return tuple(workers.map(run, arrays))

    def _prepare(self, target: AnyDevice, threads: int, half: bool, direct: bool) -> None:
        """Compile what runs the graph on the processor or a GPU, so that no run counts it."""
        match target:
            case Device.CPU:
                self.native.prepare(self.graph, threads, half=half, direct=direct)
            case Device.OPENCL | Device.CUDA:
                self.kernels.prepare(self.graph, target, half=half)
            case _:
                pass

    def _result(self, target: AnyDevice, execution: Execution, start: float) -> RunResult:
        return RunResult(
            compiled=self.compiled,
            device=target,
            outputs={name: execution.values[name] for name in self.graph.outputs},
            timelines=execution.timelines,
            counters=execution.counters,
            wall_seconds=time.perf_counter() - start,
        )

    def save(self, path: PathLike) -> None:
        """Write the compiled model to one file, whole or not at all."""
        save_compiled(self.compiled, path, self.libraries.code)

    def with_host_code(self, processor: str) -> Self:
        """Return the model with its host steps compiled for a board's processor.

        The code becomes part of the file and runs on the board without LLVM. It covers the
        operators that have the same bits there as in numpy; the others stay in numpy.

        Parameters
        ----------
        processor
            ``cortex-a9`` or ``cortex-a53``.

        Raises
        ------
        TilewrightError
            If there is no such processor, no code generator, or no linker for the processor.
        """
        code = build_host_code(self.compiled, processor)
        return replace(self, libraries=HostLibraries(code=code))

    def save_library(
        self,
        path: PathLike,
        processor: str = "host",
        *,
        half: bool = False,
        direct: bool = False,
    ) -> tuple[Path, ...]:
        """Compile the whole graph for a processor, ahead of time, and return the files written.

        A path that ends in ``.so`` becomes a shared library, any other one two object files; a C
        header lies beside them. None of them needs Python or LLVM.

        Parameters
        ----------
        processor
            ``host``, ``x86-64-v3``, ``cortex-a53`` or ``cortex-a9``.
        half, direct
            As `run` takes them for device ``cpu``.

        Raises
        ------
        TilewrightError
            If there is no such processor, no code generator, or no linker for a shared library.
        """
        return save_native_library(self.graph, Path(path), processor, half=half, direct=direct)

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read a compiled model that `save` wrote.

        Raises
        ------
        TilewrightError
            If the file cannot be read, is damaged, or is of another version.
        """
        compiled, code = load_compiled(path)
        return cls(compiled=compiled, libraries=HostLibraries(code=code))

    def __repr__(self) -> str:
        return f"<CompiledModel {self}>"

    def __str__(self) -> str:
        counts = {
            target: sum(item.target is target for item in self.placement) for target in Target
        }
        places = ", ".join(f"{count} on the {target.value}" for target, count in counts.items())
        return f"{self.graph.name} for {self.config.name}: operators {places}"


def _check_arithmetic(target: AnyDevice, *, half: bool, direct: bool) -> None:
    """Check that a device has the arithmetic that it is asked for."""
    if half and not runs_graphs(target):
        raise InputError(f"device {target.value!r} computes no real numbers of 16 bits")
    if direct and target is not Device.CPU:
        raise InputError(f"device {target.value!r} has no other convolution than the direct one")
