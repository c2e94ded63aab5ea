"""Tuning by measurement on the processor at hand and on GPUs."""

from collections.abc import Callable

from tilewright.compiler.graph import Graph
from tilewright.compiler.tuning.context import Progress
from tilewright.compiler.tuning.cost_model import learned_model
from tilewright.compiler.tuning.measured import MeasuredResult, tune_measured
from tilewright.compiler.tuning.store import TuningStore
from tilewright.compiler.tuning.tuner import DEFAULT_BUDGET
from tilewright.runtime.devices import Device
from tilewright.runtime.gpu_graphs import GPU_TURN, open_gpu
from tilewright.runtime.native_graphs import require_code_generator


def tune_for_processor(
    graph: Graph,
    store: TuningStore,
    *,
    threads: int = 1,
    budget: int = DEFAULT_BUDGET,
    jobs: int = 1,
    seed: int = 0,
    progress: Callable[[Progress], None] = lambda _: None,
) -> MeasuredResult:
    """Fill a store with what is fastest for a graph on the processor at hand.

    Raises
    ------
    InputError
        If the code generator is not installed, or there cannot be so many threads.
    """
    require_code_generator()
    from tilewright.cpu_gpu_backends.codegen.target import host_target
    from tilewright.cpu_gpu_backends.cpu.tuning import CpuTuning

    target = CpuTuning(graph=graph, target=host_target(), threads=threads)
    return tune_measured(
        target,
        store,
        budget=budget,
        jobs=jobs,
        seed=seed,
        model=learned_model(seed),
        progress=progress,
    )


def tune_for_gpu(
    graph: Graph,
    store: TuningStore,
    device: Device,
    *,
    half: bool = False,
    budget: int = DEFAULT_BUDGET,
    jobs: int = 1,
    seed: int = 0,
    progress: Callable[[Progress], None] = lambda _: None,
) -> MeasuredResult:
    """Fill a store with what is fastest for a graph on ``opencl`` or ``cuda``.

    Raises
    ------
    DeviceError
        If there is no such device, or it cannot run the model.
    """
    from tilewright.cpu_gpu_backends.gpu.tuning import GpuTuning

    with GPU_TURN:
        return tune_measured(
            GpuTuning(graph=graph, device=open_gpu(device), half=half),
            store,
            budget=budget,
            jobs=jobs,
            seed=seed,
            model=learned_model(seed),
            progress=progress,
        )
