"""Options that several commands share, and what they stand for."""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tilewright.compiler.graph import Array, Graph
from tilewright.compiler.networks import Network, build_network
from tilewright.compiler.operators.tensor_type import QUANTISED
from tilewright.compiler.tuning.store import TuningWarning
from tilewright.config_file import change_config, parse_config
from tilewright.input_files import read_inputs
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import InputError
from tilewright.isa.program import Program, check_config
from tilewright.list_options import ListOption, add_list
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.configurations import DEFAULT_PRESET
from tilewright.runtime.devices import AnyDevice, Device, parse_device, runs_graphs
from tilewright.runtime.files import check_writable
from tilewright.runtime.inputs import random_inputs
from tilewright.runtime.model import Model, compile_model, load
from tilewright.runtime.model_file import has_signature
from tilewright.runtime.program_run import ASSEMBLY_SUFFIX, load_program
from tilewright.terminal import Terminal

#: What ``--json`` takes to print the record instead of the text.
STANDARD_OUTPUT = Path("-")


def add_model(parser: argparse.ArgumentParser, *, programs: bool = False) -> None:
    """Add ``MODEL``, which may be a program without a model where `programs` says so."""
    kinds = ".onnx, .tflite or compiled .tw file"
    if programs:
        kinds += f"; or a program: assembly text ({ASSEMBLY_SUFFIX}) or a program file"
    parser.add_argument("model", metavar="MODEL", type=Path, help=kinds)


def add_config(
    parser: argparse.ArgumentParser, *, compiled: bool = False, default: str = DEFAULT_PRESET
) -> None:
    """Add ``--config`` and ``--set``; `compiled` where the command takes compiled models."""
    if compiled:
        default = f"{default}, or what a .tw file was compiled for"
    parser.add_argument(
        "--config",
        metavar="PRESET|FILE",
        help=f"the accelerator: a preset, a .toml file, or the config.json of a build"
        f" (default: {default})",
    )
    add_list(
        parser,
        ListOption.SET,
        metavar="FIELD=VALUE",
        dest="changes",
        meaning="change fields of the configuration, memory fields as dram.FIELD=VALUE",
    )


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add ``--input`` and ``--seed``."""
    add_list(
        parser,
        ListOption.INPUT,
        metavar="[NAME=]FILE",
        dest="inputs",
        meaning=(
            "input data: .npy files, or .png files of the exact size (uint8 and float32 inputs take"
            " pixels 0 to 255, int8 inputs pixels less 128), without it random data"
        ),
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=natural_number,
        default=0,
        help="of the random data (default: 0)",
    )


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add ``--output``."""
    add_list(
        parser,
        ListOption.OUTPUT,
        metavar="[NAME=]FILE.npy",
        dest="outputs",
        meaning="save outputs as arrays, in the layout and type of the model",
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add ``--threads``."""
    parser.add_argument(
        "--threads", metavar="N", type=positive_number, help="threads of device cpu (default: 1)"
    )


def chosen_threads(arguments: argparse.Namespace, device: AnyDevice) -> int:
    """Return the number of ``--threads``, which only device ``cpu`` has."""
    if arguments.threads is None:
        return 1
    if device is not Device.CPU:
        raise InputError(f"--threads is for device cpu, not {device.value}")
    return int(arguments.threads)


def add_arithmetic(parser: argparse.ArgumentParser) -> None:
    """Add ``--half`` and ``--direct``."""
    parser.add_argument(
        "--half",
        action="store_true",
        help="real numbers of 16 bits: float16 in the memory of opencl and cuda, products of"
        " bfloat16 where they are faster on cpu",
    )
    parser.add_argument(
        "--direct",
        action="store_true",
        help="convolutions on cpu as the sums that define them, never by Winograd's filtering",
    )


def chosen_config(arguments: argparse.Namespace) -> AcceleratorConfig:
    """Return the configuration that ``--config`` and ``--set`` describe."""
    return change_config(parse_config(arguments.config or DEFAULT_PRESET), arguments.changes)


def chosen_inputs(
    arguments: argparse.Namespace, graph: Graph, terminal: Terminal
) -> dict[str, Array]:
    """Read the input files, or make random data and say so."""
    if arguments.inputs:
        return read_inputs([graph.tensors[name] for name in graph.inputs], arguments.inputs)
    terminal.message(f"no --input: random data with seed {arguments.seed}")
    return random_inputs(graph, arguments.seed)


def load_and_compile(
    path: Path,
    config: AcceleratorConfig,
    terminal: Terminal,
    device: str | None = None,
) -> CompiledModel:
    """Read a model file and compile it, for one device alone if it needs no accelerator."""
    with terminal.stage(f"reading {path.name}"):
        model = load(path)
    hosted = device is not None and runs_graphs(parse_device(device))
    for note in (*model.notes, *(() if hosted else _accelerator_notes(model, config))):
        terminal.message(f"note: {note}")
    place = device if hosted else config.name
    with terminal.stage(f"compiling for {place}"), showing_warnings(terminal):
        return compile_model(model, config, device=device, progress=terminal.detail)


@contextmanager
def showing_warnings(terminal: Terminal) -> Iterator[None]:
    """Print what is wrong with a cache of tuned choices as a line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TuningWarning)
        yield
    for warning in caught:
        terminal.message(f"warning: {warning.message}")


def load_networks(names: Sequence[str], terminal: Terminal) -> list[Graph]:
    """Read model files, or build networks of `Network` by name, with random weights."""
    graphs = []
    for name in names:
        if Path(name).exists() or name not in {network.value for network in Network}:
            with terminal.stage(f"reading {Path(name).name}"):
                graphs.append(load(name).graph)
        else:
            terminal.message(f"{name}: built in code, random weights")
            graphs.append(build_network(Network(name)))
    return graphs


def check_quantised(graphs: Sequence[Graph]) -> None:
    """Refuse networks in floating point: they take no cycles of the accelerator."""
    for graph in graphs:
        if not _is_quantised(graph):
            raise InputError(
                f"network {graph.name!r} is in floating point: nothing of it runs on the"
                " accelerator",
                hint="tilewright quantize makes an int8 network of it",
            )


def _is_quantised(graph: Graph) -> bool:
    return any(tensor.dtype in QUANTISED for tensor in graph.tensors.values())


def add_networks(parser: argparse.ArgumentParser) -> None:
    """Add ``MODEL ...``, of which cycles are asked, not results."""
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help=".onnx or .tflite file, or one of the usual networks, with random weights: "
        + ", ".join(network.value for network in Network),
    )


def load_or_compile(
    arguments: argparse.Namespace, terminal: Terminal, device: str | None = None
) -> CompiledModel:
    """Load a compiled model, or read a model file and compile it, for `device` alone if given.

    A compiled model runs on the configuration that it was compiled for; asking for another one is
    an error that names the fields that differ.
    """
    if not has_signature(arguments.model):
        return load_and_compile(arguments.model, chosen_config(arguments), terminal, device)
    with terminal.stage(f"loading {arguments.model.name}"):
        compiled = CompiledModel.load(arguments.model)
    if arguments.config or arguments.changes:
        base = compiled.config if arguments.config is None else parse_config(arguments.config)
        wanted = change_config(base, arguments.changes)
        for program in compiled.programs:
            check_config(program, wanted)
    return compiled


def load_program_file(arguments: argparse.Namespace) -> Program:
    """Load a program without a model, which may have to be for the configuration asked for."""
    asked = arguments.config or arguments.changes
    return load_program(arguments.model, chosen_config(arguments) if asked else None)


def _accelerator_notes(model: Model, config: AcceleratorConfig) -> tuple[str, ...]:
    """Say where a network leaves the accelerator, or rows of its entries, without work."""
    if not _is_quantised(model.graph):
        why = "the network is in floating point, so the host computes it"
        return (f"{why}; tilewright quantize makes an int8 network of it",)
    images = max((tensor.shape[0] for tensor in model.inputs if tensor.shape), default=1)
    if images >= config.batch:
        return ()
    filled = f"fills {images} of the {config.batch} rows of each entry"
    return (f"the network's batch of {images} {filled}, as batch is {config.batch}",)


def check_outputs(json: Path | None, *paths: Path | None, appended: tuple[Path, ...] = ()) -> None:
    """Refuse output files that cannot be written, or are named twice, before any work is done.

    Only the JSON may go to stdout. Those `appended` to may lie in folders that do not exist yet.
    """
    others = [path for path in (*paths, *appended) if path is not None]
    if STANDARD_OUTPUT in others:
        raise InputError("only --json writes to stdout: name a file instead of '-'")
    named = others if json is None or json == STANDARD_OUTPUT else [json, *others]
    for path in named:
        if path not in appended:
            check_writable(path)
    resolved = [path.resolve() for path in named]
    for path, place in zip(named, resolved, strict=True):
        if resolved.count(place) > 1:
            raise InputError(f"output file {path} is named twice")


def positive_number(text: str) -> int:
    """Read the word of an option that counts something, from 1 on."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {text!r}")
    return int(text)


def natural_number(text: str) -> int:
    """Read the word of an option that counts something, from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, not {text!r}")
    return int(text)
