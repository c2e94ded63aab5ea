"""The devices that a compiled model runs on."""

from enum import Enum

from tilewright.isa.errors import InputError


class Device(Enum):
    """A device by its name."""

    #: The cycle-exact simulator.
    SIM = "sim"
    #: The integer graph in numpy: what every other device must equal bit for bit.
    REFERENCE = "reference"


#: Names that scripts may use already, of devices that this version does not have.
_PLANNED = ("rtl", "cpu", "opencl", "cuda", "pynq")


def parse_device(name: str) -> Device:
    """Return the device of that name.

    Raises
    ------
    InputError
        If there is none, or none yet.
    """
    known = {device.value: device for device in Device}
    hint = f"devices: {', '.join(known)}"
    if not isinstance(name, str):
        raise InputError(f"a device must be named by a text, not {name!r:.60}", hint=hint)
    if name in known:
        return known[name]
    if name in _PLANNED or name.startswith("tcp://"):
        raise InputError(f"device {name!r} is not available in this version", hint=hint)
    raise InputError(f"there is no device {name!r}", hint=hint)
