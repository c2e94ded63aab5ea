"""The report of a run: one HTML page that needs no other file and no network."""

import json
from collections.abc import Sequence
from html import escape
from itertools import count
from pathlib import Path
from string import Template

from tilewright.compiler.compiled import AcceleratorStep, CompiledGraph, Target
from tilewright.isa.config_record import config_to_record
from tilewright.isa.memories import Engine
from tilewright.runtime.occupancy import occupancies
from tilewright.runtime.report_charts import occupancy_rows, roofline
from tilewright.runtime.segments import Segment, merge_segments
from tilewright.runtime.stats import LayerStats, RunStats, longest_wait
from tilewright.sim.timeline import EngineAccount, Timeline

_TEMPLATE = Path(__file__).with_name("report.html")


def render_report(compiled: CompiledGraph, timelines: Sequence[Timeline], stats: RunStats) -> str:
    """Return the page; every name of the model is escaped."""
    config, placement = compiled.config, compiled.placement
    title = f"{compiled.graph.name} on {config.name}"
    substitutes = {
        "title": escape(title),
        "subtitle": escape(
            f"{config.batch} x {config.block_in} x {config.block_out} multiply-accumulates per"
            f" cycle, {config.clock_mhz:g} MHz, cycle-exact simulation"
        ),
        "tiles": _tiles(stats),
        "engines": "\n".join(_engine_row(engine, stats) for engine in Engine),
        "layers": _layer_rows(stats),
        "roofline": roofline(stats, config),
        "scratchpads": _scratchpad_rows(compiled, timelines, stats.cycles),
        "placement": "\n".join(
            _row(_cells(item.node, item.operator, item.target.value, item.reason))
            for item in placement
        ),
        "configuration": _configuration_rows(config_to_record(config)),
        "data": _data(compiled, timelines, stats),
    }
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(substitutes)


def _tiles(stats: RunStats) -> str:
    tiles = [
        (f"{stats.cycles:,}", "cycles"),
        (f"{stats.milliseconds:,.3f} ms", f"at {stats.clock_mhz:g} MHz"),
        (f"{stats.dram_read_bytes:,}", "bytes read from DRAM"),
        (f"{stats.dram_write_bytes:,}", "bytes written to DRAM"),
    ]
    if stats.macs:
        reached = stats.ideal_cycles / stats.cycles
        tiles[2:2] = [
            (f"{reached:.1%}", f"of the array-shape bound, {stats.ideal_cycles:,} cycles"),
            (f"{stats.utilisation:.1%}", f"of the multipliers, {stats.macs:,} MACs"),
        ]
    return "\n".join(f"<div><b>{value}</b>{escape(what)}</div>" for value, what in tiles)


def _engine_row(engine: Engine, stats: RunStats) -> str:
    account = stats.engines[engine]
    waits = [
        f"{giver.name.lower()} {account.token_wait[giver]:,}"
        for giver in Engine
        if account.token_wait[giver]
    ]
    return _row(
        _cells(engine.name.lower())
        + f"<td>{_stack(account)}</td>"
        + _numbers(account.busy, account.memory_wait, sum(account.token_wait))
        + f'<td class="words">{escape(", ".join(waits))}</td>'
        + _numbers(account.fetch_wait, account.drain, account.done)
    )


def _stack(account: EngineAccount) -> str:
    parts = (
        ("busy", account.busy),
        ("memory", account.memory_wait),
        ("token", sum(account.token_wait)),
        ("fetch", account.fetch_wait),
        ("drain", account.drain),
        ("done", account.done),
    )
    total = max(1, account.cycles)
    spans = "".join(
        f'<i class="{name}" style="width:{cycles / total:.3%}" title="{name} {cycles:,}"></i>'
        for name, cycles in parts
    )
    return f'<div class="stack">{spans}</div>'


def _layer_rows(stats: RunStats) -> str:
    numbers = count()
    return "\n".join(
        _host_row(layer)
        if layer.device is Target.HOST
        else _layer_row(layer, next(numbers), stats.cycles)
        for layer in stats.layers
    )


def _host_row(layer: LayerStats) -> str:
    return _row(_name_cell(layer) + _cells(layer.op) + '<td colspan="10">on the host</td>')


def _layer_row(layer: LayerStats, number: int, run_cycles: int) -> str:
    """Write a row; `number` counts the layers of the accelerator, as the time line does."""
    share = layer.cycles / run_cycles if run_cycles else 0.0
    bar = f'<span class="bar" style="width:{100 * share:.1f}px"></span> {share:.1%}'
    return _row(
        _name_cell(layer, f'<i class="swatch" data-layer="{number}"></i>')
        + _cells(layer.op)
        + _numbers(layer.cycles)
        + f"<td>{bar}</td>"
        + _numbers(layer.ideal_cycles or None, layer.macs or None, layer.dram_bytes)
        + _numbers(*(account.busy for account in layer.waits))
        + f'<td class="words">{escape(longest_wait(layer))}</td>'
    )


def _name_cell(layer: LayerStats, mark: str = "") -> str:
    return f'<td class="name">{mark}{escape(layer.name)}</td>'


def _scratchpad_rows(compiled: CompiledGraph, timelines: Sequence[Timeline], cycles: int) -> str:
    programs = [step.program for step in compiled.steps if isinstance(step, AcceleratorStep)]
    if not programs:
        return ""
    config = compiled.config
    rows = occupancy_rows(occupancies(programs, timelines), config, cycles)
    return "\n".join(
        _row(
            _cells(name)
            + _numbers(depth, size, peak)
            + f'<td class="number">{peak / depth:.0%}</td><td class="number">{mean:,.1f}</td>'
            + f'<td class="curve">{curve}</td>'
        )
        for name, depth, size, peak, mean, curve in rows
    )


def _configuration_rows(record: dict[str, object]) -> str:
    rows = []
    for name, value in record.items():
        if isinstance(value, dict):
            rows += [(f"{name}.{inner}", held) for inner, held in value.items()]
        else:
            rows.append((name, value))
    return "\n".join(
        _row(_cells(name) + f'<td class="number">{escape(str(value))}</td>') for name, value in rows
    )


def _data(compiled: CompiledGraph, timelines: Sequence[Timeline], stats: RunStats) -> str:
    steps = [step for step in compiled.steps if isinstance(step, AcceleratorStep)]
    layers = [layer.name for step in steps for layer in step.layers]
    segments = merge_segments(steps, timelines)
    record = {
        "cycles": max(1, stats.cycles),
        "engines": [engine.name.lower() for engine in Engine],
        "layers": layers,
        "segments": [_plain(segment) for segment in segments],
    }
    # "<" could end the script element that the data stands in.
    return json.dumps(record, separators=(",", ":")).replace("<", "\\u003c")


def _plain(segment: Segment) -> list[float]:
    share = round(segment.busy / (segment.last - segment.first + 1), 3)
    return [segment.engine, segment.layer, segment.first, segment.last, share]


def _row(cells: str) -> str:
    return f"<tr>{cells}</tr>"


def _cells(*texts: str) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in texts)


def _numbers(*values: int | None) -> str:
    texts = ("-" if value is None else f"{value:,}" for value in values)
    return "".join(f'<td class="number">{text}</td>' for text in texts)
