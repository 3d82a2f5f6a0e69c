"""Plots as SVG: specified with Altair, drawn by vl-convert, coloured by the page's own style, so that they follow its theme.

Nothing that a file says in words gets into a plot. Colours are CSS variables; what a mouse rests on is titled.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import vl_convert

from olmorl_cli.report.data import ALIKE, ALL_HIGH, ALL_LOW, KEPT, UNSCORED, Points, Spread
from olmorl_cli.report.story import number, percent

WIDTH, HEIGHT = 300, 130
STEP = "step"
_FONT = "system-ui, sans-serif"
_TITLED = re.compile(r'<path aria-label="([^"]*)" role="graphics-symbol"[^>]*?( transform=[^>]*?)/>')
_NAMESPACES = re.compile(r' xmlns(:xlink)?="[^"]*"')
_SPOKEN = re.compile(r' (aria-hidden|role|aria-roledescription|class)="[^"]*"')

OUTCOME_COLOURS = {KEPT: "kept", ALL_HIGH: "right", ALL_LOW: "wrong", ALIKE: "alike", UNSCORED: "unscored"}


@dataclass(frozen=True)
class Series:
    """A line of a plot.

    Attributes:
        name: what it is called; "" for a plot's only one.
        values: float64 (B,).
        colour: a variable of the page's style.
    """

    name: str
    values: np.ndarray
    colour: str = "line"


def svg_of(chart: alt.TopLevelMixin, label: str) -> str:
    """The plot as SVG to stand inside HTML, read out as `label`."""
    text = vl_convert.vegalite_to_svg(chart.to_dict())
    text = _TITLED.sub(r"<path\2><title>\1</title></path>", _NAMESPACES.sub("", text))
    head, mark, rest = text.partition(">")
    rest = re.sub(r'<path d="M0,0h0v0h0Z" pointer-events="none"/>', "", _SPOKEN.sub("", rest))
    size = re.sub(r' (version|class|width|height)="[^"]*"', "", head)
    return f'{size} role="img" aria-label="{label}"{mark}{rest}'


def _var(name: str) -> str:
    return f"var(--{name})"


def _themed(chart: Any, height: int = HEIGHT) -> alt.TopLevelMixin:
    """The chart with the page's colours and measures."""
    themed: alt.TopLevelMixin = (
        chart.properties(width=WIDTH, height=height, background="transparent")
        .configure(font=_FONT, padding=4)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_var("muted"),
            titleColor=_var("muted"),
            gridColor=_var("grid"),
            domainColor=_var("axis"),
            tickColor=_var("axis"),
            titleFontWeight="normal",
            labelFontSize=11,
            titleFontSize=11,
            tickSize=3,
        )
    )
    return themed


def _rows(**columns: Any) -> list[dict[str, Any]]:
    """Columns (n,) as rows; what is not finite is left out of a line, as null."""
    clean = [
        [value if np.isfinite(value) else None for value in c.tolist()] if isinstance(c, np.ndarray) else list(c)
        for c in columns.values()
    ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*clean, strict=True)]


def _data(rows: list[dict[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=rows)


def _x(points: Points, **more: Any) -> alt.X:
    left, right = _edges(points.x)
    scale = alt.Scale(domain=[float(left[0]), float(right[-1])], nice=False, zero=False)
    title = STEP if points.numeric else "step, in order"
    axis = alt.Axis(title=title, grid=False, values=ticks(points.x), format="~d" if _whole(points.x) else "~g")
    return alt.X("x:Q", scale=scale, axis=axis, **more)


def ticks(x: np.ndarray) -> list[float]:
    """The steps that are named below a plot of steps (B,), ascending: round ones, and the last.

    >>> ticks(np.arange(40.0))
    [0.0, 10.0, 20.0, 30.0, 39.0]
    """
    first, last = float(x[0]), float(x[-1])
    width = (last / 4.0 - first / 4.0) if np.isfinite(first) else 0.0
    if not 0.0 < width < np.inf:
        return [last]
    power = 10.0 ** np.floor(np.log10(width))
    apart = power * next(times for times in (1.0, 2.0, 5.0, 10.0, 20.0) if times * power >= width)
    apart = max(apart, 1.0) if _whole(x) else apart
    rounded = np.arange(np.ceil(first / apart), np.floor(last / apart) + 1.0) * apart
    return [*rounded[rounded <= last - apart / 2.0].tolist(), last]


def _upright(shown: str, **more: Any) -> alt.Axis:
    """An axis of values, written as this format of D3 has them, one by one: 0 is 0."""
    labels = f"datum.value == 0 ? '0' : format(datum.value, '{shown}')"
    return alt.Axis(title=None, tickCount=4, labelExpr=labels, domain=False, ticks=False, **more)


def _whole(x: np.ndarray) -> bool:
    return bool((x == np.rint(x)).all())


def _edges(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each point's bar begins and ends: as wide as most steps lie apart, and narrower only where they lie closer."""
    half = float(np.median(np.diff(x))) / 2.0 if x.size > 1 else 0.5
    middles = (x[1:] + x[:-1]) / 2.0
    return np.maximum(x - half, np.append(-np.inf, middles)), np.minimum(x + half, np.append(middles, np.inf))


def _hover(points: Points, titles: Sequence[str]) -> alt.Chart:
    """Invisible bars over the whole height that say what stands below them."""
    left, right = _edges(points.x)
    rows = _rows(x=left, x2=right, said=titles)
    bars = alt.Chart(_data(rows)).mark_rect(fill=_var("line"), opacity=0)
    hover: alt.Chart = bars.encode(x=alt.X("x:Q"), x2="x2:Q", y=alt.value(0), y2=alt.value(HEIGHT), description="said:N")
    return hover


def _titles(points: Points, series: Sequence[Series], share: bool) -> list[str]:
    """What is said of each point."""
    show = percent if share else number
    values = [
        [f"{each.name} {show(value) if np.isfinite(value) else number(value)}".strip() for value in each.values]
        for each in series
    ]
    return [f"{STEP} {x:g}: {', '.join(said)}" for x, *said in zip(points.x, *values, strict=True)]


def lines(points: Points, series: Sequence[Series], label: str, *, share: bool = False) -> str:
    """Lines over the steps; `share` writes the axis in percent."""
    most = max((float(np.nanmax(np.abs(each.values), initial=0.0)) for each in series), default=0.0)
    shown = "~%" if share else "~e" if 0.0 < most < 1e-3 or most >= 1e6 else "~g"
    y = alt.Y("y:Q", axis=_upright(shown), scale=alt.Scale(zero=True, nice=True))
    layers: list[Any] = []
    for each in series:
        chart = alt.Chart(_data(_rows(x=points.x, y=each.values)))
        layers.append(chart.mark_line(stroke=_var(each.colour), strokeWidth=1.8, aria=False).encode(x=_x(points), y=y))
        if points.x.size == 1:
            layers.append(chart.mark_point(fill=_var(each.colour), filled=True, aria=False).encode(x=_x(points), y=y))
    return svg_of(_themed(alt.layer(*layers, _hover(points, _titles(points, series, share)))), label)


def stacked(points: Points, names: Mapping[int, str], label: str) -> str:
    """The shares of the outcomes of the groups over the steps, one upon another."""
    left, right = _edges(points.x)
    shares = points.outcome_shares
    order = [code for code in (KEPT, ALIKE, UNSCORED, ALL_LOW, ALL_HIGH) if code in names]
    tops = np.cumsum(shares[:, order], axis=1)
    layers: list[Any] = []
    for place, code in enumerate(order):
        bottom = tops[:, place - 1] if place else np.zeros(points.x.size)
        rows = _rows(x=left, x2=right, y=bottom, y2=tops[:, place])
        y = alt.Y("y:Q", axis=_upright("~%"), scale=alt.Scale(domain=[0, 1]))
        mark = alt.Chart(_data(rows)).mark_rect(fill=_var(OUTCOME_COLOURS[code]), aria=False)
        layers.append(mark.encode(x=_x(points), x2="x2:Q", y=y, y2="y2:Q"))
    series = [Series(names[code], shares[:, code]) for code in order]
    return svg_of(_themed(alt.layer(*layers, _hover(points, _titles(points, series, True)))), label)


def bars(spread: Spread, label: str, title: str) -> str:
    """A histogram of one series."""
    counts = spread.counts[0]
    said = _said(spread)
    few = {"values": list(range(int(counts.max()) + 1))} if counts.max() < 5 else {}  # no parts of an answer
    y = alt.Y("y:Q", axis=_upright("~s", **few))
    alone = {"values": spread.edges.tolist()} if spread.edges.size == 1 else {"tickCount": 6}
    axis = alt.Axis(title=title, grid=False, format="~g", **alone)
    if spread.discrete:
        rows = _rows(x=spread.edges, y=counts.astype(np.float64), said=said)
        width = max(2, min(28, WIDTH // (2 * counts.size)))
        mark = alt.Chart(_data(rows)).mark_bar(fill=_var("line"), width=width)
        chart = mark.encode(x=alt.X("x:Q", axis=axis, scale=_padded(spread.edges)), y=y, description="said:N")
    else:
        rows = _rows(x=spread.edges[:-1], x2=spread.edges[1:], y=counts.astype(np.float64), said=said)
        mark = alt.Chart(_data(rows)).mark_bar(fill=_var("line"), stroke=_var("paper"), strokeWidth=0.5)
        x = alt.X("x:Q", axis=axis, scale=alt.Scale(nice=False, zero=False))
        chart = mark.encode(x=x, x2="x2:Q", y=y, description="said:N")
    return svg_of(_themed(chart), label)


def _padded(values: np.ndarray) -> alt.Scale:
    """A scale that leaves room for the outermost bars."""
    low, high = float(values[0]), float(values[-1])
    room = (high - low) * 0.08 or abs(low) * 0.5 or 1.0
    return alt.Scale(domain=[low - room, high + room], nice=False, zero=False)


def _said(spread: Spread) -> list[str]:
    counts = spread.counts[0].tolist()
    if spread.discrete:
        return [f"{number(float(x))}: {n:,}" for x, n in zip(spread.edges, counts, strict=True)]
    bounds = zip(spread.edges[:-1], spread.edges[1:], strict=True)
    return [f"{number(float(a))} to {number(float(b))}: {n:,}" for (a, b), n in zip(bounds, counts, strict=True)]


def ratios(spread: Spread, bounds: Sequence[float], label: str) -> str:
    """Log-ratios where A < 0 and where A > 0, counts on a log scale; `bounds` are the clip's, as log-ratios."""
    layers: list[Any] = []
    x = alt.X(
        "x:Q",
        axis=alt.Axis(title="log ratio", grid=False, tickCount=7, format="~g"),
        scale=alt.Scale(domain=[float(spread.edges[0]), float(spread.edges[-1])], nice=False),
    )
    y = alt.Y(
        "y:Q",
        axis=_upright("~s"),
        scale=alt.Scale(type="log", domain=[0.7, max(10.0, float(spread.counts.max()))], nice=False),
    )
    for counts, colour in zip(spread.counts, ("negative", "positive"), strict=True):
        rows = _rows(x=np.repeat(spread.edges, 2)[1:-1], y=np.maximum(np.repeat(counts, 2), 0.7).astype(np.float64))
        mark = alt.Chart(_data(rows)).mark_line(stroke=_var(colour), strokeWidth=1.6, aria=False)
        layers.append(mark.encode(x=x, y=y))
    inside = [{"x": bound} for bound in bounds if spread.edges[0] < bound < spread.edges[-1]]
    if inside:
        rules = alt.Chart(_data(inside)).mark_rule(stroke=_var("ink"), strokeDash=[3, 3], aria=False)
        layers.append(rules.encode(x=x))
    rows = _rows(x=spread.edges[:-1], x2=spread.edges[1:], said=_said_ratios(spread))
    hover = alt.Chart(_data(rows)).mark_rect(fill=_var("line"), opacity=0)
    layers.append(hover.encode(x=x, x2="x2:Q", y=alt.value(0), y2=alt.value(HEIGHT), description="said:N"))
    return svg_of(_themed(alt.layer(*layers)), label)


def _said_ratios(spread: Spread) -> list[str]:
    return [
        f"{number(float(a), 3)} to {number(float(b), 3)}: {below:,} where A < 0, {above:,} where A > 0"
        for a, b, below, above in zip(spread.edges[:-1], spread.edges[1:], *spread.counts.tolist(), strict=True)
    ]
