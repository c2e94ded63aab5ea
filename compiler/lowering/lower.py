"""From a stage of accelerator nodes to one program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.compiled import AcceleratorStep, Binding, LayerInfo
from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.chains import Pipeline, make_pipelines
from tilewright.compiler.lowering.choices import NO_CHOICES, Choices
from tilewright.compiler.lowering.emitter import ConstantPool, Emitter
from tilewright.compiler.lowering.fusion import KernelGroup
from tilewright.compiler.lowering.kernels import Kernel, Legalised
from tilewright.compiler.lowering.matrix_products import MatrixProductSchedule
from tilewright.compiler.lowering.pipelining import emit_pipeline
from tilewright.compiler.lowering.placement import Schedule, kernel_tensors
from tilewright.compiler.lowering.places import place_of
from tilewright.compiler.lowering.prefetch import prefetch_weights
from tilewright.compiler.lowering.stages import PreparedStage, prepare
from tilewright.compiler.lowering.tasks import Task
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.lowering.tokens import assign_tokens
from tilewright.compiler.memory_plan import Lifetime, MemoryPlan, plan_memory
from tilewright.compiler.operators import Conv2d, ConvTranspose2d, MatMul
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.errors import CompileError
from tilewright.isa.instructions import AnyInstruction, Finish
from tilewright.isa.program import Buffer, BufferRole, Program, Segment, code_alignment_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKernels:
    """The kernels of a stage in order, and the tensors that they read and write, all at 0."""

    kernels: tuple[Kernel, ...]
    tensors: Mapping[str, BlockedTensor]


def stage_kernels(
    nodes: Sequence[Node],
    kernels: Mapping[str, Legalised],
    graph: Graph,
    config: AcceleratorConfig,
) -> StageKernels:
    """Return the kernels that `lower_stage` would lower, fused and folded."""
    stage = prepare(nodes, kernels, graph, config, keep_intermediates=False, choices=NO_CHOICES)
    return StageKernels(
        kernels=stage.kernels,
        tensors={name: BlockedTensor.at(0, shape, config) for name, shape in stage.shapes.items()},
    )


def lower_stage(
    nodes: Sequence[Node],
    kernels: Mapping[str, Legalised],
    graph: Graph,
    config: AcceleratorConfig,
    *,
    keep_intermediates: bool,
    choices: Choices = NO_CHOICES,
    latency_hiding: bool = True,
) -> AcceleratorStep:
    """Lower nodes that run one after the other on the accelerator to a program.

    With `keep_intermediates` nothing is fused and every tensor has its own place and is an output.
    Without `latency_hiding` memory and computation take turns.
    """
    code = generate_code(
        nodes,
        kernels,
        graph,
        config,
        keep_intermediates=keep_intermediates,
        choices=choices,
        latency_hiding=latency_hiding,
    )
    stage = code.stage
    return AcceleratorStep(
        program=_assemble(code, config),
        inputs=tuple(_input_binding(stage, code.tensors, name) for name in stage.inputs),
        outputs=tuple(Binding(tensor=name, layout=code.tensors[name]) for name in stage.outputs),
        layers=code.layers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCode:
    """The code of a stage before it is a program."""

    stage: PreparedStage
    #: Of each kernel.
    schedules: tuple[Schedule, ...]
    layer_of_kernel: tuple[int, ...]
    layers: tuple[LayerInfo, ...]
    tensors: Mapping[str, BlockedTensor]
    constants: ConstantPool
    tasks: tuple[Task, ...]
    #: Those of the tasks, with tokens, and the end.
    instructions: tuple[AnyInstruction, ...]


def generate_code(
    nodes: Sequence[Node],
    kernels: Mapping[str, Legalised],
    graph: Graph,
    config: AcceleratorConfig,
    *,
    keep_intermediates: bool,
    choices: Choices = NO_CHOICES,
    latency_hiding: bool = True,
) -> StageCode:
    """Generate the code of a stage, as `lower_stage` assembles it."""
    stage = prepare(
        nodes, kernels, graph, config, keep_intermediates=keep_intermediates, choices=choices
    )
    flat = {name: BlockedTensor.at(0, shape, config) for name, shape in stage.shapes.items()}
    pipelines = make_pipelines(
        stage.kernels, flat, config, interleave=not keep_intermediates, choices=choices
    )
    plan = _plan(stage, pipelines, flat, config.burst_bytes, keep_intermediates=keep_intermediates)
    constants = ConstantPool(begin=plan.size_bytes, alignment=config.burst_bytes)
    tensors = {
        name: replace(tensor, address=_address(tensor, name, stage, plan, constants))
        for name, tensor in flat.items()
    }
    emitter = Emitter(config, constants)
    layer_of_kernel = tuple(
        number for number, group in enumerate(stage.groups) for _ in group.legalised.kernels
    )
    tasks = _tasks(pipelines, emitter, tensors, layer_of_kernel)
    instructions = assign_tokens(
        tasks, config, dram_begin=0, dram_end=plan.size_bytes, latency_hiding=latency_hiding
    )
    schedules = tuple(schedule for pipeline in pipelines for schedule in pipeline.schedules)
    return StageCode(
        stage=stage,
        schedules=schedules,
        layer_of_kernel=layer_of_kernel,
        layers=tuple(
            _layer_info(
                group, [s for s, n in zip(schedules, layer_of_kernel, strict=True) if n == i]
            )
            for i, group in enumerate(stage.groups)
        ),
        tensors=tensors,
        constants=emitter.constants,
        tasks=tasks,
        instructions=(*instructions, Finish()),
    )


def _tasks(
    pipelines: Sequence[Pipeline],
    emitter: Emitter,
    tensors: Mapping[str, BlockedTensor],
    layer_of_kernel: Sequence[int],
) -> tuple[Task, ...]:
    begins = []
    for pipeline in pipelines:
        begins.append(len(emitter.tasks))
        emit_pipeline(pipeline, emitter, tensors, layer_of_kernel)
    ends = (*begins[1:], len(emitter.tasks))
    return tuple(
        prefetch_weights(
            [emitter.tasks[begin:end] for begin, end in zip(begins, ends, strict=True)]
        )
    )


def _address(
    tensor: BlockedTensor,
    name: str,
    stage: PreparedStage,
    plan: MemoryPlan,
    constants: ConstantPool,
) -> int:
    values = stage.constants.get(name)
    if values is not None:
        return constants.place(tensor.pack(values).tobytes())
    place = place_of(name, stage.places)
    return plan.offsets[place.root] + place.offset_bytes


def _plan(
    stage: PreparedStage,
    pipelines: Sequence[Pipeline],
    flat: Mapping[str, BlockedTensor],
    alignment: int,
    *,
    keep_intermediates: bool,
) -> MemoryPlan:
    """Give every tensor that is not a view its place."""
    count = len(stage.kernels)
    first: dict[str, int] = {}
    last: dict[str, int] = {}

    def touch(name: str, when: int) -> None:
        root = place_of(name, stage.places).root
        first[root] = min(first.get(root, when), when)
        last[root] = max(last.get(root, when), when)

    for pipeline in pipelines:
        for kernel in stage.kernels[pipeline.first : pipeline.last + 1]:
            for name in kernel_tensors(kernel):
                if name not in stage.constants:
                    touch(name, pipeline.first)
                    touch(name, pipeline.last)
    for name in stage.inputs:
        touch(stage.folds[name][0] if name in stage.folds else name, -1)
    for name in stage.outputs:
        touch(name, count)
    if keep_intermediates:
        first = dict.fromkeys(first, -1)
        last = dict.fromkeys(last, count)
    lifetimes = [
        Lifetime(
            name=name,
            size_bytes=flat[name].size_bytes,
            first=first[name],
            last=last[name],
        )
        for name in first
    ]
    return plan_memory(lifetimes, alignment)


def _input_binding(
    stage: PreparedStage, tensors: Mapping[str, BlockedTensor], name: str
) -> Binding:
    if name not in stage.folds:
        return Binding(tensor=name, layout=tensors[name])
    folded, rule = stage.folds[name]
    return Binding(tensor=name, layout=tensors[folded], fold=rule)


def _assemble(code: StageCode, config: AcceleratorConfig) -> Program:
    stage, constants = code.stage, code.constants
    alignment = code_alignment_bytes(config)
    code_address = -(-constants.end // alignment) * alignment
    code_bytes = len(code.instructions) * instruction_bytes(config)
    dram_bytes = code_address + code_bytes
    if dram_bytes > config.dram.size_bytes:
        raise CompileError(
            f"the network needs {dram_bytes} bytes of DRAM, configuration {config.name!r} has"
            f" {config.dram.size_bytes}",
            hint="a larger dram.size_bytes, if the board has it",
        )
    folded = {placed: name for name, (placed, _) in stage.folds.items()}
    buffers = []
    for name, tensor in code.tensors.items():
        if name in stage.constants:
            continue
        source = folded.get(name, name)
        role = BufferRole.SCRATCH
        if source in stage.inputs:
            role = BufferRole.INPUT
        elif name in stage.outputs:
            role = BufferRole.OUTPUT
        buffers.append(
            Buffer(name=name, address=tensor.address, size_bytes=tensor.size_bytes, role=role)
        )
    return Program(
        config=config,
        instructions=code.instructions,
        code_address=code_address,
        constants=tuple(
            Segment(address=address, data=data) for address, data in constants.chunks()
        ),
        buffers=tuple(buffers),
        dram_bytes=dram_bytes,
        layers=tuple(layer.name for layer in code.layers),
        layer_of_instruction=(*(task.layer for task in code.tasks), -1),
    )


def _layer_info(group: KernelGroup, schedules: Sequence[Schedule]) -> LayerInfo:
    products = _products(group, schedules)
    return LayerInfo(
        name="+".join(node.name for node in group.nodes),
        operator="+".join(type(node.op).__name__ for node in group.nodes),
        nodes=tuple(node.name for node in group.nodes),
        macs=sum(schedule.macs for schedule in products),
        ideal_cycles=sum(schedule.ideal_cycles for schedule in products),
    )


def _products(group: KernelGroup, schedules: Sequence[Schedule]) -> Sequence[Schedule]:
    """Return those whose multiplications are the operator's: others only move data."""
    if any(isinstance(node.op, Conv2d | ConvTranspose2d) for node in group.nodes):
        return schedules
    if any(isinstance(node.op, MatMul) for node in group.nodes):
        assert isinstance(schedules[-1], MatrixProductSchedule), "the product comes last"
        return schedules[-1:]
    return ()
