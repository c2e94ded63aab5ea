"""Programs of schedules written by hand: a tensor expression alone on the accelerator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

from tilewright.compiler.lowering.bindings import (
    Binding,
    ConstantEntries,
    DramView,
    WeightBlocks,
)
from tilewright.compiler.lowering.emitter import ConstantPool, Emitter
from tilewright.compiler.lowering.nest_code import NestCode, NestTiles
from tilewright.compiler.lowering.parameters import scale_words
from tilewright.compiler.lowering.tensors import BlockedTensor, TensorShape
from tilewright.compiler.lowering.tokens import assign_tokens
from tilewright.compiler.tensor.accelerator import memory_of
from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopNest
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.errors import CompileError, InputError
from tilewright.isa.instructions import Finish
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.program import Buffer, BufferRole, Program, Segment, code_alignment_bytes

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledProgram:
    """A loop nest, the program that carries it out, and where the program finds its tensors."""

    nest: LoopNest
    program: Program
    #: The activations in DRAM by name, those that are stored included.
    tensors: Mapping[str, BlockedTensor]

    def dram(self, inputs: Mapping[str, Array]) -> npt.NDArray[np.uint8]:
        """Return the memory before the program runs, `inputs` as the nest declares them.

        Raises
        ------
        InputError
            If an input is missing or has another shape or element type.
        """
        memory = self.program.initial_dram()
        for tensor in self.nest.inputs:
            if tensor.name not in self.tensors:
                continue
            array = inputs.get(tensor.name)
            if array is None or array.shape != tensor.shape or array.dtype != np.int8:
                raise InputError(f"input {tensor} is missing or of another shape or type")
            place = self.tensors[tensor.name]
            values = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
            memory[place.address : place.address + place.size_bytes] = values
        return memory

    def results(self, memory: npt.NDArray[np.uint8]) -> dict[str, Array]:
        """Return the outputs that the program has left in `memory`."""
        found: dict[str, Array] = {}
        for tensor in self.nest.outputs:
            place = self.tensors[tensor.name]
            values = memory[place.address : place.address + place.size_bytes]
            found[tensor.name] = values.view(np.int8).reshape(tensor.shape)
        return found


def program_of(
    schedule: Schedule,
    config: AcceleratorConfig,
    *,
    constants: Mapping[str, Array] | None = None,
    scalars: Mapping[str, int] | None = None,
) -> ScheduledProgram:
    """Compile a schedule whose stages are all instructions of the accelerator.

    Parameters
    ----------
    constants
        Inputs that do not change, as declared: weights, parameters, coefficients, tables. All
        other inputs and the outputs are activations ``[group, block, row, column, part, image,
        lane]``.
    scalars
        Values of the parameters of its expressions.

    Raises
    ------
    CompileError
        If a statement is no instruction, or does not fit the machine.
    """
    nest = lower(schedule)
    code = NestCode(nest)
    given = constants or {}
    tensors, end = _places(nest, given, config)
    bindings: dict[str, Binding] = {
        name: DramView(name=name, tensor=tensor) for name, tensor in tensors.items()
    }
    bindings |= {name: _constant(name, array, code) for name, array in given.items()}
    emitter = Emitter(config, ConstantPool(begin=end, alignment=config.burst_bytes))
    emitter.layer = 0
    for step in NestTiles(code, bindings, scalars or {}).steps():
        step.emit(emitter)
    return ScheduledProgram(
        nest=nest, program=_program(nest, emitter, tensors, end), tensors=tensors
    )


def _places(
    nest: LoopNest, constants: Mapping[str, Array], config: AcceleratorConfig
) -> tuple[dict[str, BlockedTensor], int]:
    """Place the activations one behind the other; return them and the address behind the last."""
    tensors: dict[str, BlockedTensor] = {}
    end = 0
    for tensor in (*nest.inputs, *nest.outputs):
        if tensor.name not in constants:
            tensors[tensor.name] = _placed(tensor, end, config)
            end += -(-tensors[tensor.name].size_bytes // config.burst_bytes) * config.burst_bytes
    return tensors, end


def _placed(tensor: Tensor, address: int, config: AcceleratorConfig) -> BlockedTensor:
    match tensor.shape:
        case (groups, blocks, rows, columns, parts, images, lanes) if (
            images == config.batch and parts * lanes == config.layout_block
        ):
            shape = TensorShape(
                images=groups * images, height=rows, width=columns, channels=blocks * parts * lanes
            )
            return BlockedTensor.at(address, shape, config)
        case _:
            raise CompileError(
                f"{tensor} is no constant and must have the axes group, block, row, column, part,"
                f" image ({config.batch}), lane, {config.layout_block} channels a block"
            )


def _constant(name: str, array: Array, code: NestCode) -> Binding:
    """Return a constant as the scratchpad holds it into which it is loaded."""
    (memory,) = {
        memory_of(operation.output.tensor.scope)
        for operation in code.operations
        if operation.intrinsic.engine is Engine.LOAD
        and operation.inputs["source"].tensor.name == name
    }
    match memory:
        case Memory.WGT:
            tiles = array.astype(np.int8)
            return WeightBlocks(tiles=tiles, present=np.ones(tiles.shape[:-2], dtype=np.bool_))
        case Memory.PRM:
            words = scale_words(array[..., 0], array[..., 1], array[..., 2])
            flat = words.reshape(*words.shape[:-2], -1)
        case Memory.COEF | Memory.LUT:
            flat = array.astype("<i2" if memory is Memory.COEF else np.int8)
        case Memory.INP | Memory.VEC | Memory.GUOP | Memory.VUOP | Memory.ACC | Memory.OUT:
            raise CompileError(f"constant {name!r} cannot be loaded into {memory.name.lower()}")
        case _:
            assert_never(memory)
    return ConstantEntries(entries=np.ascontiguousarray(flat).view(np.uint8))


def _program(
    nest: LoopNest, emitter: Emitter, tensors: Mapping[str, BlockedTensor], end: int
) -> Program:
    config, constants = emitter.config, emitter.constants
    tasks = assign_tokens(emitter.tasks, config, dram_begin=0, dram_end=end)
    alignment = code_alignment_bytes(config)
    code_address = -(-constants.end // alignment) * alignment
    outputs = {tensor.name for tensor in nest.outputs}
    return Program(
        config=config,
        instructions=(*tasks, Finish()),
        code_address=code_address,
        constants=tuple(
            Segment(address=address, data=data) for address, data in constants.chunks()
        ),
        buffers=tuple(
            Buffer(
                name=name,
                address=tensor.address,
                size_bytes=tensor.size_bytes,
                role=BufferRole.OUTPUT if name in outputs else BufferRole.INPUT,
            )
            for name, tensor in tensors.items()
        ),
        dram_bytes=code_address + (len(tasks) + 1) * instruction_bytes(config),
        layers=("schedule",),
        layer_of_instruction=(*(0 for _ in tasks), -1),
    )
