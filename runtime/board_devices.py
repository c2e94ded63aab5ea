"""From the name of a device to the machine that it means."""

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from typing_extensions import assert_never

from tilewright.isa.errors import InputError
from tilewright.runtime.board_access import BoardAccess
from tilewright.runtime.board_devmem import DevMemAccess
from tilewright.runtime.board_driver import BoardMachine
from tilewright.runtime.board_machine import Machine, SimulatorMachine
from tilewright.runtime.board_pynq import PynqAccess
from tilewright.runtime.devices import AnyDevice, BoardDevice, Device, PoolDevice, SerialDevice
from tilewright.runtime.pool import PoolMachine, Source
from tilewright.runtime.remote_client import TOKEN_VARIABLE, RemoteAddress, RemoteMachine
from tilewright.runtime.rtl_machine import RtlMachine
from tilewright.runtime.serial_machine import SerialMachine


@contextlib.contextmanager
def open_machine(device: AnyDevice, *, vcd: Path | None = None) -> Iterator[Machine]:
    """Make the machine of a device, for as long as the context lasts.

    `vcd` is where the hardware's waveforms go; other devices have none.

    Raises
    ------
    TilewrightError
        If it cannot be reached, or runs no programs.
    """
    if vcd is not None and device is not Device.RTL:
        raise InputError(f"device {device.value!r} has no waveforms, {Device.RTL.value!r} has")
    machine = RtlMachine(vcd) if device is Device.RTL else make_machine(device)
    try:
        yield machine
    finally:
        machine.close()


def make_machine(device: AnyDevice) -> Machine:
    """Make the machine of a device; the caller closes it."""
    match device:
        case Device.SIM:
            return SimulatorMachine()
        case Device.RTL:
            return RtlMachine()
        case Device.REFERENCE | Device.CPU | Device.OPENCL | Device.CUDA:
            raise InputError(f"device {device.value!r} runs no programs")
        case BoardDevice(folder=folder):
            return BoardMachine(find_access(), folder)
        case SerialDevice(port=port, folder=folder):
            return SerialMachine(port, folder)
        case RemoteAddress():
            return _connect(device)
        case PoolDevice(addresses=addresses):
            sources = [
                Source(name=address.value, open=partial(_connect, address)) for address in addresses
            ]
            return PoolMachine(sources)
        case _:
            assert_never(device)


def _connect(address: RemoteAddress) -> RemoteMachine:
    return RemoteMachine(address, token=os.environ.get(TOKEN_VARIABLE))


def find_access() -> BoardAccess:
    """Choose pynq where it is installed, else what the kernel offers; the description says which.

    Raises
    ------
    BoardError
        If this computer has neither.
    """
    if importlib.util.find_spec("pynq") is None and Path("/sys/class/fpga_manager/fpga0").exists():
        return DevMemAccess()
    return PynqAccess()
