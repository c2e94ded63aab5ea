"""The peers that `cpu.py` measures: one call of a network in each of them.

A function returns None where its peer is not installed, or does not run such a network.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

Call = Callable[[], object]


def onnxruntime_call(path: Path, sample: np.ndarray, threads: int) -> Call:
    """Return a run in onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"input": sample})


def openvino_call(
    path: Path, sample: np.ndarray, threads: int, *, half: bool = False
) -> Call | None:
    """Return a run in OpenVINO: in its default arithmetic if `half`, else in float32 or int8."""
    try:
        import openvino
    except ImportError:
        return None
    settings: dict[str, int | str] = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    if not half:
        settings["INFERENCE_PRECISION_HINT"] = "f32"
    request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()
    return lambda: request.infer({0: sample}, share_inputs=True)


def litert_call(path: Path, sample: np.ndarray, threads: int) -> Call | None:
    """Return a run in LiteRT, of the same network with channels last."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        return None
    from cpu_networks_litert import litert_model

    interpreter = Interpreter(model_content=litert_model(path), num_threads=threads)
    interpreter.allocate_tensors()
    (taken,) = interpreter.get_input_details()
    images = sample.transpose(0, 2, 3, 1) if sample.ndim == 4 else sample
    interpreter.set_tensor(taken["index"], np.ascontiguousarray(images))
    return interpreter.invoke


def torch_call(path: Path, sample: np.ndarray, threads: int) -> Call | None:
    """Return the network traced by PyTorch, channels last."""
    try:
        import torch
    except ImportError:
        return None
    from cpu_networks_torch import module_of

    torch.set_num_threads(threads)
    layout = torch.channels_last if sample.ndim == 4 else torch.contiguous_format
    x = torch.from_numpy(sample).to(memory_format=layout)
    with torch.inference_mode():
        traced = torch.jit.trace(module_of(path).to(memory_format=layout).eval(), x)
        frozen = torch.jit.optimize_for_inference(torch.jit.freeze(traced))

    def call() -> object:
        with torch.inference_mode():
            return frozen(x)

    return call


def torch_product(size: int, threads: int) -> Call | None:
    """Return PyTorch's product of two square matrices in float32."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    a, b = torch.randn(size, size), torch.randn(size, size)
    return lambda: torch.mm(a, b)
