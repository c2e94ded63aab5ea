"""Charts of the report as SVG elements: use of the scratchpads, roofline."""

import math
from collections.abc import Iterator, Sequence
from html import escape

from tilewright.compiler.compiled import Target
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.memories import memory_shape
from tilewright.runtime.occupancy import Occupancy
from tilewright.runtime.stats import RunStats

#: Points of a curve of the use of a scratchpad.
_BINS = 480
#: Size of the roofline, and room for its axes.
_WIDTH, _HEIGHT, _MARGIN = 760, 320, 52


def occupancy_rows(
    found: Sequence[Occupancy], config: AcceleratorConfig, cycles: int
) -> Iterator[tuple[str, int, int, int, float, str]]:
    """Yield name, entries, bytes, peak and mean entries in use, and the curve over the run."""
    for one in found:
        entry_bytes = memory_shape(one.memory, config).entry_bytes
        name = one.memory.name.lower()
        yield name, one.depth, one.depth * entry_bytes, one.peak, one.mean, _curve(one, cycles)


def _curve(one: Occupancy, cycles: int) -> str:
    heights = [1 - used / one.depth for used in one.highest(_BINS, cycles)]
    points = " ".join(
        f"{x},{y:.3f} {x + 1},{y:.3f}" for x, y in enumerate(round(height, 3) for height in heights)
    )
    return (
        f'<svg class="use" viewBox="0 0 {_BINS} 1" preserveAspectRatio="none" role="img"'
        f' aria-label="use of {one.memory.name.lower()} over the run">'
        f'<polygon points="0,1 {points} {_BINS},1"/></svg>'
    )


def roofline(stats: RunStats, config: AcceleratorConfig) -> str:
    """Draw the layers of the array under the two limits: its multipliers and the memory.

    Abscissa: multiply-accumulates per byte of DRAM traffic; ordinate: multiply-accumulates per
    cycle that counts for the layer; both logarithmic. S. Williams, A. Waterman, D. Patterson,
    Roofline, CACM 52(4), 2009.
    """
    numbered = enumerate(layer for layer in stats.layers if layer.device is Target.ACCELERATOR)
    dots = [
        (number, layer.name, layer.macs / layer.dram_bytes, layer.macs / layer.cycles)
        for number, layer in numbered
        if layer.macs and layer.dram_bytes and layer.cycles
    ]
    if not dots:
        return "<p>No layer multiplies on the array.</p>"
    peak, slope = config.macs_per_cycle, _bytes_per_cycle(config)
    knee = peak / slope
    plane = _Plane([knee, *(x for _, _, x, _ in dots)], [peak, *(y for _, _, _, y in dots)])
    left, right, low = plane.x_range[0], plane.x_range[1], plane.y_range[0]
    start = max(left, low / slope)
    roof = [(start, slope * start), (knee, peak), (max(right, knee), peak)]
    return (
        f'<svg class="roofline" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
        ' aria-label="multiply-accumulates per cycle over multiply-accumulates per byte">'
        + plane.axes()
        + '<polyline class="roof" points="'
        + " ".join("{:.1f},{:.1f}".format(*plane.place(*point)) for point in roof)
        + '"/>'
        + "".join(_dot(plane, *dot) for dot in dots)
        + "</svg>"
    )


def _dot(plane: "_Plane", number: int, name: str, x: float, y: float) -> str:
    left, top = plane.place(x, y)
    return (
        f'<circle class="swatch-dot" data-layer="{number}" cx="{left:.1f}" cy="{top:.1f}" r="5">'
        f"<title>{escape(name)}: {y:.1f} MACs per cycle, {x:.1f} MACs per byte</title></circle>"
    )


def _bytes_per_cycle(config: AcceleratorConfig) -> float:
    """Bytes that load and store port move per cycle in full bursts, both together."""
    beats, dram = config.burst_beats, config.dram
    return config.burst_bytes * (
        1 / (beats + dram.read_gap_cycles) + 1 / (beats + dram.write_gap_cycles)
    )


class _Plane:
    """A plane with logarithmic axes in whole decades around some values."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self.x_range, self.y_range = _decades(xs), _decades(ys)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point lies in the picture."""
        right = (_WIDTH - 2 * _MARGIN) * _share(x, self.x_range)
        up = (_HEIGHT - 2 * _MARGIN) * _share(y, self.y_range)
        return _MARGIN + right, _HEIGHT - _MARGIN - up

    def axes(self) -> str:
        """Draw the grid of decades with its numbers and what the axes mean."""
        parts = []
        for x in _powers(self.x_range):
            left, bottom = self.place(x, self.y_range[0])
            parts.append(f'<path d="M{left:.1f} {bottom:.1f}V{_MARGIN}"/>')
            parts.append(_text(left, bottom + 18, f"{x:g}", "middle"))
        for y in _powers(self.y_range):
            left, height = self.place(self.x_range[0], y)
            parts.append(f'<path d="M{left:.1f} {height:.1f}H{_WIDTH - _MARGIN}"/>')
            parts.append(_text(left - 8, height + 4, f"{y:g}", "end"))
        parts.append(_text(_WIDTH / 2, _HEIGHT - 12, "MACs per byte of DRAM traffic", "middle"))
        parts.append(_text(_MARGIN, _MARGIN - 14, "MACs per cycle", "start"))
        return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _decades(values: Sequence[float]) -> tuple[float, float]:
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))
    return 10.0**low, 10.0**high


def _share(value: float, bounds: tuple[float, float]) -> float:
    low, high = map(math.log10, bounds)
    return (math.log10(value) - low) / (high - low)


def _powers(bounds: tuple[float, float]) -> list[float]:
    low, high = (round(math.log10(bound)) for bound in bounds)
    return [10.0**power for power in range(low, high + 1)]
