"""Plans chosen by measurement: each group by itself, then within the network."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph import Array, Graph
from tilewright.compiler.subgraph import subgraph
from tilewright.compiler.tensor.printing import format_nest
from tilewright.compiler.tuning.measured import (
    USUAL,
    Description,
    NetworkTime,
    Space,
    network_digest,
)
from tilewright.compiler.tuning.store import TuningStore, Values
from tilewright.cpu_gpu_backends.choice_values import find_choice, values_of
from tilewright.cpu_gpu_backends.codegen.clock import nanoseconds_per_tick
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.grouping import Group, group_digest, group_nodes
from tilewright.cpu_gpu_backends.cpu.lower import chained_outputs, lower_graph
from tilewright.cpu_gpu_backends.cpu.native import NativeProgram, load_program
from tilewright.cpu_gpu_backends.cpu.plan_space import plans_of
from tilewright.cpu_gpu_backends.cpu.plans import Plan
from tilewright.cpu_gpu_backends.cpu.program import CpuProgram, Kernel
from tilewright.cpu_gpu_backends.nest_features import nest_features
from tilewright.cpu_gpu_backends.turns import Timed, Times, least_times


def machine_digest(target: CpuTarget, threads: int) -> str:
    """Return the digest of what the time of a plan depends on."""
    features = " ".join(sorted(feature.value for feature in target.features))
    text = f"cpu\n{target.triple}\n{target.cpu}\n{features}\n{threads}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def tuned_plans(
    graph: Graph, target: CpuTarget, threads: int, store: TuningStore
) -> dict[str, Plan]:
    """Return the plans that files of tuned choices hold for a graph, by the digest of groups."""
    machine = machine_digest(target, threads)
    if not store.kernels(machine):
        return {}
    groups = _tunable(graph, target)
    chosen = store.chosen(machine, network_digest(list(groups)))
    values = {digest: choice.values for digest, choice in chosen.items() if digest in groups}
    return _plans(graph, groups, target, values)


def _plans(
    graph: Graph, groups: Mapping[str, Group], target: CpuTarget, values: Mapping[str, Values]
) -> dict[str, Plan]:
    """Return the plans that values say; what is no plan of a group is left out."""
    plans = {}
    for digest, own in values.items():
        plan = find_choice(plans_of(graph, groups[digest], target), own)
        if plan is not None:
            plans[digest] = plan
    return plans


def _tunable(graph: Graph, target: CpuTarget) -> dict[str, Group]:
    """Return the groups that have plans and follow them, equal ones once, by their digest."""
    found: dict[str, Group] = {}
    chained = chained_outputs(graph, target)
    for group in group_nodes(graph):
        if group.output not in chained and plans_of(graph, group, target):
            found.setdefault(group_digest(graph, group), group)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSpace:
    """The plans of one group."""

    #: The group, and nothing else.
    graph: Graph
    target: CpuTarget
    threads: int
    name: str
    digest: str

    def choices(self) -> tuple[Values, ...]:
        """Return all choices but the usual one."""
        return tuple(map(values_of, self._plans()))

    def describe(self, choices: Sequence[Values]) -> list[Description | None]:
        """Return what the kernels of choices look like."""
        return [self._description(self.program(values)) for values in choices]

    def program(self, values: Values) -> CpuProgram:
        """Return the program of the group with a choice."""
        plan = find_choice(self._plans(), values)
        assert plan is not None or values == USUAL, f"{values} is a choice for {self.name!r}"
        return lower_graph(self.graph, self.target, {} if plan is None else {self.digest: plan})

    def _plans(self) -> tuple[Plan, ...]:
        (group,) = group_nodes(self.graph)
        return plans_of(self.graph, group, self.target)

    def _description(self, program: CpuProgram) -> Description:
        (output,) = self.graph.outputs
        own = [step for step in program.steps if isinstance(step, Kernel) and step.name == output]
        texts = {id(kernel.nest.body): kernel.nest for kernel in own}
        known = {body: format_nest(nest) for body, nest in texts.items()}
        code = [
            f"{known[id(kernel.nest.body)]}\n{[view.strides for view in kernel.views]}"
            for kernel in own
        ]
        return Description(
            features=nest_features(
                [kernel.nest for kernel in own],
                vector_bytes=self.target.vector_bytes,
                workers=self.threads,
            ),
            code=hashlib.sha256("\n".join(code).encode()).hexdigest(),
        )


@dataclass(slots=True, kw_only=True)
class CpuTuning:
    """A graph on the processor at hand, with so many threads: what `tune_measured` works on."""

    graph: Graph
    target: CpuTarget
    threads: int
    #: The group whose usual program was measured last, and that program.
    _usual: tuple[str, NativeProgram] | None = None

    @property
    def machine(self) -> str:
        """The digest of processor and threads."""
        return machine_digest(self.target, self.threads)

    def spaces(self) -> list[Space]:
        """Return the groups that have plans, equal ones once."""
        return [
            CpuSpace(
                graph=subgraph(self.graph, group.nodes),
                target=self.target,
                threads=self.threads,
                name=group.first.name,
                digest=digest,
            )
            for digest, group in _tunable(self.graph, self.target).items()
        ]

    def measure(self, space: Space, choices: Sequence[Values]) -> list[float | None]:
        """Return the nanoseconds of the kernels of a group alone, in turns."""
        assert isinstance(space, CpuSpace), "the spaces are those that this target has returned"
        parts = {output: output for output in space.graph.outputs}
        runs = [
            self._timed(self._loaded(space, values), space.graph, parts, whole=False)
            for values in choices
        ]
        return [float(times[0]) for times in least_times(runs)]

    def measure_networks(self, choices: Sequence[Mapping[str, Values]]) -> list[NetworkTime]:
        """Measure the network with choices, in turns, each kernel by itself."""
        groups = _tunable(self.graph, self.target)
        parts = {
            group.output: digest
            for group in group_nodes(self.graph)
            if (digest := group_digest(self.graph, group)) in groups
        }
        programs = []
        for values in choices:
            plans = _plans(self.graph, groups, self.target, values)
            program = lower_graph(self.graph, self.target, plans)
            programs.append(load_program(program, self.target, profile=True))
        runs = [self._timed(program, self.graph, parts, whole=True) for program in programs]
        return [
            NetworkTime(total=float(total), kernels=dict(zip(groups, map(float, own), strict=True)))
            for total, *own in least_times(runs)
        ]

    def _loaded(self, space: CpuSpace, values: Values) -> NativeProgram:
        if values == USUAL and self._usual is not None and self._usual[0] == space.digest:
            return self._usual[1]
        program = load_program(space.program(values), self.target, profile=True)
        if values == USUAL:
            self._usual = (space.digest, program)
        return program

    def _timed(
        self, program: NativeProgram, graph: Graph, parts: Mapping[str, str], *, whole: bool
    ) -> Timed:
        """Return what runs a program and tells the time of all its kernels, or of those of `parts`
        only, and then of the kernels of each part, which is known by the names of its layers.
        """
        call = program.bound_call(_random_inputs(graph), self.threads)
        places = {part: place for place, part in enumerate(dict.fromkeys(parts.values()), 1)}
        owners = [places.get(parts.get(layer, ""), 0) for layer in program.program.layers]
        scale = nanoseconds_per_tick(self.target)

        def run() -> Times:
            call()
            times = np.zeros(1 + len(places))
            for owner, (_, ticks) in zip(owners, program.cycles(), strict=True):
                times[owner] += ticks * scale
            times[0] = times.sum() if whole else times[1:].sum()
            return times

        return run


def _random_inputs(graph: Graph) -> list[Array]:
    rng = np.random.default_rng(0)
    arrays: list[Array] = []
    for name in graph.inputs:
        tensor = graph.tensors[name]
        dtype = np.dtype(tensor.dtype.value)
        if dtype.kind == "f":
            arrays.append(rng.standard_normal(tensor.shape).astype(dtype))
        else:
            arrays.append(rng.integers(0, 100, tensor.shape).astype(dtype))
    return arrays
