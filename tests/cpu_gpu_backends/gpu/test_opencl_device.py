import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from integer_graphs import GraphBuilder

from tilewright.compiler.evaluate import evaluate
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.device import DeviceError, check_fits
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.opencl_device import OpenClDevice, _build_options

cl = pytest.importorskip("pyopencl")


def test_a_kernel_that_does_not_compile_is_one_line(opencl: OpenClDevice) -> None:
    with pytest.raises(DeviceError, match=r" cannot compile a kernel: .*error") as caught:
        opencl.load((), "__kernel void k(__global int *x) { x[0] = nothing_of_that_name; }")
    assert "\n" not in str(caught.value)


def test_what_does_not_fit_is_said_before_it_is_tried(opencl: OpenClDevice) -> None:
    needed = opencl.capability.memory_bytes + 1
    with pytest.raises(DeviceError, match=rf" bytes of memory, {needed:,} are needed$"):
        opencl.allocate(needed)
    builder = GraphBuilder(seed=1)
    graph = builder.build(builder.conv(builder.input(1, 8, 8, 8), 16))
    (kernel,) = compile_for_gpu(graph, opencl.capability, opencl.dialect).kernels
    small = replace(opencl.capability, name="small", shared_bytes=64)
    with pytest.raises(DeviceError, match=r"bytes of shared memory, small has 64$"):
        check_fits(kernel, small)
    narrow = replace(opencl.capability, name="narrow", threads_per_block=2)
    with pytest.raises(DeviceError, match=r"^kernel 'layer0_conv2d' needs blocks of .* narrow"):
        check_fits(kernel, narrow)


def test_a_device_out_of_memory_is_one_line(
    opencl: OpenClDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise cl.MemoryError("clCreateBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE")

    monkeypatch.setattr(cl, "Buffer", full)
    with pytest.raises(DeviceError, match=r" is out of memory at a buffer of 1,000 bytes$"):
        opencl.allocate(1000)


def test_a_lost_device_is_one_line(opencl: OpenClDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object, **__: object) -> None:
        raise cl.RuntimeError("clEnqueueReadBuffer failed: DEVICE_NOT_AVAILABLE")

    monkeypatch.setattr(cl, "enqueue_copy", lost)
    buffer = opencl.allocate(4)
    with pytest.raises(DeviceError, match=r" failed at a download: .*DEVICE_NOT_AVAILABLE$"):
        opencl.download(buffer, np.dtype(np.int8), (4,))


def test_a_device_that_rounds_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rough = SimpleNamespace(
        name="rough ", version="OpenCL 1.2 x", single_fp_config=0, extensions="cl_khr_fp16"
    )
    with pytest.raises(DeviceError, match=r"^rough does not round divisions correctly and has no"):
        list(_build_options(cl, rough))


def test_without_a_device_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cl, "get_platforms", list)
    with pytest.raises(DeviceError, match=r"^no OpenCL device is installed on this computer$"):
        OpenClDevice()
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError, match=r"^device 'opencl' needs the package pyopencl$"):
        OpenClDevice()


def test_a_device_that_compiles_nothing_is_passed_over(
    opencl: OpenClDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a PoCL that is older than the processor."""
    build, refused = cl.Program.build, []

    def build_later(self: object, *arguments: object, **named: object) -> object:
        if not refused:
            refused.append(self)
            raise cl.RuntimeError("error: unknown target CPU 'generic'")
        return build(self, *arguments, **named)

    platforms = cl.get_platforms()
    monkeypatch.setattr(cl, "get_platforms", lambda: platforms + platforms)
    monkeypatch.setattr(cl.Program, "build", build_later)
    OpenClDevice()
    monkeypatch.setattr(cl, "get_platforms", lambda: platforms[:1])
    refused.clear()
    message = (
        r"^no OpenCL device of this computer compiles a kernel: .*unknown target CPU 'generic'$"
    )
    with pytest.raises(DeviceError, match=message):
        OpenClDevice()


def test_kernels_are_kept_on_disk_and_made_again_where_damaged(
    opencl: OpenClDevice, tmp_path: Path
) -> None:
    builder = GraphBuilder(seed=2)
    x = builder.input(1, 4, 4, 8)
    graph = builder.build(builder.clip(x, -5, 90))
    inputs = builder.values(graph)
    (expected,) = evaluate(graph, inputs).values()
    program = compile_for_gpu(graph, opencl.capability, opencl.dialect)
    for damage in (False, False, True):
        if damage:
            (kept,) = (path for path in tmp_path.iterdir() if path.name != "lock")
            kept.write_bytes(b"no kernel")
        device = OpenClDevice(tmp_path, optimise=False)
        (result,) = GpuModel.load(program, device).run(inputs).values()
        np.testing.assert_array_equal(result, expected)
