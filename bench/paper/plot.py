"""Drawings as SVG: lines, bands and bars on even or logarithmic axes, legible on light and dark pages."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 250
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 30, 40

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333; }
.title { font-size: 13px; font-weight: 600; }
.grid { stroke: #ddd; stroke-width: 1; }
.frame { stroke: #888; fill: none; }
.line { fill: none; stroke-width: 1.6; }
.a { stroke: #0b62c4; fill: #0b62c4; } .b { stroke: #c8501e; fill: #c8501e; } .c { stroke: #1b8a4b; fill: #1b8a4b; }
.line.a, .line.b, .line.c { fill: none; }
.band { stroke: none; opacity: .35; }
@media (prefers-color-scheme: dark) {
  text { fill: #ccc; } .grid { stroke: #3a3a3a; } .frame { stroke: #777; }
  .a { stroke: #6aaeff; fill: #6aaeff; } .b { stroke: #ff9a6a; fill: #ff9a6a; } .c { stroke: #5fd08f; fill: #5fd08f; }
}
"""


class Chart:
    """A plot with its axes fitted to what is drawn in it, unless `y` gives a range."""

    def __init__(self, x_label, y_label, title="", logarithmic=False, y=None):
        self.x_label, self.y_label, self.title, self.logarithmic, self.y = x_label, y_label, title, logarithmic, y
        self.marks = []

    def line(self, points, kind, name=""):
        self.marks.append(("line", points, kind, name))

    def band(self, points, kind, name=""):
        """An area between two values: (x, low, high)."""
        self.marks.append(("band", points, kind, name))

    def bounds(self):
        xs = [point[0] for _, points, _, _ in self.marks for point in points]
        ys = [value for _, points, _, _ in self.marks for point in points for value in point[1:]]
        low, high = self.y or (min(ys), max(ys))
        if self.logarithmic:
            low, high = 10 ** math.floor(math.log10(low) + 1e-9), 10 ** math.ceil(math.log10(high) - 1e-9)
        elif not self.y:
            room = (high - low or abs(high) or 1) * 0.08
            low, high = (0 if low >= 0 and low - room < 0 else low - room), high + room
        if high <= low:
            high = low * 10 if self.logarithmic else low + 1
        return min(xs), max(xs), low, high

    def svg(self, top):
        x0, x1, y0, y1 = self.bounds()
        x1 = x1 if x1 > x0 else x0 + 1
        scale = math.log10 if self.logarithmic else float
        wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

        def across(x):
            return round(LEFT + (x - x0) / (x1 - x0) * wide, 1)

        def up(y):
            y = min(max(y, y0), y1)
            return round(top + TOP + (1 - (scale(y) - scale(y0)) / (scale(y1) - scale(y0))) * tall, 1)

        out = [f'<text class="title" x="{LEFT}" y="{top + 18}">{escape(self.title)}</text>'] if self.title else []
        for tick in even(x0, x1):
            out.append(f'<line class="grid" x1="{across(tick)}" x2="{across(tick)}" y1="{top + TOP}" y2="{top + TOP + tall}"/>'
                       f'<text x="{across(tick)}" y="{top + TOP + tall + 16}" text-anchor="middle">{label(tick)}</text>')
        for tick in powers(y0, y1) if self.logarithmic else even(y0, y1):
            out.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + wide}" y1="{up(tick)}" y2="{up(tick)}"/>'
                       f'<text x="{LEFT - 6}" y="{up(tick) + 4}" text-anchor="end">{label(tick)}</text>')
        names = []
        for form, points, kind, name in self.marks:
            if form == "line":
                path = "M" + "L".join(f"{across(x)} {up(y)}" for x, y in points)
                out.append(f'<path class="line {kind}" d="{path}"/>')
            else:
                there = [f"{across(x)} {up(high)}" for x, _, high in points]
                back = [f"{across(x)} {up(low)}" for x, low, _ in reversed(points)]
                out.append(f'<path class="band {kind}" d="M{"L".join(there + back)}Z"/>')
            if name:
                names.append((name, kind))
        out.append(f'<rect class="frame" x="{LEFT}" y="{top + TOP}" width="{wide}" height="{tall}"/>')
        out.append(f'<text x="{LEFT + wide / 2}" y="{top + HEIGHT - 6}" text-anchor="middle">{escape(self.x_label)}</text>')
        middle = top + TOP + tall / 2
        out.append(f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
                   f'{escape(self.y_label)}</text>')
        at = LEFT + wide
        for name, kind in reversed(names):   # from the right, above the plot
            out.append(f'<text x="{at}" y="{top + 18}" text-anchor="end">{escape(name)}</text>')
            at -= 7 * len(name) + 14
            out.append(f'<rect class="{kind}" x="{at}" y="{top + 9}" width="9" height="9"/>')
            at -= 14
        return "\n".join(out)


def steps(values, width, first=0.0):
    """Returns the outline of a step function. Steps between equal values are left out."""
    points = []
    for place, value in enumerate(values):
        if points and points[-1][1] == value:
            points.pop()
        else:
            points.append((first + place * width, value))
        points.append((first + (place + 1) * width, value))
    return points


def even(low, high):
    """Ticks at 1, 2 or 5 times a power of ten, about six."""
    step = 10 ** math.floor(math.log10((high - low) / 6))
    step *= next(times for times in (1, 2, 5, 10) if (high - low) / (step * times) <= 7)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def powers(low, high):
    return [10.0 ** power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]


def label(value):
    return f"{value:g}"


def page(charts, description):
    """The drawing of charts below each other."""
    height = HEIGHT * len(charts)
    body = "\n".join(chart.svg(HEIGHT * place) for place, chart in enumerate(charts))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img">\n<title>{escape(description)}</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n')
