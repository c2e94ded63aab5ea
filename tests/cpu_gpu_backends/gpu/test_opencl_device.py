from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from integer_graphs import GraphBuilder

from tilewright.compiler.evaluate import evaluate
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.device import DeviceError, check_fits
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.opencl_device import OpenClDevice


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
            (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
            kept.write_bytes(b"no kernel")
        device = OpenClDevice(tmp_path, optimise=False)
        (result,) = GpuModel.load(program, device).run(inputs).values()
        np.testing.assert_array_equal(result, expected)
