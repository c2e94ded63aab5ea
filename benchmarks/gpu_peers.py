"""What the GPU benchmark compares with: PyTorch and onnxruntime, on the GPU or on the processor."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Something that does the work once, without waiting, and what waits for it."""

    name: str
    call: Callable[[], object]
    wait: Callable[[], object]


def absent_peers(place: str) -> list[str]:
    """Return a line for each peer that is not here, or does not see the device."""
    lines = []
    if _torch(place) is None:
        lines.append(f"no PyTorch for {place} is installed: it is left out")
    if _provider(place) is None:
        lines.append(f"no onnxruntime for {place} is installed: it is left out")
    return lines


def gemm_peers(size: int, kind: str, place: str) -> list[Contender]:
    """Return PyTorch's product of square matrices (cuBLAS, or oneDNN on the processor)."""
    torch = _torch(place)
    if torch is None:
        return []
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "int8": torch.int8}[kind]
    a, b = (torch.randint(-20, 20, (size, size), device=place).to(dtype) for _ in range(2))
    torch.backends.cuda.matmul.allow_tf32 = False

    def call() -> object:
        return torch._int_mm(a, b) if kind == "int8" else a @ b

    return [Contender(name="torch", call=call, wait=_waiting(torch, place))]


def network_peers(path: Path, shape: tuple[int, ...], half: bool, place: str) -> list[Contender]:
    """Return onnxruntime and PyTorch on a network with an input of `shape`."""
    return [*_onnxruntime(path, shape, half, place), *_torch_network(path, shape, half, place)]


def reference(path: Path, values: np.ndarray) -> np.ndarray:
    """Return the first output of a network by onnxruntime on the processor, float32."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, {session.get_inputs()[0].name: values})[0]
    return result


def _onnxruntime(path: Path, shape: tuple[int, ...], half: bool, place: str) -> list[Contender]:
    provider = _provider(place)
    if provider is None or half:
        return []
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=[provider])
    (source,), (target,) = session.get_inputs(), session.get_outputs()
    values = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32), place, 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input(source.name, values)
    binding.bind_output(target.name, place)
    return [
        Contender(
            name="onnxruntime",
            call=lambda: session.run_with_iobinding(binding),
            wait=binding.synchronize_outputs,
        )
    ]


def _torch_network(path: Path, shape: tuple[int, ...], half: bool, place: str) -> list[Contender]:
    torch = _torch(place)
    if torch is None:
        return []
    from cpu_networks_torch import module_of

    dtype = torch.float16 if half else torch.float32
    module = module_of(path).eval().to(place, dtype)
    x = torch.zeros(shape, device=place, dtype=dtype)
    if len(shape) == 4:
        x = x.contiguous(memory_format=torch.channels_last)

    def call() -> object:
        with torch.inference_mode():
            return module(x)

    wait = _waiting(torch, place)
    found = [Contender(name="torch", call=call, wait=wait)]
    if place == "cuda":
        # Our launches are one CUDA graph: so are PyTorch's in this row.
        found.append(Contender(name="torch, CUDA graph", call=_captured(torch, call), wait=wait))
    return found


def _captured(torch: Any, call: Callable[[], object]) -> Callable[[], object]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    replay: Callable[[], object] = graph.replay
    return replay


def _waiting(torch: Any, place: str) -> Callable[[], object]:
    wait: Callable[[], object] = torch.cuda.synchronize if place == "cuda" else lambda: None
    return wait


def _torch(place: str) -> Any | None:
    """Return PyTorch if it is installed and sees the device."""
    try:
        import torch
    except ImportError:
        return None
    return torch if place == "cpu" or torch.cuda.is_available() else None


def _provider(place: str) -> str | None:
    """Return what onnxruntime runs networks with at `place`, if it has it."""
    try:
        import onnxruntime
    except ImportError:
        return None
    wanted = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}[place]
    return wanted if wanted in onnxruntime.get_available_providers() else None
