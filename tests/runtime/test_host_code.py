"""Host steps compiled ahead of time for a board: the same bits as numpy's."""

import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from random_networks import random_graph

import tilewright as tw
from tilewright.compiler.compiled import HostStep
from tilewright.compiler.evaluate import evaluate_all
from tilewright.compiler.graph import Array, Graph, Node, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    BinaryFunction,
    DataType,
    Dequantize,
    FloatBinary,
    FloatSoftmax,
    LayerNorm,
    Quantize,
    Softmax,
)
from tilewright.compiler.subgraph import subgraph
from tilewright.isa.errors import CompileError, InputError, ModelError
from tilewright.runtime import execution, host_code, native_graphs
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.host_code import HostCode, HostLibraries, HostLibrary
from tilewright.runtime.inputs import random_inputs
from tilewright.runtime.model import Model
from tilewright.runtime.model_file import compiled_from_bytes, compiled_to_bytes
from tilewright.runtime.native_graphs import NativeGraphs

EMULATORS = {
    "cortex-a9": ("arm-linux-gnueabihf", "qemu-arm-static"),
    "cortex-a53": ("aarch64-linux-gnu", "qemu-aarch64-static"),
}
MAIN = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Arguments: library, workspace bytes, inputs, then the sizes of inputs and outputs. */
int main(int count, char **words) {
    dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL);
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) { fputs(dlerror(), stderr); return 2; }
    int (*run)(void **, void **, void *);
    *(void **)&run = dlsym(library, "host_run");
    int inputs = atoi(words[3]);
    void *buffers[16];
    for (int i = 0; i < count - 4; i++) {
        size_t size = atol(words[4 + i]);
        buffers[i] = malloc(size + 64);
        if (i < inputs && fread(buffers[i], 1, size, stdin) != size) return 3;
    }
    void *workspace = aligned_alloc(64, (atol(words[2]) + 127) / 64 * 64);
    int status = run(buffers, buffers + inputs, workspace);
    for (int i = inputs; i < count - 4; i++) fwrite(buffers[i], 1, atol(words[4 + i]), stdout);
    return status;
}
"""


def attention_tail() -> Graph:
    """Softmax and layer normalisation of integers, then real operators, of which one is inexact."""
    build = GraphBuilder("tail")
    rng = np.random.default_rng(2)

    def constant(values: Array) -> str:
        return build.add_constant("constant", values)

    x = build.add_input(Tensor(name="x", shape=(1, 6, 16), dtype=DataType.FLOAT32))
    q = build.add(Quantize(scale=0.05, zero_point=3), [x], node="quantized")
    exponentials = np.round(2**30 * np.exp(-0.05 * np.arange(256))).astype(np.int32)
    softmax = Softmax(scale=1 / 256, zero_point=-128)
    shares = build.add(softmax, [q, constant(exponentials)], node="shares")
    gain = constant(rng.uniform(10, 20, 16).astype(np.float32))
    offset = constant(rng.uniform(-9, 9, 16).astype(np.float32))
    norm = LayerNorm(floor=0.5, zero_point=1, low=-128, high=127)
    normal = build.add(norm, [shares, gain, offset], node="normal")
    real = build.add(Dequantize(scale=0.1, zero_point=1), [normal], node="real")
    soft = build.add(FloatSoftmax(), [real], node="soft")
    y = build.add(FloatBinary(function=BinaryFunction.MULTIPLY), [soft, real], node="product")
    return build.build([y, normal])


def compiled_for_host(graph: Graph) -> CompiledModel:
    return tw.compile(Model(graph=graph, path=None), device="cpu")


def parts(compiled: CompiledModel, code: HostCode) -> list[tuple[HostLibrary, Graph]]:
    """Each library with the graph of its nodes."""
    nodes = {node.name: node for node in compiled.graph.nodes}
    return [
        (library, subgraph(compiled.graph, tuple(nodes[name] for name in library.nodes)))
        for library in code.libraries
    ]


@pytest.fixture
def code_for_here(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a processor whose code this computer runs."""
    if platform.machine() != "x86_64" or shutil.which("cc") is None:
        pytest.skip("needs an x86-64 and a C compiler")
    monkeypatch.setitem(host_code._MACHINES, "x86-64-v3", ("x86_64", 64))
    return "x86-64-v3"


def test_the_code_is_used_and_yields_the_same_bits(
    code_for_here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compiled_for_host(attention_tail())
    expected = compiled.run(random_inputs(compiled.graph, 3), "reference").outputs
    compiled.with_host_code(code_for_here).save(tmp_path / "m.tw")
    loaded = CompiledModel.load(tmp_path / "m.tw")
    in_numpy: list[str] = []
    evaluate_node = execution.evaluate_node

    def noted(graph: Graph, node: Node, values: Mapping[str, Array]) -> Array:
        in_numpy.append(node.name)
        return evaluate_node(graph, node, values)

    monkeypatch.setattr(execution, "evaluate_node", noted)
    for _ in range(2):
        found = loaded.run(random_inputs(compiled.graph, 3), "sim").outputs
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
    assert in_numpy == ["soft", "soft"], "a real exponential is no single operation"


def test_a_mixed_program_takes_its_host_steps_from_the_file(
    code_for_here: str,
    compiled_digits: CompiledModel,
    image: npt.NDArray[np.float32],
    tmp_path: Path,
) -> None:
    assert any(isinstance(step, HostStep) for step in compiled_digits.compiled.steps)
    coded = compiled_digits.with_host_code(code_for_here)
    assert coded.libraries.code is not None
    expected = compiled_digits.run(image, "reference").outputs
    for name, values in coded.run(image, "sim").outputs.items():
        np.testing.assert_array_equal(values, expected[name])
    assert set(coded.libraries._loaded) == {one.nodes[0] for one in coded.libraries.code.libraries}


def test_a_workstation_compiles_exact_operators_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_graphs, "_HEAVY_OPERATIONS", 0)
    compiled = compiled_for_host(attention_tail())
    inputs = random_inputs(compiled.graph, 3)
    expected = compiled.run(inputs, "reference").outputs
    computed: set[str] = set()
    prepare = NativeGraphs.prepare

    def noted(self: NativeGraphs, graph: Graph, *words: object, **options: bool) -> object:
        computed.update(graph.outputs)
        return prepare(self, graph, *words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(NativeGraphs, "prepare", noted)
    for name, values in compiled.run(inputs, "sim").outputs.items():
        np.testing.assert_array_equal(values, expected[name])
    assert computed == {"real", "normal", *compiled.graph.outputs}


@pytest.mark.parametrize("processor", EMULATORS)
@pytest.mark.parametrize("graph", [attention_tail(), random_graph(4)], ids=["tail", "convolutions"])
def test_boards_compute_the_same_bits(processor: str, graph: Graph, tmp_path: Path) -> None:
    triple, emulator = EMULATORS[processor]
    tools = (f"{triple}-gcc", emulator)
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        pytest.skip(f"needs {' and '.join(missing)}")
    compiled = compiled_for_host(graph).with_host_code(processor)
    compiled.save(tmp_path / "m.tw")
    code = CompiledModel.load(tmp_path / "m.tw").libraries.code
    assert code is not None
    assert not code.fits_here or platform.machine() != "x86_64"
    main = tmp_path / "main.c"
    main.write_text(MAIN)
    subprocess.run([tools[0], "-o", tmp_path / "main", main, "-ldl"], check=True, timeout=120)
    values = evaluate_all(graph, random_inputs(graph, 5))
    for library, part in parts(compiled, code):
        (tmp_path / "host.so").write_bytes(library.library.tobytes())
        given = [np.ascontiguousarray(values[name]) for name in part.inputs]
        expected = [values[name] for name in part.outputs]
        sizes = [str(array.nbytes) for array in (*given, *expected)]
        words = [tmp_path / "host.so", str(library.workspace_bytes), str(len(given)), *sizes]
        done = subprocess.run(
            [emulator, "-L", f"/usr/{triple}", tmp_path / "main", *words],
            input=b"".join(array.tobytes() for array in given),
            capture_output=True,
            check=True,
            timeout=120,
        )
        assert done.stdout == b"".join(array.tobytes() for array in expected)


def test_elsewhere_the_code_lies_idle(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("arm-linux-gnueabihf-gcc") is None:
        pytest.skip("needs arm-linux-gnueabihf-gcc")
    coded = compiled_digits.with_host_code("cortex-a9")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    expected = compiled_digits.run(image, "reference").outputs
    for name, values in coded.run(image, "sim").outputs.items():
        np.testing.assert_array_equal(values, expected[name])
    assert not coded.libraries._loaded


def test_what_cannot_be_is_refused(
    compiled_digits: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError) as caught:
        compiled_digits.with_host_code("x86-64-v3")
    message = (
        "host steps are compiled ahead of time for cortex-a9 and cortex-a53, not for 'x86-64-v3'"
    )
    assert str(caught.value) == message
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(CompileError) as missing:
        compiled_digits.with_host_code("cortex-a9")
    message = "a shared library for cortex-a9 needs one of arm-linux-gnueabihf-gcc"
    assert str(missing.value) == message


def test_code_that_does_not_load_says_so(
    code_for_here: str, compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    coded = compiled_digits.with_host_code(code_for_here)
    assert coded.libraries.code is not None
    broken = tuple(
        replace(library, library=np.zeros(64, np.uint8))
        for library in coded.libraries.code.libraries
    )
    other = HostLibraries(code=replace(coded.libraries.code, libraries=broken))
    with pytest.raises(CompileError, match=r"^the code of host step '[^']*' does not load: "):
        replace(coded, libraries=other).run(image, "sim")


def test_code_of_other_steps_is_refused(compiled_digits: CompiledModel, code_for_here: str) -> None:
    code = compiled_digits.with_host_code(code_for_here).libraries.code
    assert code is not None
    with pytest.raises(ModelError, match=r"^the compiled model is damaged: its code for the host"):
        compiled_from_bytes(compiled_to_bytes(compiled_for_host(random_graph(3)).compiled, code))
