"""The accelerator as RTLIL, Yosys's own language, with modules that are equal kept once."""

import re
from collections.abc import Mapping

from amaranth.back import rtlil  # type: ignore[attr-defined]
from amaranth.hdl import Elaboratable

from tilewright.hw.accelerator import Accelerator
from tilewright.isa.config import AcceleratorConfig

#: Name of the top module.
TOP = "tilewright_accelerator"

_MODULE = re.compile(r"^module \\(\S+)\n.*?^end\n", re.MULTILINE | re.DOTALL)
_CELL = re.compile(r"^  cell \\(\S+) ", re.MULTILINE)
#: A port that Amaranth has named, where it is declared and wherever it is used.
_PORT = re.compile(r"^  wire .*(?:input|output|inout) \d+  ?\\port\$(\d+)\$", re.MULTILINE)
_AUTOMATIC = re.compile(r"\\port\$(\d+)\$")
#: A connection of a cell: its port, what lies there.
_CONNECT = re.compile(r"(    connect \S+)(.*\n)")
_ATTRIBUTE = re.compile(r"^ *attribute \\(?!init|top|keep).*\n", re.MULTILINE)


def accelerator_rtlil(config: AcceleratorConfig) -> str:
    """Write the accelerator; ports are those of `Accelerator`, and clk and rst."""
    return rtlil_of(Accelerator(config), TOP)


def rtlil_of(unit: Elaboratable, name: str) -> str:
    """Write a unit with the given name of its module, so that equal circuits are equal texts."""
    text: str = rtlil.convert(unit, name=name, emit_src=False)
    return merge_equal_modules(_number_ports(_ATTRIBUTE.sub("", text)))


def _number_ports(text: str) -> str:
    """Number the ports without a name of each module from 0 on, as equal modules must.

    Amaranth numbers them over the whole design. They carry the bits of a port whose driver is not
    one signal.
    """
    modules = {match[1]: match[0] for match in _MODULE.finditer(text)}
    numbers = {
        name: {port: str(number) for number, port in enumerate(_PORT.findall(body))}
        for name, body in modules.items()
    }
    return "".join(_renumbered(body, numbers[name], numbers) for name, body in modules.items())


def _renumbered(body: str, own: Mapping[str, str], numbers: Mapping[str, Mapping[str, str]]) -> str:
    """Give a module its own numbers, and the connections of its cells those of their modules."""
    lines = []
    cell: Mapping[str, str] = {}
    for line in body.splitlines(keepends=True):
        if found := _CELL.match(line):
            cell = numbers.get(found[1], {})
        connection = _CONNECT.match(line)
        target, value = connection.groups() if connection else ("", line)
        lines.append(_renamed(target, cell) + _renamed(value, own))
    return "".join(lines)


def _renamed(text: str, numbers: Mapping[str, str]) -> str:
    return _AUTOMATIC.sub(lambda name: f"\\port${numbers.get(name[1], name[1])}$", text)


def merge_equal_modules(text: str) -> str:
    """Keep one of several modules that differ in their names only, and use it for all of them.

    Amaranth writes a module per instance: as many lanes as the vector engine has, for example.
    """
    modules = {match[1]: match[0] for match in _MODULE.finditer(text)}
    while True:
        first: dict[str, str] = {}
        stands_for: dict[str, str] = {}
        for name, body in modules.items():
            _, _, rest = body.partition("\n")
            stands_for[name] = first.setdefault(rest, name)
        if len(first) == len(modules):
            return "".join(modules.values())
        modules = {
            name: _rename_cells(body, stands_for)
            for name, body in modules.items()
            if stands_for[name] == name
        }


def _rename_cells(body: str, names: Mapping[str, str]) -> str:
    return _CELL.sub(lambda cell: f"  cell \\{names.get(cell[1], cell[1])} ", body)
