"""A line chart as SVG: logarithmic axes, a line per broker, values and spread at its points."""

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 34, 36
COLOURS = {"Ottla": "#0b6e4f", "Kafka": "#b3541e"}
OTHER_COLOUR = "#444444"

Points = Sequence[tuple[float, float, float, float]]
"""Size, and the least, the median and the most of the values measured."""


def short(value: float) -> str:
    """Return a number in few characters: 1,500 as 1.5k."""
    for limit, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


class _Axis:
    """Maps values to positions, logarithmically."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = math.log10(min(values)), math.log10(max(values))
        if high - low < 0.3:  # a nearly flat line is drawn as one
            low, high = low - 0.5, high + 0.5
        self._low, self._span = low, high - low
        self._start, self._length = start, end - start

    def at(self, value: float) -> float:
        return self._start + (math.log10(value) - self._low) / self._span * self._length

    def ticks(self) -> list[float]:
        """Return the powers of ten within the axis, at most about six."""
        first, last = math.ceil(self._low - 1e-9), math.floor(self._low + self._span + 1e-9)
        step = max(1, (last - first) // 5)
        return [10.0**power for power in range(first, last + 1, step)]


def draw(title: str, x_label: str, lines: Mapping[str, Points]) -> str:
    """Return the SVG of a chart. Values must be positive; lines without a point are left out."""
    shown = {name: [p for p in points if min(p) > 0] for name, points in lines.items()}
    shown = {name: points for name, points in shown.items() if points}
    every = [point for points in shown.values() for point in points]
    x = _Axis([point[0] for point in every], LEFT, WIDTH - RIGHT)
    y = _Axis([value for point in every for value in point[1:]], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="10">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="14" font-size="12" font-weight="bold">{escape(title)}</text>',
        *_grid(x, y),
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{escape(x_label)}</text>',
    ]
    for number, (name, points) in enumerate(shown.items()):
        parts += _line(name, number, [(x.at(a), y.at(b), b) for a, _, b, _ in points])
        parts += [_spread(name, x.at(a), y.at(low), y.at(high)) for a, low, _, high in points]
    return "\n".join((*parts, "</svg>", ""))


def _grid(x: _Axis, y: _Axis) -> list[str]:
    parts = []
    for tick in y.ticks():
        at = y.at(tick)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{at + 3:.1f}" text-anchor="end">{short(tick)}</text>'
        )
    for tick in x.ticks():
        at = x.at(tick)
        parts.append(f'<path d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eeeeee"/>')
        parts.append(
            f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 13}" text-anchor="middle">'
            f"{short(tick)}</text>"
        )
    return parts


def _line(name: str, number: int, points: Sequence[tuple[float, float, float]]) -> list[str]:
    colour = COLOURS.get(name, OTHER_COLOUR)
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b, _ in points)
    left = LEFT + 80 * number
    parts = [
        f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        f'<rect x="{left}" y="20" width="10" height="4" fill="{colour}"/>',
        f'<text x="{left + 14}" y="26" fill="{colour}">{escape(name)}</text>',
    ]
    for a, b, value in points:
        parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>')
        parts.append(
            f'<text x="{a:.1f}" y="{b - 5:.1f}" font-size="8" text-anchor="middle" '
            f'fill="{colour}">{short(value)}</text>'
        )
    return parts


def _spread(name: str, at: float, low: float, high: float) -> str:
    colour = COLOURS.get(name, OTHER_COLOUR)
    return f'<path d="M{at:.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/>'
