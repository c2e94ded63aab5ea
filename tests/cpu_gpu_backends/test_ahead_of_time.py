"""Networks compiled ahead of time: a shared library, and objects for other processors."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from random_networks import random_graph

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.cpu_gpu_backends.codegen.target import (
    CORTEX_A9,
    CORTEX_A53,
    CpuTarget,
    find_target,
    host_target,
)
from tilewright.cpu_gpu_backends.cpu.ahead_of_time import build_library, c_name, library_files
from tilewright.cpu_gpu_backends.cpu.elf_data import data_object
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.isa.errors import InputError
from tilewright.runtime.inputs import random_inputs

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include "net.h"

/* Reads the inputs one after the other, runs the network, writes the outputs. */
static void *buffers[NET_INPUTS + NET_OUTPUTS];

int main(int count, char **arguments) {
    static const size_t sizes[] = {SIZES};
    for (int i = 0; i < NET_INPUTS + NET_OUTPUTS; i++) {
        buffers[i] = malloc(sizes[i] + 64);
        if (i < NET_INPUTS && fread(buffers[i], 1, sizes[i], stdin) != sizes[i]) return 2;
    }
    if (net_start(atoi(arguments[count - 1]))) return 3;
    void *workspace = aligned_alloc(64, (NET_WORKSPACE_BYTES + 127) / 64 * 64);
    int status = net_run((const void *const *)buffers, buffers + NET_INPUTS, workspace);
    net_stop();
    for (int i = NET_INPUTS; i < NET_INPUTS + NET_OUTPUTS; i++)
        fwrite(buffers[i], 1, sizes[i], stdout);
    return status;
}
"""
EMULATORS = {
    "cortex-a9": ("arm-linux-gnueabihf-gcc", "qemu-arm-static"),
    "cortex-a53": ("aarch64-linux-gnu-gcc", "qemu-aarch64-static"),
}


def save(graph: Graph, target: CpuTarget, path: Path) -> tuple[Path, ...]:
    library = build_library(lower_graph(graph, target), target, "net")
    files = library_files(library, path, target)
    for file, data in files.items():
        file.write_bytes(data)
    return tuple(files)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_shared_library_yields_the_same_bits(tmp_path: Path, threads: int) -> None:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    graph = random_graph(3)
    library = ctypes.CDLL(str(save(graph, host_target(), tmp_path / "net.so")[0]))
    inputs = random_inputs(graph, 1)
    expected = evaluate(graph, inputs)
    arrays = [np.ascontiguousarray(inputs[name]) for name in graph.inputs]
    results = {name: np.empty_like(values) for name, values in expected.items()}
    assert library.net_start(threads) == 0
    workspace = np.zeros(1 << 24, np.uint8)

    def pointers(given: list[np.ndarray]) -> "ctypes.Array[ctypes.c_void_p]":
        return (ctypes.c_void_p * len(given))(*(array.ctypes.data for array in given))

    start = workspace.ctypes.data + -workspace.ctypes.data % 64
    status = library.net_run(
        pointers(arrays), pointers(list(results.values())), ctypes.c_void_p(start)
    )
    library.net_stop()
    assert status == 0
    for name, values in expected.items():
        np.testing.assert_array_equal(results[name], values)


@pytest.mark.parametrize("name", EMULATORS)
def test_other_processors_yield_the_same_bits(name: str, tmp_path: Path) -> None:
    compiler, emulator = EMULATORS[name]
    if missing := [tool for tool in (compiler, emulator) if shutil.which(tool) is None]:
        pytest.skip(f"needs {' and '.join(missing)}")
    graph, target = random_graph(4), find_target(name)
    code, constants, _ = save(graph, target, tmp_path / "net.o")
    inputs = random_inputs(graph, 1)
    expected = evaluate(graph, inputs)
    sizes = [inputs[one].nbytes for one in graph.inputs] + [v.nbytes for v in expected.values()]
    main = tmp_path / "main.c"
    main.write_text(MAIN.replace("SIZES", ", ".join(map(str, sizes))))
    program = tmp_path / "main"
    subprocess.run(
        [compiler, "-static", "-o", program, main, code, constants, "-lpthread", "-lm"],
        check=True,
        timeout=120,
    )
    given = b"".join(inputs[one].tobytes() for one in graph.inputs)
    done = subprocess.run(
        [emulator, program, "2"], input=given, capture_output=True, check=True, timeout=120
    )
    found, at = done.stdout, 0
    for values in expected.values():
        part = np.frombuffer(found, values.dtype, values.size, at).reshape(values.shape)
        np.testing.assert_array_equal(part, values)
        at += values.nbytes
    assert at == len(found)


def test_the_header_names_inputs_outputs_and_sizes(tmp_path: Path) -> None:
    graph = random_graph(3)
    *_, header = save(graph, CORTEX_A53, tmp_path / "net.o")
    text = header.read_text()
    assert "#define NET_INPUTS 1\n" in text
    assert f"#define NET_OUTPUTS {len(graph.outputs)}\n" in text
    size = graph.tensors["in0"]
    elements = int(np.prod(size.shape))
    assert f" *   0  in0: {elements} x int8, {elements} bytes\n" in text


def test_names_in_c() -> None:
    assert c_name("mobile net-v2") == "mobile_net_v2"
    assert c_name("0day") == "model_0day"
    with pytest.raises(InputError, match=r"^prefix must be a name in C, not 'a b'$"):
        build_library(lower_graph(random_graph(3), CORTEX_A9), CORTEX_A9, "a b")


def test_there_is_no_such_processor() -> None:
    with pytest.raises(InputError, match=r"^there is no processor 'z80'$"):
        find_target("z80")


def test_a_data_object_is_linked_under_its_name(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    data = bytes(range(256)) * 3
    (tmp_path / "data.o").write_bytes(data_object(data, "payload", host_target().triple))
    (tmp_path / "use.c").write_text(
        "extern const unsigned char payload[];\nint at(int i) { return payload[i]; }\n"
    )
    library = tmp_path / "use.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", library, tmp_path / "use.c", tmp_path / "data.o"],
        check=True,
    )
    at = ctypes.CDLL(str(library)).at
    assert [at(i) for i in range(len(data))] == list(data)
