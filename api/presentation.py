"""Results as tables and lines for people, and as JSON records for programs."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.compiler.compiled import Placement, Target
from tilewright.compiler.graph import Array
from tilewright.isa.memories import Engine
from tilewright.runtime.difference import LayerDifference
from tilewright.runtime.stats import LayerStats, RunStats, longest_wait
from tilewright.runtime.tables import Table
from tilewright.sim.timeline import EngineAccount


def stats_lines(stats: RunStats) -> list[str]:
    """Summarise a run."""
    parts = [
        ("cycles", f"{stats.cycles:,} = {stats.milliseconds:.3f} ms at {stats.clock_mhz:g} MHz"),
        ("DRAM read", f"{stats.dram_read_bytes:,} bytes"),
        ("DRAM written", f"{stats.dram_write_bytes:,} bytes"),
    ]
    if stats.macs:
        reached = stats.ideal_cycles / stats.cycles
        parts[1:1] = [
            (
                "array-shape bound",
                f"{stats.ideal_cycles:,} cycles, of convolutions only: reached {reached:.1%}",
            ),
            ("MACs", f"{stats.macs:,}: {stats.utilisation:.1%} of the multipliers' time"),
        ]
    return [f"{name:18} {text}" for name, text in parts]


def layer_table(stats: RunStats) -> Table:
    """Show per layer its cycles, its bound, the busiest engine, and the longest wait."""
    return Table(
        columns=("layer", "operator", "cycles", "share", "bound", "busiest", "longest wait"),
        numbers=("cycles", "share", "bound"),
        title="Layers (a cycle counts for the layer in the array, else for the one at work)",
        rows=tuple(_layer_row(layer, stats.cycles) for layer in stats.layers),
    )


def engine_table(stats: RunStats) -> Table:
    """Show what each engine did in the cycles of the run, in percent of them."""
    rows = []
    for engine in Engine:
        account = stats.engines[engine]
        parts = (
            account.busy,
            account.memory_wait,
            sum(account.token_wait),
            account.fetch_wait,
            account.drain,
            account.done,
        )
        total = max(1, account.cycles)
        rows.append((engine.name.lower(), *(f"{part / total:.1%}" for part in parts)))
    states = ("busy", "for memory", "for engines", "for instructions", "drains", "done")
    return Table(
        columns=("engine", *states),
        numbers=states,
        rows=tuple(rows),
        title="Engines (share of the cycles: at work, waiting, draining, done)",
    )


def placement_table(placement: Sequence[Placement]) -> Table:
    """Show per operator where it runs and why."""
    return Table(
        columns=("node", "runs on", "because", "operator"),
        prose=("because",),
        title="Placement",
        rows=tuple(
            (item.node, item.target.value, item.reason, item.operator) for item in placement
        ),
    )


def placement_records(placement: Sequence[Placement]) -> list[dict[str, str]]:
    """Return the placement as JSON values."""
    return [
        {
            "node": item.node,
            "op": item.operator,
            "target": item.target.value,
            "reason": item.reason,
        }
        for item in placement
    ]


def stats_record(stats: RunStats) -> dict[str, Any]:
    """Return the cost of a run as JSON values; a program without a model has unknown products."""
    known = stats.macs > 0
    return {
        "cycles": stats.cycles,
        "clock_mhz": stats.clock_mhz,
        "milliseconds": stats.milliseconds,
        "macs": stats.macs if known else None,
        "ideal_cycles": stats.ideal_cycles if known else None,
        "utilisation": stats.utilisation if known else None,
        "dram_read_bytes": stats.dram_read_bytes,
        "dram_write_bytes": stats.dram_write_bytes,
        "engines": _engine_records(stats.engines),
        "layers": [
            {
                "name": layer.name,
                "op": layer.op,
                "device": layer.device.value,
                "cycles": layer.cycles,
                "ideal_cycles": layer.ideal_cycles if known else None,
                "macs": layer.macs if known else None,
                "dram_bytes": layer.dram_bytes,
                "waits": _engine_records(layer.waits) if layer.waits else {},
            }
            for layer in stats.layers
        ],
    }


def output_lines(outputs: Mapping[str, Array]) -> list[str]:
    """Show the outputs: the five largest classes, or shape and range."""
    lines = []
    for name, values in outputs.items():
        head = f"output {name} {values.dtype}{list(values.shape)}"
        if is_class_scores(values):
            best = ", ".join(f"{index} ({score:g})" for index, score in top_classes(values))
            lines.append(f"{head}: classes {best}")
        elif values.size:
            lines.append(f"{head}: values from {values.min():g} to {values.max():g}")
        else:
            lines.append(f"{head}: empty")
    return lines


def output_records(outputs: Mapping[str, Array]) -> dict[str, Any]:
    """Return shape, type and top classes, or a digest of the bytes, of each output."""
    records: dict[str, Any] = {}
    for name, values in outputs.items():
        record: dict[str, Any] = {"shape": list(values.shape), "dtype": values.dtype.name}
        if is_class_scores(values):
            record["top5"] = [
                {"index": index, "score": score} for index, score in top_classes(values)
            ]
        else:
            data = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).tobytes()
            record["digest"] = f"sha256:{hashlib.sha256(data).hexdigest()}"
        records[name] = record
    return records


def is_class_scores(values: Array) -> bool:
    """Say whether an array holds one score per class: several along the last axis only."""
    return values.ndim > 1 and values.size == values.shape[-1] > 1


def top_classes(values: Array, count: int = 5) -> list[tuple[int, float]]:
    """Return the classes of the largest scores with these, the largest first."""
    scores = values.reshape(-1)
    order = np.argsort(-scores.astype(np.float64), kind="stable")[:count]
    return [(int(index), float(scores[index])) for index in order]


def _layer_row(layer: LayerStats, run_cycles: int) -> tuple[str, ...]:
    if layer.device is Target.HOST:
        return (layer.name, layer.op, "host", "", "", "", "")
    share = layer.cycles / run_cycles if run_cycles else 0.0
    busiest = max(Engine, key=lambda engine: layer.waits[engine].busy)
    return (
        layer.name,
        layer.op,
        f"{layer.cycles:,}",
        f"{share:.1%}",
        f"{layer.ideal_cycles:,}" if layer.ideal_cycles else "-",
        f"{busiest.name.lower()} {layer.waits[busiest].busy:,}",
        longest_wait(layer),
    )


def _engine_records(accounts: Sequence[EngineAccount]) -> dict[str, Any]:
    return {
        engine.name.lower(): {
            "busy": account.busy,
            "memory_wait": account.memory_wait,
            "token_wait": {giver.name.lower(): account.token_wait[giver] for giver in Engine},
            "fetch_wait": account.fetch_wait,
            "drain": account.drain,
            "done": account.done,
        }
        for engine, account in zip(Engine, accounts, strict=True)
    }


def difference_record(layer: LayerDifference) -> dict[str, object]:
    """Return what the JSON says of one layer that was compared."""
    return {
        "layer": layer.layer,
        "op": layer.op,
        "tensor": layer.tensor,
        "elements": layer.difference.elements,
        "differing": layer.difference.differing,
        "share": layer.difference.share,
        "maximum": layer.difference.maximum,
    }
