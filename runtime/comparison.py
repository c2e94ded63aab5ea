"""One model on several devices: outputs, differences and times side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import InputError
from tilewright.isa.presets import PYNQ
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.devices import Device, parse_device
from tilewright.runtime.difference import Difference, difference
from tilewright.runtime.execution import Progress
from tilewright.runtime.inputs import Inputs
from tilewright.runtime.model import Model, compile_model
from tilewright.runtime.result import RunResult


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceRun:
    """A run on one device and its distance from the integer graph, per output."""

    device: Device
    result: RunResult
    differences: tuple[tuple[str, Difference], ...]

    @property
    def equal(self) -> bool:
        """Whether every output equals the integer graph bit for bit."""
        return not any(difference.differing for _, difference in self.differences)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """Runs of one model with the same inputs, in the order of the devices asked for."""

    runs: tuple[DeviceRun, ...]

    @property
    def equal(self) -> bool:
        """Whether all devices yield the same bits."""
        return all(run.equal for run in self.runs)

    def __str__(self) -> str:
        lines = [f"{'device':10} {'cycles':>12} {'ms':>10} {'seconds here':>12} differing"]
        for run in self.runs:
            cycles, milliseconds = "-", "-"
            if run.result.timelines:
                stats = run.result.stats
                cycles, milliseconds = str(stats.cycles), f"{stats.milliseconds:.3f}"
            differing = sum(difference.differing for _, difference in run.differences)
            elements = sum(difference.elements for _, difference in run.differences)
            lines.append(
                f"{run.device.value:10} {cycles:>12} {milliseconds:>10}"
                f" {run.result.wall_seconds:>12.3f} {differing} of {elements}"
            )
        return "\n".join(lines)


def compare(
    model: Model | CompiledModel,
    inputs: Inputs,
    devices: Sequence[str] = (Device.SIM.value, Device.REFERENCE.value),
    *,
    config: AcceleratorConfig | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run a model on several devices and compare each with the integer graph.

    Parameters
    ----------
    config
        What a `Model` is compiled for, by default preset ``pynq``; a `CompiledModel` has its own.

    Raises
    ------
    InputError
        If there is no such device, none is named, or the inputs do not fit the model.
    """
    names = tuple(dict.fromkeys(devices))
    if not names:
        raise InputError("name at least one device to compare")
    targets = [parse_device(name) for name in names]
    compiled = compile_model(model, config or PYNQ) if isinstance(model, Model) else model
    expected = compiled.run(inputs, Device.REFERENCE.value)
    runs = []
    for target in targets:
        result = expected
        if target is not Device.REFERENCE:
            result = compiled.run(inputs, target.value, progress=progress)
        differences = tuple(
            (name, difference(result.outputs[name], values))
            for name, values in expected.outputs.items()
        )
        runs.append(DeviceRun(device=target, result=result, differences=differences))
    return Comparison(runs=tuple(runs))
