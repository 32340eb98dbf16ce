"""A report of a pipeline: one HTML page with plots, which needs nothing else. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from ottla.spark.history import Sample, rates

_WIDTH: Final = 640
_HEIGHT: Final = 160
_LEFT: Final = 70
_BOTTOM: Final = 22
POINTS_MAX: Final = 2000
"""Most points of a plot; more are thinned out, keeping the largest of each group."""

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 46em; padding: 0 1em;
       color: #222; background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; border-top: 1px solid #ddd;
     padding-top: 1em; } h3 { font-size: 0.95em; margin: 1em 0 0.2em; font-weight: 600; }
svg { width: 100%; height: auto; } text { font-size: 11px; fill: #666; }
.line { fill: none; stroke: #1f6feb; stroke-width: 1.5; } .dot { fill: #1f6feb; }
.grid { stroke: #e4e4e4; } .none { color: #666; }
table { border-collapse: collapse; } td, th { text-align: right; padding: 0.15em 0.8em;
        border-bottom: 1px solid #eee; } td:first-child, th:first-child { text-align: left; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; }
  .grid { stroke: #333; } h2, td, th { border-color: #333; } text, .none { fill: #999; } }
"""


def page(title: str, samples: Sequence[Sample], made: float) -> str:
    """Return the page; ``made`` is the time of the report in seconds since the epoch."""
    flows: dict[str, list[Sample]] = {}
    for each in sorted(samples, key=lambda sample: sample.at):
        flows.setdefault(each.flow, []).append(each)
    body = [f"<h1>{escape(title)}</h1>", f"<p>{_time(made)}. {_span(samples)}</p>"]
    if flows:
        body.append(_summary(flows))
    else:
        body.append("<p class=none>No micro-batch has finished yet.</p>")
    for name, theirs in sorted(flows.items()):
        body.append(f"<h2>{escape(name)}</h2>")
        body.append(_plot("Throughput, records per second", rates(theirs)))
        durations = [(each.at, each.seconds) for each in theirs if each.seconds is not None]
        body.append(_plot("Duration of a micro-batch, seconds", durations))
        lags = [(each.at, float(each.lag)) for each in theirs if each.lag is not None]
        body.append(_plot("Lag, records", lags))
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _summary(flows: dict[str, list[Sample]]) -> str:
    rows = []
    for name, theirs in sorted(flows.items()):
        last, speeds = theirs[-1], [speed for _, speed in rates(theirs)]
        cells = [
            escape(name),
            f"{last.batch:,}",
            "" if last.records is None else f"{last.records:,}",
            "" if last.lag is None else f"{last.lag:,}",
            f"{max(speeds):,.0f}" if speeds else "",
        ]
        rows.append("<tr>" + "".join(f"<td>{each}</td>" for each in cells) + "</tr>")
    head = "<tr><th>Flow</th><th>Batch</th><th>Records</th><th>Lag</th><th>Peak records/s</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _plot(title: str, points: Sequence[tuple[float, float]]) -> str:
    head = f"<h3>{escape(title)}</h3>"
    if not points:
        return f"{head}<p class=none>not measured</p>"
    points = thinned(points, POINTS_MAX)
    first, last = points[0][0], points[-1][0]
    top = max(value for _, value in points) or 1.0
    wide, high = _WIDTH - _LEFT, _HEIGHT - _BOTTOM

    def place(at: float, value: float) -> str:
        across = (at - first) / (last - first) if last > first else 0.5
        return f"{_LEFT + across * (wide - 6):.1f},{4 + (1 - value / top) * (high - 4):.1f}"

    lines = []
    for share in (0.0, 0.5, 1.0):
        y = 4 + (1 - share) * (high - 4)
        lines.append(f'<line class=grid x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(top * share)}</text>'
        )
    drawn = " ".join(place(*each) for each in points)
    if len(points) == 1:
        across, _, down = drawn.partition(",")
        lines.append(f'<circle class=dot cx="{across}" cy="{down}" r="3"/>')
    lines.append(f'<polyline class=line points="{drawn}"/>')
    lines.append(f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{_clock(first)}</text>')
    lines.append(f'<text x="{_WIDTH}" y="{_HEIGHT - 6}" text-anchor="end">{_clock(last)}</text>')
    return f'{head}<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(lines)}</svg>'


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return at most ``most`` points: the largest of each of that many groups."""
    if len(points) <= most:
        return list(points)
    found = []
    for index in range(most):
        group = points[len(points) * index // most : len(points) * (index + 1) // most]
        found.append(max(group, key=lambda point: point[1]))
    return found


def _number(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if value >= 1e4:
        return f"{value / 1e3:.3g} k"
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _span(samples: Sequence[Sample]) -> str:
    if not samples:
        return ""
    times = [each.at for each in samples]
    return f"From {_time(min(times))} to {_time(max(times))}."


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
