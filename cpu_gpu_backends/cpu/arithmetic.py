"""How real numbers are computed with, as a user allows, and which products and tensors that meets.

Products in bfloat16 run at twice the speed of float32. Winograd's large tiles need a quarter of the
products and stay in float32: rounded to bfloat16, transformed tiles have nine times the error of
the direct sum.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.operators import FloatConv2d, FloatDense, FloatMatMul
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.grouping import (
    Group,
    is_depthwise,
    is_plain_convolution,
)
from tilewright.cpu_gpu_backends.cpu.winograd_tiles import winograd_transforms
from tilewright.cpu_gpu_backends.winograd import LARGE_TILES
from tilewright.isa.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """What a user asks for.

    Attributes
    ----------
    half
        Products of weights in bfloat16, summed in float32, where that is faster; what lies between
        them too.
    direct
        Convolutions as sums in the order of their declaration, without Winograd's transformations.
    """

    half: bool = False
    direct: bool = False


FLOAT32 = Arithmetic()


def check_arithmetic(arithmetic: Arithmetic, target: CpuTarget) -> None:
    """Check that a processor has the instructions for it.

    Raises
    ------
    InputError
        If it does not multiply bfloat16 numbers.
    """
    if arithmetic.half and not target.multiplies_halves:
        raise InputError(
            f"bfloat16 needs avx512bf16, which processor {target.name!r} does not have"
        )


def with_arithmetic(
    graph: Graph, groups: tuple[Group, ...], arithmetic: Arithmetic
) -> tuple[Group, ...]:
    """Return the groups with the arithmetic of each.

    A tuner's plan for float32 says nothing of other arithmetic, which follows the rules.
    """
    if arithmetic == FLOAT32:
        return groups
    producers = {group.output: group for group in groups}
    chosen = []
    for group in groups:
        plain = replace(group, direct=arithmetic.direct)
        half = arithmetic.half and _suits_half(graph, plain, producers.get(group.first.inputs[0]))
        chosen.append(replace(plain, half=half, plan=None if half else group.plan))
    return tuple(chosen)


def _suits_half(graph: Graph, group: Group, producer: Group | None) -> bool:
    """Whether products in bfloat16 are the fastest, and read pairs of numbers that exist."""
    node = group.first
    match node.op:
        case FloatDense():
            constant = node.inputs[1] in graph.constants
            return constant and graph.tensors[node.inputs[0]].shape[-1] % 2 == 0
        case FloatConv2d() as op if is_plain_convolution(graph, node):
            if winograd_transforms(graph, group) is LARGE_TILES:
                return False
            _, _, columns, channels = graph.constants[node.inputs[1]].shape
            # An odd stretch is read with the number behind it, which the border has.
            bordered = columns > 1 and op.dilation[1] == 1 and not _pads_channels(graph, producer)
            return channels % 2 == 0 or bordered
        case _:
            return False


def _pads_channels(graph: Graph, producer: Group | None) -> bool:
    """Whether the channels of what a group computes may be padded."""
    return producer is not None and (
        isinstance(producer.first.op, FloatDense | FloatMatMul)
        or is_plain_convolution(graph, producer.first)
    )


def half_tensors(graph: Graph, groups: Iterable[Group]) -> frozenset[str]:
    """Return the tensors that are kept in bfloat16: products read them, and nobody minds."""
    wanted = {group.first.inputs[0] for group in groups if group.half}
    kept = {name for group in groups if not _takes_halves(graph, group) for name in group.inputs}
    return frozenset(wanted - kept - set(graph.outputs) - set(graph.constants))


def _takes_halves(graph: Graph, group: Group) -> bool:
    """Whether the kernel of a group reads numbers of bfloat16."""
    return not group.anchored or _reads_windows(graph, group.first)


def _reads_windows(graph: Graph, node: Node) -> bool:
    match node.op:
        case FloatConv2d():
            return is_plain_convolution(graph, node) or is_depthwise(graph, node)
        case FloatDense():
            return node.inputs[1] in graph.constants
        case _:
            return False
