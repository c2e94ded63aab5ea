"""Which operators run on the accelerator, and how they group into programs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from typing_extensions import assert_never

from tilewright.compiler.compiled import Placement, Target
from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.choices import NO_CHOICES, Choices
from tilewright.compiler.lowering.emitter import MAX_PADDING
from tilewright.compiler.lowering.kernels import (
    Decision,
    HostReason,
    Kernel,
    LaneKernel,
    Legalised,
    MatrixKernel,
    MatrixProductKernel,
    ProductKernel,
)
from tilewright.compiler.lowering.lane_products import ProductSchedule
from tilewright.compiler.lowering.lanes import LaneSchedule
from tilewright.compiler.lowering.legalise import legalise
from tilewright.compiler.lowering.matrix import MatrixSchedule
from tilewright.compiler.lowering.matrix_products import MatrixProductSchedule
from tilewright.compiler.lowering.reductions import ReductionSchedule, needs_reduction
from tilewright.compiler.lowering.tensors import BlockedTensor, TensorShape
from tilewright.compiler.operators import Expand, MatMul, Mul, Upsample2d
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError

Schedule: TypeAlias = (
    MatrixSchedule | LaneSchedule | ReductionSchedule | ProductSchedule | MatrixProductSchedule
)

#: Operators that a host computes as well where the machine's scratchpads are too small: what they
#: cost is little beside the layers around them.
_LIGHT = Mul | MatMul | Upsample2d | Expand


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Nodes that run on one target without the other in between, in graph order."""

    target: Target
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedGraph:
    """Every operator with its target and reason, the stages, and the kernels."""

    placement: tuple[Placement, ...]
    stages: tuple[Stage, ...]
    #: By node name; a view has no kernels.
    kernels: Mapping[str, Legalised]


def place(graph: Graph, config: AcceleratorConfig, choices: Choices = NO_CHOICES) -> PlacedGraph:
    """Decide for each operator between accelerator and host."""
    placement: list[Placement] = []
    kernels: dict[str, Legalised] = {}
    for node in graph.nodes:
        match _decide(node, graph, config, choices):
            case Legalised() as legalised:
                kernels[node.name] = legalised
                target, reason = Target.ACCELERATOR, _describe(legalised)
            case HostReason(text=reason):
                target = Target.HOST
        placement.append(
            Placement(node=node.name, operator=type(node.op).__name__, target=target, reason=reason)
        )
    kept = _drop_lonely_views(graph, placement, kernels)
    return PlacedGraph(placement=tuple(kept), stages=_stages(graph, kept), kernels=kernels)


def tensor_views(
    legalised: Legalised, graph: Graph, config: AcceleratorConfig
) -> dict[str, BlockedTensor]:
    """Return the tensors of some kernels, all at address 0: enough to choose tiles."""
    shapes = dict(legalised.temporaries)
    for kernel in legalised.kernels:
        for name in kernel_tensors(kernel):
            if name not in shapes:
                shapes[name] = TensorShape.of(graph.tensors[name].shape)
    return {name: BlockedTensor.at(0, shape, config) for name, shape in shapes.items()}


def kernel_tensors(kernel: Kernel) -> tuple[str, ...]:
    """Names of the tensors that a kernel reads, then of the one that it writes."""
    match kernel:
        case MatrixKernel(residual=None):
            return kernel.source, kernel.output
        case MatrixKernel():
            assert kernel.residual is not None
            return kernel.source, kernel.residual.tensor, kernel.output
        case LaneKernel():
            return (*(source.tensor for source in kernel.sources), kernel.output)
        case ProductKernel():
            return kernel.source, kernel.factors, kernel.output
        case MatrixProductKernel():
            return kernel.source, kernel.weights, kernel.output
        case _:
            assert_never(kernel)


def _decide(node: Node, graph: Graph, config: AcceleratorConfig, choices: Choices) -> Decision:
    legalised = legalise(node, graph, config)
    if isinstance(legalised, HostReason):
        return legalised
    tensors = tensor_views(legalised, graph, config)
    for kernel in legalised.kernels:
        reason = _unpaddable(kernel, tensors, config)
        if reason is not None:
            return reason
        try:
            with naming_misfit(kernel.name, config):
                make_schedule(kernel, tensors, config, choices=choices)
        except CompileError as error:
            if isinstance(node.op, _LIGHT):
                return HostReason(text=str(error))
            raise
    return legalised


@contextmanager
def naming_misfit(name: str, config: AcceleratorConfig) -> Iterator[None]:
    """Let the error of scratchpads that are too small for `name` say what it is about."""
    try:
        yield
    except CompileError as error:
        raise CompileError(
            f"{name!r} does not fit configuration {config.name!r}: {error}",
            hint="use a configuration with deeper scratchpads",
        ) from error


def fits(
    kernel: Kernel,
    tensors: Mapping[str, BlockedTensor],
    config: AcceleratorConfig,
    choices: Choices = NO_CHOICES,
) -> bool:
    """Whether some tile of a kernel fits the scratchpads."""
    try:
        make_schedule(kernel, tensors, config, choices=choices)
    except CompileError:
        return False
    return True


def _unpaddable(
    kernel: Kernel, tensors: Mapping[str, BlockedTensor], config: AcceleratorConfig
) -> HostReason | None:
    """Say why a load cannot make the padding of a kernel, or return None."""
    source, output = tensors[kernel_tensors(kernel)[0]].shape, tensors[kernel.output].shape
    match kernel:
        case LaneKernel(rows=rows, columns=columns):
            pass
        case MatrixKernel(phases=phases):
            rows, columns = output.height // phases[0], output.width // phases[1]
        case ProductKernel() | MatrixProductKernel():
            return None
        case _:
            assert_never(kernel)
    entries = config.layout_block // min(config.block_in, config.block_out)
    for axis, count, size, per_pixel in (
        (0, rows, source.height, 1),
        (1, columns, source.width, entries),
    ):
        extent = kernel.window.span(axis, 0, count, size)
        widest = max(extent.pad_before, extent.pad_after) * per_pixel
        if widest > MAX_PADDING:
            return HostReason(text=f"{widest} padding entries, a load makes at most {MAX_PADDING}")
    return None


def make_schedule(
    kernel: Kernel,
    tensors: Mapping[str, BlockedTensor],
    config: AcceleratorConfig,
    *,
    streamed: bool = False,
    choices: Choices = NO_CHOICES,
) -> Schedule:
    """Choose the tiles of a kernel; a `streamed` one finishes few rows at a time."""
    match kernel:
        case MatrixKernel():
            return MatrixSchedule(kernel, tensors, config, streamed=streamed, choices=choices)
        case LaneKernel():
            if needs_reduction(kernel, tensors, config):
                return ReductionSchedule(kernel, tensors, config)
            return LaneSchedule(kernel, tensors, config, streamed=streamed, choices=choices)
        case ProductKernel():
            return ProductSchedule(kernel, tensors, config)
        case MatrixProductKernel():
            return MatrixProductSchedule(kernel, tensors, config)
        case _:
            assert_never(kernel)


def _describe(legalised: Legalised) -> str:
    match legalised.kernels:
        case ():
            return "a view, no data moves"
        case (kernel,):
            return _engine(kernel)
        case several:
            return f"{' and '.join(sorted(set(map(_engine, several))))}, {len(several)} kernels"


def _engine(kernel: Kernel) -> str:
    match kernel:
        case MatrixKernel() | MatrixProductKernel():
            return "gemm engine"
        case LaneKernel() | ProductKernel():
            return "vector engine"
        case _:
            assert_never(kernel)


def _drop_lonely_views(
    graph: Graph, placement: list[Placement], kernels: dict[str, Legalised]
) -> list[Placement]:
    """Send a view to the host unless its input comes from the accelerator."""
    targets = {entry.node: entry.target for entry in placement}
    producers = {name: node.name for node in graph.nodes for name in node.outputs}
    result = []
    for node, entry in zip(graph.nodes, placement, strict=True):
        kept = entry
        producer = producers.get(node.inputs[0]) if node.inputs else None
        if (
            entry.target is Target.ACCELERATOR
            and not kernels[node.name].kernels
            and (producer is None or targets[producer] is Target.HOST)
        ):
            del kernels[node.name]
            targets[node.name] = Target.HOST
            kept = Placement(
                node=entry.node,
                operator=entry.operator,
                target=Target.HOST,
                reason="a view of a tensor on the host",
            )
        result.append(kept)
    return result


def _stages(graph: Graph, placement: list[Placement]) -> tuple[Stage, ...]:
    """Group nodes by how often data has to change sides before they can run."""
    targets = {entry.node: entry.target for entry in placement}
    level: dict[str, int] = {}
    side: dict[str, Target] = {}
    groups: dict[tuple[int, Target], list[Node]] = {}
    for node in graph.nodes:
        target = targets[node.name]
        depth = 0
        for name in node.inputs:
            if name in level:
                depth = max(depth, level[name] + (side[name] is not target))
        for name in node.outputs:
            level[name], side[name] = depth, target
        groups.setdefault((depth, target), []).append(node)
    order = sorted(groups, key=lambda key: (key[0], key[1] is Target.ACCELERATOR))
    return tuple(Stage(target=key[1], nodes=tuple(groups[key])) for key in order)
