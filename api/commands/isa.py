"""``tilewright isa``: the reference page of the instruction set for one configuration."""

import argparse
from enum import IntEnum
from typing import Any

from tilewright.commands.command import Command, Outcome
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest, config_to_record
from tilewright.isa.encoding import instruction_bytes, layout
from tilewright.isa.instructions import INSTRUCTION_CLASSES, GemmUop, VectorUop
from tilewright.isa.memories import UOP_BYTES, Memory, memory_shape
from tilewright.isa.reference import reference_page
from tilewright.options import add_config, check_outputs, chosen_config
from tilewright.terminal import Terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    check_outputs(arguments.json)
    config = chosen_config(arguments)
    terminal.result(reference_page(config).removesuffix("\n"))
    return Outcome(record=_record(config))


def _record(config: AcceleratorConfig) -> dict[str, object]:
    return {
        "config": config.name,
        "configuration": config_to_record(config),
        "digest": config_digest(config),
        "instruction_bytes": instruction_bytes(config),
        "uop_bytes": UOP_BYTES,
        "memories": [_memory(memory, config) for memory in Memory],
        "instructions": [
            {
                "name": _name(opcode),
                "opcode": opcode.value,
                "engine": None if kind.engine is None else _name(kind.engine),
                "operands": _operands(kind, config),
            }
            for opcode, kind in INSTRUCTION_CLASSES.items()
        ],
        "uops": [
            {"name": name, "operands": _operands(kind, config)}
            for name, kind in (("gemm", GemmUop), ("vector", VectorUop))
        ],
    }


def _memory(memory: Memory, config: AcceleratorConfig) -> dict[str, object]:
    shape = memory_shape(memory, config)
    return {
        "name": _name(memory),
        "code": memory.value,
        "entries": shape.entries,
        "entry_bytes": shape.entry_bytes,
        "banks": shape.banks,
        "writers": [_name(engine) for engine in shape.writers],
        "readers": [_name(engine) for engine in shape.readers],
    }


def _operands(kind: type[Any], config: AcceleratorConfig) -> list[dict[str, object]]:
    return [
        {
            "name": item.field.path,
            "position": item.position,
            "width": item.width,
            "low": item.low,
            "high": item.high,
            "meaning": item.field.operand.meaning,
        }
        for item in layout(kind, config)
    ]


def _name(member: IntEnum) -> str:
    return member.name.lower()


COMMAND = Command(
    name="isa",
    summary="print the reference page of the instruction set",
    add_arguments=_add_arguments,
    execute=_execute,
)
