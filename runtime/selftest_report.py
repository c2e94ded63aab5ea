"""What a self-test found: checks that passed or not, measurements, and the model that fits them."""

from dataclasses import dataclass
from enum import Enum

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import TilewrightError
from tilewright.runtime.tables import Table


class Verdict(Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Failure(TilewrightError):
    """A check has found a difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that works or does not."""

    name: str
    verdict: Verdict
    #: What was tried, what went wrong, or why it was left out.
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number of the device beside that of its timing model."""

    name: str
    unit: str
    measured: float
    #: None where the model says nothing.
    model: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A field of the timing model that the device contradicts."""

    field: str
    now: int
    fitting: int
    #: The field is built into the hardware as well.
    needs_bitstream: bool

    @property
    def option(self) -> str:
        """The change as words of a command line."""
        return f"--set {self.field}={self.fitting}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestReport:
    """Everything that a self-test found."""

    #: What was tested, in one line.
    description: str
    config: AcceleratorConfig
    checks: tuple[Check, ...]
    measurements: tuple[Measurement, ...]
    changes: tuple[Change, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed; numbers that the model did not foretell are no failure."""
        return all(check.verdict is not Verdict.FAILED for check in self.checks)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Checks and measurements as tables."""
        return _check_table(self.checks), _measurement_table(self.measurements)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to change in the model, a line each."""
        if not self.measurements:
            return ("nothing was measured",)
        if not self.changes:
            return (f"the timing model of {self.config.name} needs no change",)
        lines = [
            f"{change.option}    (now {change.now}"
            f"{', and a new bitstream' if change.needs_bitstream else ''})"
            for change in self.changes
        ]
        return (f"to have {self.config.name} foretell this device, compile with", *lines)


def _check_table(checks: tuple[Check, ...]) -> Table:
    return Table(
        columns=("check", "result", "detail"),
        prose=("detail",),
        title="Checks",
        rows=tuple((check.name, check.verdict.value, check.detail) for check in checks),
    )


def _measurement_table(measurements: tuple[Measurement, ...]) -> Table:
    return Table(
        columns=("quantity", "measured", "model", "unit"),
        numbers=("measured", "model"),
        title="Measurements",
        rows=tuple(
            (
                item.name,
                _number(item.measured),
                "" if item.model is None else _number(item.model),
                item.unit,
            )
            for item in measurements
        ),
    )


def _number(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
