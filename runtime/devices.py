"""The devices that a compiled model runs on."""

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from tilewright.isa.errors import InputError
from tilewright.runtime.remote_client import REMOTE_PREFIX, RemoteAddress, parse_address


class Device(Enum):
    """A device by its name."""

    #: The cycle-exact simulator.
    SIM = "sim"
    #: The hardware itself, Verilated.
    RTL = "rtl"
    #: Machine code for the processor at hand.
    CPU = "cpu"
    #: Kernels on the first OpenCL device.
    OPENCL = "opencl"
    #: Kernels on the first CUDA device.
    CUDA = "cuda"
    #: The integer graph in numpy: what every other device must equal bit for bit.
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardDevice:
    """The accelerator of the board that this runs on."""

    #: A build: the bitstream and its description.
    folder: Path

    @property
    def value(self) -> str:
        """Name of the device."""
        return _BOARD


@dataclass(frozen=True, slots=True, kw_only=True)
class SerialDevice:
    """The accelerator of a board at a serial port."""

    port: str
    #: A build: the description of the bitstream that the board has.
    folder: Path

    @property
    def value(self) -> str:
        """Name of the device."""
        return f"{_SERIAL_PREFIX}{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDevice:
    """Machines behind several servers, of which each job takes one."""

    addresses: tuple[RemoteAddress, ...]

    @property
    def value(self) -> str:
        """Name of the device."""
        return _POOL_SEPARATOR.join(address.value for address in self.addresses)

    @property
    def jobs(self) -> int:
        """Jobs that run at a time."""
        return len(self.addresses)


#: A device: one of those that every computer has, the board at hand, one or several servers.
AnyDevice: TypeAlias = Device | BoardDevice | SerialDevice | RemoteAddress | PoolDevice

#: Name of the board at hand, and the variable that names the folder of its build.
_BOARD = "pynq"
_SERIAL_PREFIX = "ulx3s:"
_POOL_SEPARATOR = ","
_BUILD_VARIABLE = "TILEWRIGHT_BITSTREAM"
#: Devices that run the whole graph by code of their own, without an accelerator.
_HOSTS = (Device.CPU, Device.OPENCL, Device.CUDA)


def counts_cycles(device: AnyDevice) -> bool:
    """Whether a device is an accelerator, whose runs have cycles and programs."""
    return device is not Device.REFERENCE and not runs_graphs(device)


def runs_graphs(device: AnyDevice) -> bool:
    """Whether a device runs whole graphs by code made for it, and no programs."""
    return device in _HOSTS


def parse_device(name: str) -> AnyDevice:
    """Return the device of that name; boards have their build in ``$TILEWRIGHT_BITSTREAM``.

    Raises
    ------
    InputError
        If there is none.
    """
    known = {device.value: device for device in Device}
    hint = f"devices: {', '.join(known)}, {_BOARD}, {_SERIAL_PREFIX}PORT, {REMOTE_PREFIX}HOST:PORT"
    if not isinstance(name, str):
        raise InputError(f"a device must be named by a text, not {name!r:.60}", hint=hint)
    if name in known:
        return known[name]
    if name.startswith(REMOTE_PREFIX) and _POOL_SEPARATOR in name:
        return _parse_pool(name)
    if name.startswith(REMOTE_PREFIX):
        return parse_address(name)
    if name.startswith(_SERIAL_PREFIX) and name != _SERIAL_PREFIX:
        return SerialDevice(port=name.removeprefix(_SERIAL_PREFIX), folder=_build_folder())
    if name == _BOARD:
        return BoardDevice(folder=_build_folder())
    raise InputError(f"there is no device {name!r}", hint=hint)


def _parse_pool(name: str) -> PoolDevice:
    addresses = tuple(parse_address(part.strip()) for part in name.split(_POOL_SEPARATOR))
    if len(set(addresses)) < len(addresses):
        raise InputError(f"device {name!r:.80} names a server twice")
    return PoolDevice(addresses=addresses)


def _build_folder() -> Path:
    return Path(os.environ.get(_BUILD_VARIABLE, "."))
