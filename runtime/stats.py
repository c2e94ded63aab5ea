"""What a run cost: cycles, traffic and waits, of the whole and per layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

from tilewright.compiler.compiled import AcceleratorStep, CompiledGraph, HostStep, Target
from tilewright.compiler.graph import Node
from tilewright.isa.memories import Engine
from tilewright.runtime.ownership import layer_ownership
from tilewright.sim.timeline import EngineAccount, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStats:
    """One kernel of the accelerator, or one operator of the host.

    Layers overlap; `tilewright.runtime.ownership` says which cycle counts for which layer. The
    cycles of all layers add up to those of the run.
    """

    name: str
    op: str
    #: The host's work has no cycles.
    device: Target
    cycles: int
    #: The array-shape bound: cycles that the array (depthwise: the lanes) needs at the least for a
    #: convolution or a dense layer, channels rounded up to whole blocks; 0 for other layers.
    ideal_cycles: int
    #: Multiply-accumulates of the model.
    macs: int
    #: Bytes that the layer's loads and stores moved.
    dram_bytes: int
    #: Per engine, in the order of `Engine`, what it did in this layer's name; empty on the host.
    waits: tuple[EngineAccount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStats:
    """Cost of one run on the accelerator; the host's steps are not in it."""

    #: Cycles from start to `FINISH`, first load and last store included.
    cycles: int
    clock_mhz: float
    #: Multiply-accumulates of the array per cycle.
    macs_per_cycle: int
    #: Bytes read, instructions included.
    dram_read_bytes: int
    dram_write_bytes: int
    #: Per engine, in the order of `Engine`, what it did in each cycle.
    engines: tuple[EngineAccount, ...]
    layers: tuple[LayerStats, ...]

    @property
    def milliseconds(self) -> float:
        """Time that the accelerator needs at its clock."""
        return self.cycles / self.clock_mhz / 1e3

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the model."""
        return sum(layer.macs for layer in self.layers)

    @property
    def ideal_cycles(self) -> int:
        """The array-shape bound of the whole network: convolutions and dense layers only."""
        return sum(layer.ideal_cycles for layer in self.layers)

    @property
    def utilisation(self) -> float:
        """Share of the array's multipliers that did work of the model, over the whole run."""
        available = self.cycles * self.macs_per_cycle
        return self.macs / available if available else 0.0


def run_stats(compiled: CompiledGraph, timelines: Sequence[Timeline]) -> RunStats:
    """Add up a run; `timelines` holds one item per accelerator step."""
    remaining = iter(timelines)
    layers: list[LayerStats] = []
    for step in compiled.steps:
        match step:
            case HostStep(nodes=nodes):
                layers += [_host_layer(node) for node in nodes]
            case AcceleratorStep():
                layers += _accelerator_layers(step, next(remaining))
            case _:
                assert_never(step)
    return RunStats(
        cycles=sum(timeline.cycles for timeline in timelines),
        clock_mhz=compiled.config.clock_mhz,
        macs_per_cycle=compiled.config.macs_per_cycle,
        dram_read_bytes=sum(timeline.dram_read_bytes for timeline in timelines),
        dram_write_bytes=sum(timeline.dram_write_bytes for timeline in timelines),
        engines=tuple(
            _sum_accounts([timeline.account(engine) for timeline in timelines]) for engine in Engine
        ),
        layers=tuple(layers),
    )


def _host_layer(node: Node) -> LayerStats:
    return LayerStats(
        name=node.name,
        op=type(node.op).__name__,
        device=Target.HOST,
        cycles=0,
        ideal_cycles=0,
        macs=0,
        dram_bytes=0,
    )


def _accelerator_layers(step: AcceleratorStep, timeline: Timeline) -> list[LayerStats]:
    layer_of = step.program.layer_of_instruction or (-1,) * len(step.program.instructions)
    ownership = layer_ownership(timeline, layer_of)
    stats = []
    for index, layer in enumerate(step.layers):
        mine = np.asarray(layer_of) == index
        stats.append(
            LayerStats(
                name=layer.name,
                op=layer.operator,
                device=Target.ACCELERATOR,
                cycles=int(ownership.cycles[ownership.layer == index].sum()),
                ideal_cycles=layer.ideal_cycles,
                macs=layer.macs,
                dram_bytes=int(timeline.dram_bytes[mine].sum()),
                waits=tuple(_account(timeline, mine & (timeline.engine == e)) for e in Engine),
            )
        )
    return stats


def _account(timeline: Timeline, mine: npt.NDArray[np.bool_]) -> EngineAccount:
    """Add up what one engine did for some of its instructions."""
    return EngineAccount(
        busy=int(timeline.busy[mine].sum()),
        memory_wait=int(timeline.memory_wait[mine].sum()),
        token_wait=tuple(
            int(timeline.token_wait[mine & (timeline.token_giver == giver)].sum())
            for giver in Engine
        ),
        fetch_wait=int(timeline.fetch_wait[mine].sum()),
        drain=int(timeline.drain[mine].sum()),
        done=0,
    )


def _sum_accounts(accounts: Sequence[EngineAccount]) -> EngineAccount:
    return EngineAccount(
        busy=sum(account.busy for account in accounts),
        memory_wait=sum(account.memory_wait for account in accounts),
        token_wait=tuple(sum(account.token_wait[e] for account in accounts) for e in Engine),
        fetch_wait=sum(account.fetch_wait for account in accounts),
        drain=sum(account.drain for account in accounts),
        done=sum(account.done for account in accounts),
    )


def longest_wait(layer: LayerStats) -> str:
    """Say what the layer's computing engine waited for the longest, in words."""
    gemm, vector = layer.waits[Engine.GEMM], layer.waits[Engine.VECTOR]
    engine, account = (Engine.GEMM, gemm) if gemm.busy >= vector.busy else (Engine.VECTOR, vector)
    waits = {giver.name.lower(): account.token_wait[giver] for giver in Engine}
    waits |= {"instructions": account.fetch_wait, "its pipeline": account.drain}
    what, cycles = max(waits.items(), key=lambda item: item[1])
    return f"{engine.name.lower()} for {what} {cycles:,}" if cycles else ""
