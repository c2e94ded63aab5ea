"""The self-test of a device: what works, how fast its memory is, and what its model should say."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from tilewright.isa.config import AcceleratorConfig, differing_fields, with_memory_speed
from tilewright.isa.errors import ConfigError, InputError, TilewrightError
from tilewright.isa.presets import TINY
from tilewright.runtime.board_devices import open_machine
from tilewright.runtime.board_machine import Machine
from tilewright.runtime.configurations import choose_config
from tilewright.runtime.devices import Device, PoolDevice, parse_device
from tilewright.runtime.selftest_checks import (
    check_address_lines,
    check_data_lines,
    check_instructions,
    check_network,
    check_transfers,
    random_programs_fit,
    run_check,
    skip_check,
)
from tilewright.runtime.selftest_report import Check, SelfTestReport, Verdict
from tilewright.runtime.selftest_timing import Timing, measure_timing

_Check: TypeAlias = Callable[[str, Machine, AcceleratorConfig], Check]


def selftest(
    device: str = Device.SIM.value,
    *,
    config: AcceleratorConfig | str | None = None,
    progress: Callable[[str], None] | None = None,
) -> SelfTestReport:
    """Test a device.

    Parameters
    ----------
    device
        ``sim``, ``rtl``, ``pynq`` or ``tcp://host:port``.
    config
        The machine; by default that of the device where it has one, else preset ``tiny``.
    progress
        Called with the name of each check before it begins.

    Raises
    ------
    TilewrightError
        If the device cannot be reached, or is another machine. What fails later is in the report.
    """
    chosen = None if config is None else choose_config(config)
    target = parse_device(device)
    if isinstance(target, PoolDevice):
        raise InputError("a self-test takes one device, not a pool")
    with open_machine(target) as machine:
        return examine(machine, config=chosen, progress=progress)


def examine(
    machine: Machine,
    *,
    config: AcceleratorConfig | None = None,
    progress: Callable[[str], None] | None = None,
) -> SelfTestReport:
    """Test a machine that is open; see `selftest`."""
    chosen = _choose(machine, config)
    checks = []
    for name, check in _CHECKS.items():
        if progress is not None:
            progress(name)
        checks.append(check(name, machine, chosen))
    timing = Timing(measurements=(), changes=())
    if all(check.verdict is not Verdict.FAILED for check in checks):
        if progress is not None:
            progress("latency and bandwidth")
        timing = measure_timing(machine, chosen)
    return SelfTestReport(
        description=machine.description,
        config=chosen,
        checks=tuple(checks),
        measurements=timing.measurements,
        changes=timing.changes,
    )


def _choose(machine: Machine, config: AcceleratorConfig | None) -> AcceleratorConfig:
    own = machine.config
    if config is None or own is None:
        return config or own or TINY
    names = differing_fields(with_memory_speed(own, config), config)
    if other := [name for name in names if name != "name"]:
        raise ConfigError(
            f"{machine.description} is another machine than {config.name}:"
            f" it has another {' and another '.join(other)}"
        )
    return config


def _registers(name: str, machine: Machine, config: AcceleratorConfig) -> Check:
    try:
        tried = machine.check_registers()
    except TilewrightError as error:
        return Check(name=name, verdict=Verdict.FAILED, detail=str(error))
    if tried is None:
        return skip_check(name, f"not tried: {machine.description} has none")
    return Check(name=name, verdict=Verdict.PASSED, detail=tried)


def _instructions(name: str, machine: Machine, config: AcceleratorConfig) -> Check:
    if not random_programs_fit(config):
        return skip_check(name, f"random programs do not fit the memory of {config.name}")
    return run_check(name, partial(check_instructions, machine, config))


def _simple(check: Callable[[Machine, AcceleratorConfig], str]) -> _Check:
    return lambda name, machine, config: run_check(name, partial(check, machine, config))


#: All checks, in their order.
_CHECKS: Mapping[str, _Check] = MappingProxyType(
    {
        "registers": _registers,
        "data lines": _simple(check_data_lines),
        "address lines": _simple(check_address_lines),
        "sizes and alignments": _simple(check_transfers),
        "instructions": _instructions,
        "network": _simple(check_network),
    }
)
