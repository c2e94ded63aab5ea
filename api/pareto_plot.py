"""A scatter of explored configurations as one SVG, written without a drawing library."""

from collections.abc import Sequence
from html import escape

from tilewright.exploration import Point

_WIDTH, _HEIGHT = 760, 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 30, 40, 60
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.axis{stroke:#888}.grid{stroke:#ddd}"
    ".point{fill:#9aa7b5}.best{fill:#c2410c}.front{fill:none;stroke:#c2410c;stroke-width:1.5}"
)


def pareto_svg(points: Sequence[Point], *, title: str) -> str:
    """Draw images per second over the share of the scarcest resource; the best are joined."""
    top = _ceiling(max(point.rate for point in points))
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">',
        f"<style>{_STYLE}</style>",
        f'<text x="{_LEFT}" y="22">{escape(title)}</text>',
        *_axes(top),
    ]
    best = sorted(
        (point for point in points if point.is_best), key=lambda p: p.candidate.shares.largest
    )
    line = " ".join(f"{_x(p):.1f},{_y(p.rate, top):.1f}" for p in best)
    rows.append(f'<polyline class="front" points="{line}"/>')
    rows += [_mark(point, top) for point in points]
    return "\n".join((*rows, "</svg>", ""))


def _axes(top: float) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    rows = []
    for step in range(6):
        y = bottom - step * (bottom - _TOP) / 5
        x = _LEFT + step * (right - _LEFT) / 5
        rows += [
            f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>',
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{top * step / 5:g}</text>',
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{step * 20} %</text>',
        ]
    return [
        *rows,
        f'<line class="axis" x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>',
        f'<line class="axis" x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{bottom}"/>',
        _caption(f'x="{(_LEFT + right) / 2}" y="{_HEIGHT - 16}"', "share of the scarcest resource"),
        _caption(
            f'transform="translate(18 {(_TOP + bottom) / 2}) rotate(-90)"', "images per second"
        ),
    ]


def _caption(place: str, text: str) -> str:
    return f'<text {place} text-anchor="middle">{text}</text>'


def _mark(point: Point, top: float) -> str:
    x, y = _x(point), _y(point.rate, top)
    kind = "best" if point.is_best else "point"
    text = escape(f"{point.candidate.label}: {point.rate:.1f} images/s")
    circle = (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{text}</title></circle>'
    )
    if not point.is_best:
        return circle
    config = point.candidate.config
    label = f"{config.block_in}x{config.block_out}"
    return f'{circle}<text x="{x - 8:.1f}" y="{y - 8:.1f}" text-anchor="end">{label}</text>'


def _x(point: Point) -> float:
    return _LEFT + point.candidate.shares.largest * (_WIDTH - _LEFT - _RIGHT)


def _y(rate: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - rate / top * (_HEIGHT - _TOP - _BOTTOM)


def _ceiling(value: float) -> float:
    """Return the next number of one digit."""
    unit = 10.0 ** (len(str(int(value))) - 1)
    return -(-value // unit) * unit
