"""Programs on their own, without a model: written by hand, or saved from a compiled model."""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tilewright.compiler.compiled import AcceleratorStep, CompiledGraph, LayerInfo
from tilewright.compiler.graph import Array, Graph
from tilewright.isa.assembly import assemble
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import InputError, ProgramError, TilewrightError
from tilewright.isa.program import MAGIC, Program, check_config
from tilewright.isa.validator import validate
from tilewright.runtime.board_devices import open_machine
from tilewright.runtime.board_machine import Patch, Region
from tilewright.runtime.devices import AnyDevice, Device
from tilewright.runtime.files import PathLike, read_file
from tilewright.runtime.result import RunResult
from tilewright.sim.simulator import Progress

#: Suffix of assembly text.
ASSEMBLY_SUFFIX = ".s"


def is_program(path: PathLike) -> bool:
    """Say whether a file is assembly text by its name, or a program by its signature."""
    file = Path(path)
    if file.suffix == ASSEMBLY_SUFFIX:
        return True
    try:
        with file.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def read_program(path: PathLike, config: AcceleratorConfig | None = None) -> Program:
    """Read a program file, or assembly text from a file called ``.s``; it need not be legal.

    Parameters
    ----------
    config
        The machine that it must be for; an assembly text need not name one then.

    Raises
    ------
    TilewrightError
        If it cannot be read, or is for another machine; the message names the path.
    """
    data = read_file(path, "program")
    try:
        if data.startswith(MAGIC) or Path(path).suffix != ASSEMBLY_SUFFIX:
            program = Program.from_bytes(data)
        else:
            program = assemble(_text(data), config)
        if config is not None:
            check_config(program, config)
    except TilewrightError as error:
        raise ProgramError(f"{path}: {error}", hint=error.hint) from error
    return program


def load_program(path: PathLike, config: AcceleratorConfig | None = None) -> Program:
    """Read a program as `read_program` does, and prove that it keeps the rules of the machine.

    Raises
    ------
    TilewrightError
        If it cannot be read, or breaks a rule; the message names the path.
    """
    program = read_program(path, config)
    try:
        validate(program)
    except TilewrightError as error:
        raise ProgramError(f"{path}: {error}", hint=error.hint) from error
    return program


def check_buffers(program: Program, inputs: Mapping[str, Array]) -> None:
    """Refuse arrays that do not fill the input buffers of `program`, one each, byte by byte."""
    buffers = {buffer.name: buffer for buffer in program.inputs}
    for name in inputs:
        if name not in buffers:
            raise InputError(
                f"the program has no input buffer {name!r}", hint=f"buffers: {', '.join(buffers)}"
            )
    for name, buffer in buffers.items():
        if name not in inputs:
            raise InputError(f"input buffer {name!r} is missing")
        values = inputs[name]
        if values.dtype not in (np.uint8, np.int8) or values.size != buffer.size_bytes:
            raise InputError(
                f"input buffer {name!r} must be {buffer.size_bytes} values of uint8 or int8,"
                f" not {values.size} of {values.dtype}"
            )


def random_buffers(program: Program, seed: int) -> dict[str, Array]:
    """Make random bytes for every input buffer."""
    rng = np.random.default_rng(seed)
    return {
        buffer.name: rng.integers(0, 256, buffer.size_bytes, dtype=np.uint8)
        for buffer in program.inputs
    }


def run_program(
    program: Program,
    inputs: Mapping[str, Array],
    *,
    device: AnyDevice = Device.SIM,
    name: str = "program",
    progress: Progress | None = None,
    vcd: Path | None = None,
) -> RunResult:
    """Run a legal program; inputs and outputs are the bytes of its buffers.

    Raises `InputError` where the inputs do not fit the buffers, or the device runs no programs.
    """
    check_buffers(program, inputs)
    start = time.perf_counter()
    patches = [
        Patch(
            address=buffer.address,
            data=np.ascontiguousarray(inputs[buffer.name]).reshape(-1).view(np.uint8),
        )
        for buffer in program.inputs
    ]
    regions = [
        Region(address=buffer.address, size_bytes=buffer.size_bytes) for buffer in program.outputs
    ]
    with open_machine(device, vcd=vcd) as machine:
        result = machine.run(program, patches, regions, progress)
    return RunResult(
        compiled=_without_graph(program, name),
        device=device,
        outputs={
            buffer.name: data for buffer, data in zip(program.outputs, result.regions, strict=True)
        },
        timelines=() if result.timeline is None else (result.timeline,),
        counters=() if result.counters is None else (result.counters,),
        wall_seconds=time.perf_counter() - start,
    )


def _without_graph(program: Program, name: str) -> CompiledGraph:
    """Wrap a program in what statistics, report and trace are made from."""
    layers = tuple(
        LayerInfo(name=layer, operator="", nodes=(), macs=0, ideal_cycles=0)
        for layer in program.layers
    )
    empty = Graph(name=name, tensors={}, nodes=(), inputs=(), outputs=(), constants={})
    step = AcceleratorStep(program=program, inputs=(), outputs=(), layers=layers)
    return CompiledGraph(graph=empty, config=program.config, steps=(step,), placement=())


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProgramError(f"assembly text must be UTF-8: {error}") from error
