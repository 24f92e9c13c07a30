# SPDX-License-Identifier: GPL-2.0-or-later
"""Line charts as SVG, without any library."""

import math
from xml.sax.saxutils import escape

NAMESPACE = "http://www.w3.org" + "/2000/svg"  # a name; nothing is fetched from there
WIDTH, HEIGHT = 860, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 150, 44, 52
COLOURS = {
    "larder": "#c2185b",
    "rawssd": "#757575",
    "rawhdd": "#212121",
    "linear": "#bdbdbd",
    "bcache": "#1565c0",
    "dmcache": "#2e7d32",
    "writecache": "#ef6c00",
    "writeboost": "#6a1b9a",
}
Points = list[tuple[float, float]]


def short(x: float) -> str:
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if x >= limit:
            return f"{x / limit:g}{unit}"
    return f"{x:g}"


class Axis:
    """Maps values to pixels."""

    def __init__(self, low: float, high: float, begin: float, end: float, log: bool):
        self.log, self.begin, self.end = log, begin, end
        self.low, self.high = (low, high) if high > low else (low, low + 1)
        if log:
            self.low, self.high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high * 1.0001))

    def at(self, x: float) -> float:
        if self.log:
            share = math.log10(max(x, self.low) / self.low) / math.log10(self.high / self.low)
        else:
            share = (x - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        if self.log:
            n = round(math.log10(self.high / self.low))
            return [self.low * 10**i for i in range(n + 1)]
        raw = (self.high - self.low) / 6
        step = 10 ** math.floor(math.log10(raw))
        step *= next(m for m in (1, 2, 5, 10) if step * m >= raw)
        first = math.ceil(self.low / step)
        return [step * i for i in range(first, int(self.high / step) + 1)]


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def lines(title: str, x_title: str, y_title: str, series: dict[str, Points], x_ticks: list[float] | None = None) -> str:
    """A line per series, y logarithmic.  x_ticks: x is not a number to scale, but one of these."""
    points = [p for s in series.values() for p in s if p[1] > 0]
    if x_ticks:
        series = {n: [(x_ticks.index(x), y) for x, y in s] for n, s in series.items()}
        across = Axis(0, len(x_ticks) - 1, LEFT + 20, WIDTH - RIGHT - 20, False)
        marks = [(i, short(t)) for i, t in enumerate(x_ticks)]
    else:
        across = Axis(0, max(p[0] for p in points), LEFT, WIDTH - RIGHT, False)
        marks = [(t, short(t)) for t in across.ticks()]
    up = Axis(min(p[1] for p in points), max(p[1] for p in points), HEIGHT - BOTTOM, TOP, True)
    out = []
    out.append(f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">')
    out.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>')
    out.append(_text(LEFT, 24, title, "start", 'font-size="15" font-weight="bold"'))
    for t in up.ticks():
        y = up.at(t)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>' + _text(LEFT - 8, y + 4, short(t), "end"))
    for t, label in marks:
        out.append(_text(across.at(t), HEIGHT - BOTTOM + 18, label))
    out.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_title))
    out.append(
        _text(18, (TOP + HEIGHT - BOTTOM) / 2, y_title, "middle", f'transform="rotate(-90 18 {(TOP + HEIGHT - BOTTOM) / 2:.0f})"')
    )
    for i, (name, values) in enumerate(series.items()):
        colour = COLOURS.get(name, "#000")
        where = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in values)
        width = 3 if name == "larder" else 1.5
        out.append(f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        y = TOP + 14 + 20 * i
        out.append(f'<path d="M{WIDTH - RIGHT + 12} {y - 4}h22" stroke="{colour}" stroke-width="{width}"/>')
        out.append(_text(WIDTH - RIGHT + 40, y, name, "start"))
    return "\n".join([*out, "</svg>", ""])
