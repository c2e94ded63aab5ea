"""One model on several devices: outputs, differences and times side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.operators import FloatOperator
from tilewright.cpu_gpu_backends.energy import Meter, joules_of, processor_meter
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import InputError, TilewrightError
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.devices import AnyDevice, Device, parse_device
from tilewright.runtime.difference import Difference, difference
from tilewright.runtime.files import PathLike
from tilewright.runtime.gpu_graphs import open_gpu
from tilewright.runtime.inputs import Inputs, check_inputs
from tilewright.runtime.layer_runs import LayerRun, evaluate_layers, layer_runs
from tilewright.runtime.model import Model, compile_model
from tilewright.runtime.result import RunResult
from tilewright.runtime.tables import Table, plain_table
from tilewright.sim.simulator import Progress

#: How far a device may be from the evaluation in numpy where real numbers are summed in another
#: order, relative to the largest output: see docs/cpu.md.
FLOAT_TOLERANCE = 2e-5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceRun:
    """A run on one device and its distance from the integer graph, per output.

    `joules` is what the platform has counted for one run; None where it counts nothing.
    """

    device: AnyDevice
    result: RunResult
    differences: tuple[tuple[str, Difference], ...]
    joules: float | None = None
    #: In the order of the graph; empty where they were not asked for.
    layers: tuple[LayerRun, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every output equals the integer graph bit for bit."""
        return not any(difference.differing for _, difference in self.differences)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceFailure:
    """A device that could not run the model, and why."""

    device: AnyDevice
    error: TilewrightError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """Runs of one model with the same inputs, in the order of the devices asked for.

    A device that fails does not keep the others from running: it is one of `failures`, and also of
    `runs` where only the run of its layers has failed.
    """

    runs: tuple[DeviceRun, ...]
    failures: tuple[DeviceFailure, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether all devices have run, and yield the same bits."""
        return not self.failures and all(run.equal for run in self.runs)

    @property
    def agrees(self) -> bool:
        """Whether outputs are equal, or of a network of real numbers and apart by rounding only."""
        return not self.failures and all(
            _agree(run, difference) for run in self.runs for _, difference in run.differences
        )

    @property
    def table(self) -> Table:
        """Per device and output the difference from the integer graph, cycles, times and energy.

        Energy is a column only where the platform counts that of a device.
        """
        always = ("device", "output", "differ", "at most by", "cycles", "ms", "seconds here")
        counted = any(run.joules is not None for run in self.runs)
        columns = (*always, "joules") if counted else always
        return Table(
            columns=columns,
            numbers=columns[2:],
            rows=tuple(row[: len(columns)] for run in self.runs for row in _rows(run)),
        )

    @property
    def layer_table(self) -> Table:
        """Per layer, device by device, what differs from the integer graph, and milliseconds.

        A device has no entry for what it computes together with a later operator.
        """
        runs = [
            (run.device, {one.difference.tensor: one for one in run.layers}) for run in self.runs
        ]
        known = {name: layer.difference for _, run in runs for name, layer in run.items()}
        columns = [f"{device.value} {what}" for device, _ in runs for what in _told_of(device)]
        graph = self.runs[0].result.compiled.graph
        return Table(
            columns=("layer", "operator", *columns),
            numbers=tuple(columns),
            rows=tuple(
                (
                    known[name].layer,
                    known[name].op,
                    *(cell for device, run in runs for cell in _cells(device, run.get(name))),
                )
                for node in graph.nodes
                for name in node.outputs
                if name in known
            ),
        )

    def __str__(self) -> str:
        return plain_table(self.table)


def _told_of(device: AnyDevice) -> tuple[str, ...]:
    """Return what the table of layers says of a device: the reference differs from nothing."""
    return ("ms",) if device is Device.REFERENCE else ("differ", "at most by", "ms")


def _cells(device: AnyDevice, layer: LayerRun | None) -> tuple[str, ...]:
    if layer is None:
        return ("",) * len(_told_of(device))
    found, time = layer.difference.difference, layer.milliseconds
    cells = (
        f"{found.share:.2%}" if found.differing else "0",
        f"{found.maximum:g}",
        "-" if time is None else f"{time:.4f}",
    )
    return cells[-len(_told_of(device)) :]


def _agree(run: DeviceRun, difference: Difference) -> bool:
    graph = run.result.compiled.graph
    real = any(isinstance(node.op, FloatOperator) for node in graph.nodes)
    limit = FLOAT_TOLERANCE * difference.largest if real else 0.0
    return difference.differing == 0 or difference.maximum <= limit


def _rows(run: DeviceRun) -> list[tuple[str, ...]]:
    cycles, milliseconds = "-", "-"
    if run.result.timelines or run.result.counters:
        stats = run.result.stats
        cycles, milliseconds = f"{stats.cycles:,}", f"{stats.milliseconds:.3f}"
    return [
        (
            run.device.value,
            name,
            f"{difference.differing:,} of {difference.elements:,}",
            f"{difference.maximum:g}",
            cycles,
            milliseconds,
            f"{run.result.wall_seconds:.3f}",
            "-" if run.joules is None else f"{run.joules:.4g}",
        )
        for name, difference in run.differences
    ]


def compare(
    model: Model | CompiledModel | PathLike,
    inputs: Inputs,
    devices: Sequence[str] = (Device.SIM.value, Device.REFERENCE.value),
    *,
    config: AcceleratorConfig | str | None = None,
    layers: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Run a model on several devices and compare each with the integer graph.

    Parameters
    ----------
    config
        As `compile_model` takes it; a `CompiledModel` is compiled again where it is given.
    layers
        Whether to compare each layer, too, in runs of their own.

    Raises
    ------
    InputError
        If there is no such device, none is named, or the inputs do not fit the model.
    TilewrightError
        If none of the devices can run the model: why the first one cannot.
    """
    names = tuple(dict.fromkeys(devices))
    if not names:
        raise InputError("name at least one device to compare")
    targets = [parse_device(name) for name in names]
    compiled = (
        model
        if config is None and isinstance(model, CompiledModel)
        else compile_model(model, config)
    )
    expected = compiled.run(inputs, Device.REFERENCE.value)
    arrays = check_inputs(compiled.graph, inputs)
    every = evaluate_layers(compiled.graph, arrays) if layers else None
    runs, failures = [], []
    for target in targets:
        try:
            runs.append(_run(compiled, inputs, target, expected, progress))
            if every is not None:
                layered = layer_runs(compiled, arrays, target, every)
                runs[-1] = replace(runs[-1], layers=layered)
        except TilewrightError as error:
            failures.append(DeviceFailure(device=target, error=error))
    if not runs:
        raise failures[0].error
    return Comparison(runs=tuple(runs), failures=tuple(failures))


def _run(
    compiled: CompiledModel,
    inputs: Inputs,
    target: AnyDevice,
    expected: RunResult,
    progress: Progress | None,
) -> DeviceRun:
    result, joules = expected, None
    if target is not Device.REFERENCE:
        result = compiled.run(inputs, target.value, progress=progress)
        meter = _meter(target)
        if meter is not None:
            joules = joules_of(lambda: compiled.run(inputs, target.value), meter)
    differences = tuple(
        (name, difference(result.outputs[name], values))
        for name, values in expected.outputs.items()
    )
    return DeviceRun(device=target, result=result, differences=differences, joules=joules)


def _meter(device: AnyDevice) -> Meter | None:
    """Return what counts the energy of a device that runs on this computer, if anything does.

    What a simulator uses is not the energy of the accelerator.
    """
    match device:
        case Device.CPU:
            return processor_meter()
        case Device.OPENCL | Device.CUDA:
            return open_gpu(device).meter()
        case _:
            return None
