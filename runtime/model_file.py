"""The file of a compiled model: prefix, JSON header, binary sections, SHA-256."""

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

from typing_extensions import assert_never

from tilewright.compiler.compiled import AcceleratorStep, Binding, CompiledGraph, Fold, HostStep
from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.tensors import BlockedTensor, TensorShape
from tilewright.compiler.operators import DataType
from tilewright.isa.errors import ModelError, TilewrightError
from tilewright.isa.program import Program, check_config
from tilewright.isa.validator import validate
from tilewright.runtime.files import PathLike, read_file, write_atomically
from tilewright.runtime.host_code import HostCode, code_fits
from tilewright.runtime.records import from_record, to_record

#: First bytes of the file; the line end shows damage by text-mode transfers.
MAGIC = b"tlwrcm\r\n"
#: Version of the file format.
VERSION = 3

#: Keys of the header.
_PARTS = {"sections", "compiled", "host_code"}
#: What the padded image of a fold may take, besides a multiple of its tensor.
_PADDED_BYTES = 1 << 26

_PREFIX = struct.Struct("<8sII")
_CHECKSUM_BYTES = hashlib.sha256().digest_size


def save_compiled(compiled: CompiledGraph, path: PathLike, code: HostCode | None = None) -> None:
    """Write the file of a compiled model, whole or not at all."""
    write_atomically(path, compiled_to_bytes(compiled, code))


def load_compiled(path: PathLike) -> tuple[CompiledGraph, HostCode | None]:
    """Read the file of a compiled model, and the machine code in it.

    Raises
    ------
    TilewrightError
        If the file cannot be read, is damaged, or is of another version; the message begins with
        the path.
    """
    data = read_file(path, "compiled model")
    try:
        return compiled_from_bytes(data)
    except TilewrightError as error:
        raise ModelError(f"{path}: {error}", hint=error.hint) from error


def compiled_to_bytes(compiled: CompiledGraph, code: HostCode | None = None) -> bytes:
    """Return the content of the file."""
    sections: list[bytes] = []
    header = {
        "compiled": to_record(CompiledGraph, compiled, sections),
        "host_code": None if code is None else to_record(HostCode, code, sections),
        "sections": [len(section) for section in sections],
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join((_PREFIX.pack(MAGIC, VERSION, len(text)), text, *sections))
    return body + hashlib.sha256(body).digest()


def compiled_from_bytes(data: bytes) -> tuple[CompiledGraph, HostCode | None]:
    """Read the content of the file; the inverse of `compiled_to_bytes`.

    Raises `TilewrightError` for anything else, and needs no more memory than a small multiple of
    the data.
    """
    body = memoryview(data)[:-_CHECKSUM_BYTES]
    if len(body) < _PREFIX.size:
        raise ModelError(f"not a compiled model: {len(data)} bytes are too few")
    magic, version, header_bytes = _PREFIX.unpack_from(body)
    if magic != MAGIC:
        raise ModelError("not a compiled model: it does not begin with the signature")
    if version != VERSION:
        raise ModelError(
            f"the compiled model has version {version}, this is version {VERSION}",
            hint="compile the model again",
        )
    if hashlib.sha256(body).digest() != data[len(body) :]:
        raise _damaged("its checksum does not match")
    header_end = _PREFIX.size + header_bytes
    if header_end > len(body):
        raise _damaged("its header is cut off")
    header = _parse_header(bytes(body[_PREFIX.size : header_end]))
    sections = _split(body[header_end:], header["sections"])
    compiled: CompiledGraph = from_record(CompiledGraph, header["compiled"], sections, "compiled")
    _check_steps(compiled)
    if header["host_code"] is None:
        return compiled, None
    code: HostCode = from_record(HostCode, header["host_code"], sections, "host_code")
    if not code_fits(code, compiled):
        raise _damaged("its code for the host belongs to no step")
    return compiled, code


def has_signature(path: PathLike) -> bool:
    """Say whether a file begins like a compiled model; false where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def _parse_header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise _damaged("its header is not JSON") from None
    if not isinstance(header, dict) or header.keys() != _PARTS:
        raise _damaged("its header lacks its parts")
    return header


def _split(body: memoryview, sizes: Any) -> list[memoryview]:
    sections, position = [], 0
    if not isinstance(sizes, list):
        raise _damaged("its header lists no sections")
    for size in sizes:
        if type(size) is not int or not 0 <= size <= len(body) - position:
            raise _damaged("a section is cut off")
        sections.append(body[position : position + size])
        position += size
    if position != len(body):
        raise _damaged(f"{len(body) - position} bytes too many")
    return sections


def _check_steps(compiled: CompiledGraph) -> None:
    """Check that the steps fit the graph and each other, so that running them cannot go astray."""
    known = {*compiled.graph.inputs, *compiled.graph.constants}
    for step in compiled.steps:
        match step:
            case HostStep(nodes=nodes):
                for node in nodes:
                    _check_host_node(node, compiled.graph, known)
                    known.update(node.outputs)
            case AcceleratorStep():
                _check_accelerator_step(step, compiled, known)
                known.update(binding.tensor for binding in step.outputs)
            case _:
                assert_never(step)
    if not known.issuperset(compiled.graph.outputs):
        raise _damaged("no step yields one of the outputs")


def _check_host_node(node: Node, graph: Graph, known: set[str]) -> None:
    if node not in graph.nodes or not known.issuperset(node.inputs):
        raise _damaged(f"node {node.name!r:.60} does not fit the graph")


def _check_accelerator_step(
    step: AcceleratorStep, compiled: CompiledGraph, known: set[str]
) -> None:
    check_config(step.program, compiled.config)
    validate(step.program)
    if len(step.layers) != len(step.program.layers):
        raise _damaged("a program has other layers than its step")
    for binding in (*step.inputs, *step.outputs):
        if not _fits(binding, compiled.graph, step.program):
            raise _damaged(f"binding {binding.tensor!r:.60} does not fit its tensor")
    if not known.issuperset(binding.tensor for binding in step.inputs):
        raise _damaged("a program reads what no step before it yields")


def _fits(binding: Binding, graph: Graph, program: Program) -> bool:
    layout, fold = binding.layout, binding.fold
    if binding.tensor not in graph.tensors or min(layout.batch, layout.block) < 1:
        return False
    tensor = graph.tensors[binding.tensor]
    held = layout.shape if fold is None else fold.image
    return (
        tensor.dtype is DataType.INT8
        and min(*_sizes(layout.shape), *_sizes(held)) > 0
        and math.prod(_sizes(held)) == math.prod(tensor.shape)
        and 0 <= layout.address <= program.dram_bytes - layout.size_bytes
        and (fold is None or _fold_fits(fold, layout))
    )


def _fold_fits(fold: Fold, layout: BlockedTensor) -> bool:
    window, image = fold.window, fold.image
    folded = (image.images, fold.rows, fold.columns, window.taps * image.channels)
    if folded != _sizes(layout.shape) or not -128 <= window.pad_value <= 127:
        return False
    if min(*window.kernel, *window.stride, *window.dilation) < 1 or min(window.before) < 0:
        return False
    padded_bytes = image.images * image.channels
    for axis, (positions, size) in enumerate(
        ((fold.rows, image.height), (fold.columns, image.width))
    ):
        reach = (positions - 1) * window.stride[axis]
        reach += (window.kernel[axis] - 1) * window.dilation[axis] + 1
        padded_bytes *= max(reach, window.before[axis] + size)
    return padded_bytes <= _PADDED_BYTES + 16 * layout.size_bytes


def _sizes(shape: TensorShape) -> tuple[int, int, int, int]:
    return shape.images, shape.height, shape.width, shape.channels


def _damaged(what: str) -> ModelError:
    return ModelError(f"the compiled model is damaged: {what}")
