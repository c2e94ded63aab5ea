"""Readers that turn model files into graphs."""

from pathlib import Path

from tilewright.compiler.graph import Graph
from tilewright.compiler.readers.onnx_reader import read_onnx
from tilewright.compiler.readers.shapes import Shapes
from tilewright.compiler.readers.tflite_file import is_tflite
from tilewright.compiler.readers.tflite_reader import read_tflite
from tilewright.isa.errors import ModelError

#: Largest file that is read: protocol buffers and FlatBuffers end at 2 GiB.
MAX_FILE_BYTES = 2**31 - 1

__all__ = ["read_model"]


def read_model(path: str | Path, shapes: Shapes | None = None) -> Graph:
    """Read a network, in ONNX or TFLite form as its content says.

    Returns the network as the file states it, real operators, between quantised tensors where it is
    quantised; `tilewright.compiler.passes.pipeline.prepare` makes the graph to compile of it.
    `shapes` gives inputs of an ONNX file the sizes that it leaves open.

    Raises
    ------
    ModelError
        If the file cannot be read, is damaged, or uses what is not supported;
        the message does not name the file.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ModelError(f"the file is larger than {MAX_FILE_BYTES} bytes")
        data = file.read_bytes()
    except OSError as error:
        raise ModelError(f"the file cannot be read: {error.strerror}") from error
    if is_tflite(data):
        return read_tflite(data, file.stem, shapes)
    return read_onnx(data, file.stem, shapes)
