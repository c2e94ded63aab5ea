"""What there is to tune in a network: its kernels, and the chains that they could form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilewright.compiler.compiled import Target
from tilewright.compiler.graph import Graph
from tilewright.compiler.lowering.chains import (
    Pipeline,
    chain_digest,
    make_pipelines,
    pipeline_digest,
    possible_chains,
    streamed_schedules,
)
from tilewright.compiler.lowering.choices import Choices
from tilewright.compiler.lowering.emitter import ConstantPool, Emitter
from tilewright.compiler.lowering.kernels import Kernel, Legalised
from tilewright.compiler.lowering.lower import lower_stage, stage_kernels
from tilewright.compiler.lowering.pipelining import emit_pipeline
from tilewright.compiler.lowering.placement import (
    Schedule,
    Stage,
    kernel_tensors,
    make_schedule,
    place,
)
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.lowering.tokens import assign_tokens
from tilewright.compiler.memory_plan import Lifetime, plan_memory
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.instructions import Finish
from tilewright.isa.program import Program, code_alignment_bytes

#: Returns the cycles of a program; called in other processes, so a function of a module.
Judge: TypeAlias = Callable[[Program], int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Kernels that run one after the other or take turns, to be cut to tiles."""

    #: Of all that their timing depends on.
    digest: str
    kernels: tuple[Kernel, ...]
    #: Those that the kernels read and write, at address 0.
    tensors: Mapping[str, BlockedTensor]

    @property
    def name(self) -> str:
        """Names of the kernels."""
        return ", ".join(kernel.name for kernel in self.kernels)

    def schedules(self, config: AcceleratorConfig) -> tuple[Schedule, ...]:
        """Return the schedules of the kernels, cut by the estimate of cycles."""
        if len(self.kernels) == 1:
            return (make_schedule(self.kernels[0], self.tensors, config),)
        schedules = streamed_schedules(self.kernels, self.tensors, config)
        assert schedules is not None, "a chain is a problem only where its kernels fit"
        return schedules


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageProblem:
    """One program of a network: what it consists of, and what it costs with other choices."""

    #: Of all kernels in order.
    digest: str
    #: Every kernel, then every chain, equal ones once.
    problems: tuple[Problem, ...]
    graph: Graph
    config: AcceleratorConfig
    stage: Stage
    legalised: Mapping[str, Legalised]

    def cycles(self, choices: Choices, judge: Judge) -> int:
        """Return the cycles of the whole program."""
        step = lower_stage(
            self.stage.nodes,
            self.legalised,
            self.graph,
            self.config,
            keep_intermediates=False,
            choices=choices,
        )
        return judge(step.program)

    def used(self, choices: Choices) -> tuple[str, ...]:
        """Return the digests of the kernels and chains that the program consists of."""
        found = stage_kernels(self.stage.nodes, self.legalised, self.graph, self.config)
        pipelines = make_pipelines(
            found.kernels, found.tensors, self.config, interleave=True, choices=choices
        )
        digests = [
            pipeline_digest(found.kernels[pipeline.first : pipeline.last + 1], pipeline.schedules)
            for pipeline in pipelines
        ]
        return tuple(dict.fromkeys(digests))


def find_stages(graph: Graph, config: AcceleratorConfig) -> tuple[StageProblem, ...]:
    """Return what there is to tune in each program of a graph."""
    placed = place(graph, config)
    return tuple(
        _stage_problem(stage, placed.kernels, graph, config)
        for stage in placed.stages
        if stage.target is Target.ACCELERATOR
    )


def _stage_problem(
    stage: Stage, legalised: Mapping[str, Legalised], graph: Graph, config: AcceleratorConfig
) -> StageProblem:
    found = stage_kernels(stage.nodes, legalised, graph, config)
    problems: dict[str, Problem] = {}
    schedules = [make_schedule(kernel, found.tensors, config) for kernel in found.kernels]
    for kernel, schedule in zip(found.kernels, schedules, strict=True):
        if schedule.shape is not None:
            digest = pipeline_digest([kernel], [schedule])
            problems.setdefault(digest, _problem(digest, (kernel,), found.tensors))
    for first, length in possible_chains(found.kernels):
        kernels = found.kernels[first : first + length]
        streamed = streamed_schedules(kernels, found.tensors, config)
        if streamed is not None:
            digest = pipeline_digest(kernels, streamed)
            problems.setdefault(digest, _problem(digest, kernels, found.tensors))
    return StageProblem(
        digest=chain_digest(found.kernels, schedules),
        problems=tuple(problems.values()),
        graph=graph,
        config=config,
        stage=stage,
        legalised=legalised,
    )


def _problem(
    digest: str, kernels: tuple[Kernel, ...], tensors: Mapping[str, BlockedTensor]
) -> Problem:
    names = {name for kernel in kernels for name in kernel_tensors(kernel)}
    return Problem(
        digest=digest, kernels=kernels, tensors={name: tensors[name] for name in sorted(names)}
    )


def problem_program(problem: Problem, pipeline: Pipeline, config: AcceleratorConfig) -> Program:
    """Return a program that computes the kernels of a problem and nothing else.

    It is for timing only: no constants are in it.
    """
    lifetimes = [
        Lifetime(name=name, size_bytes=tensor.size_bytes, first=0, last=0)
        for name, tensor in problem.tensors.items()
    ]
    plan = plan_memory(lifetimes, config.burst_bytes)
    tensors = {
        name: replace(tensor, address=plan.offsets[name])
        for name, tensor in problem.tensors.items()
    }
    emitter = Emitter(config, ConstantPool(begin=plan.size_bytes, alignment=config.burst_bytes))
    emit_pipeline(pipeline, emitter, tensors, [0] * len(problem.kernels))
    tokens = assign_tokens(emitter.tasks, config, dram_begin=0, dram_end=plan.size_bytes)
    instructions = (*tokens, Finish())
    alignment = code_alignment_bytes(config)
    code_address = -(-emitter.constants.end // alignment) * alignment
    return Program(
        config=config,
        instructions=instructions,
        code_address=code_address,
        dram_bytes=code_address + len(instructions) * instruction_bytes(config),
    )
