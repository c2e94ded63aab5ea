"""Differences are measured right, and a fault is found in the layer that has it."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.compiler.compiled import AcceleratorStep
from tilewright.isa.errors import InputError
from tilewright.isa.instructions import Load
from tilewright.isa.memories import Memory
from tilewright.isa.presets import PYNQ, TINY
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.difference import Difference, diff, difference, layer_differences
from tilewright.runtime.model import Model, compile_model


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], Difference(maximum=0, differing=0, elements=3, largest=3)),
        ([-128, 2, 3], [127, 3, 3], Difference(maximum=255, differing=2, elements=3, largest=127)),
        ([], [], Difference(maximum=0, differing=0, elements=0)),
    ],
)
def test_difference_of_int8(first: list[int], second: list[int], expected: Difference) -> None:
    assert difference(np.array(first, np.int8), np.array(second, np.int8)) == expected


def test_share() -> None:
    assert Difference(maximum=1, differing=1, elements=4).share == 0.25
    assert Difference(maximum=0, differing=0, elements=0).share == 0


@pytest.mark.parametrize("config", [PYNQ, TINY])
def test_no_layer_of_the_demo_differs(
    digits: Model, image: npt.NDArray[np.float32], config: object
) -> None:
    layers = diff(digits, image, config=config)
    named = {layer.layer for layer in layers}
    convolutions = {node.name for node in digits.graph.nodes if type(node.op).__name__ == "Conv2d"}
    assert named >= convolutions | {"residual", "block", "average"}
    assert [layer.layer for layer in layers if layer.difference.differing] == []


def test_a_wrong_weight_is_found_in_its_layer(
    digits: Model, image: npt.NDArray[np.float32]
) -> None:
    compiled = compile_model(digits, PYNQ, keep_intermediates=True).compiled
    (index,) = (i for i, step in enumerate(compiled.steps) if isinstance(step, AcceleratorStep))
    step = compiled.steps[index]
    layer = [info.name for info in step.layers].index("widen")
    address = next(
        insn.address
        for insn, owner in zip(
            step.program.instructions, step.program.layer_of_instruction, strict=True
        )
        if owner == layer and isinstance(insn, Load) and insn.memory is Memory.WGT
    )
    constants = tuple(
        replace(segment, data=bytes(byte ^ 0x40 for byte in segment.data))
        if segment.address <= address < segment.address + len(segment.data)
        else segment
        for segment in step.program.constants
    )
    faulty = replace(step, program=replace(step.program, constants=constants))
    steps = (*compiled.steps[:index], faulty, *compiled.steps[index + 1 :])
    model = CompiledModel(compiled=replace(compiled, steps=steps))
    layers = layer_differences(model, {"image": image})
    differing = [item.layer for item in layers if item.difference.differing]
    assert differing[0] == "widen"
    assert {"stem", "depthwise", "pointwise"}.isdisjoint(differing)


def test_inputs_are_checked_first(digits: Model) -> None:
    with pytest.raises(InputError) as caught:
        diff(digits, np.zeros((1, 16, 16), np.float32))
    assert str(caught.value) == (
        "input 'image' must have the shape [1, 1, 16, 16], not [1, 16, 16]"
    )
