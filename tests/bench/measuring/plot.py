"""Plots as SVG files, by hand: no plotting library is among the dependencies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT, _LEFT, _TOP = 900, 320, 60, 40
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2")
_NAMES_IN_A_ROW = 4


def delays_svg(title: str, worst_ms: Mapping[str, Sequence[float]]) -> str:
    """One line for each name: the worst delay (ms, logarithmic) of each second; seconds without any are 0 and left out."""
    highest = max((value for values in worst_ms.values() for value in values), default=1.0)
    decades = max(1, math.ceil(math.log10(max(highest, 1.0))))
    seconds = max((len(values) for values in worst_ms.values()), default=1)

    def place(second: int, value: float) -> str:
        x = _LEFT + second * _WIDTH / seconds
        return f"{x:.1f},{_TOP + _HEIGHT * (1 - max(0.0, math.log10(value)) / decades):.1f}"

    parts = [_text(_LEFT, 20, title)]
    for decade in range(decades + 1):
        y = _TOP + _HEIGHT * (1 - decade / decades)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(4, round(y) + 4, f"{10**decade:,} ms"))
    for number, (name, values) in enumerate(worst_ms.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(place(second, value) for second, value in enumerate(values) if value > 0)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        row, column = divmod(number, _NAMES_IN_A_ROW)
        parts.append(_text(_LEFT + 220 * column, _TOP + _HEIGHT + 40 + 20 * row, name, colour))
    parts.append(_text(_LEFT, _TOP + _HEIGHT + 20, f"worst of each second, over {seconds} s"))
    return _svg(parts)


def growth_svg(title: str, points: Sequence[tuple[int, float]]) -> str:
    """A rate (from 0 on) against what grows (logarithmic): points are (value, rate)."""
    highest = max((rate for _, rate in points), default=1.0)
    logs = [math.log10(max(value, 1)) for value, _ in points] or [0.0]
    span = max(logs) - min(logs) or 1.0
    places = [
        (_LEFT + 20 + (log - min(logs)) / span * (_WIDTH - 60), _TOP + _HEIGHT * (1 - rate / highest))
        for log, (_, rate) in zip(logs, points, strict=False)
    ]
    parts = [_text(_LEFT, 20, title)]
    for part in (0.0, 0.5, 1.0):
        y = _TOP + _HEIGHT * (1 - part)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(4, round(y) + 4, f"{highest * part:,.0f}"))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{_COLOURS[0]}"/>')
    for (x, y), (value, rate) in zip(places, points, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_COLOURS[0]}"/>')
        parts.append(_text(round(x) - 14, round(y) - 8, f"{rate:,.0f}"))
        parts.append(_text(round(x) - 14, _TOP + _HEIGHT + 20, f"{value:,}"))
    return _svg(parts)


def _svg(parts: Sequence[str]) -> str:
    size = f'width="{_LEFT + _WIDTH + 20}" height="{_TOP + _HEIGHT + 80}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(parts)}</svg>\n'


def _text(x: int, y: int, text: str, colour: str = "#333") -> str:
    return f'<text x="{x}" y="{y}" font-family="sans-serif" font-size="13" fill="{colour}">{text}</text>'
