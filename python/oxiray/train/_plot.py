"""Lines over reports, drawn as SVG without any library."""

from __future__ import annotations

from html import escape
from typing import Any

_WIDTH, _HEIGHT, _MARGIN = 640, 320, 48
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#bf3989")
#: Points of a line at most; of more, the mean of each stretch is drawn.
_POINTS_MAX = 1000


class Drawing:
    """A drawing of some metrics; `svg` is its text."""

    def __init__(self, rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
        known = sorted({name for row in rows for name, value in row.items() if _is_number(value)})
        unknown = [name for name in names if name not in known]
        if not names or unknown:
            raise ValueError(
                f"plot({', '.join(map(repr, names))}): there are numbers reported as {', '.join(known) or 'nothing'}; name some"
            )
        lines = {
            name: [(float(number), float(row[name])) for number, row in enumerate(rows, 1) if _is_number(row.get(name))]
            for name in names
        }
        self.lines = {name: _thinned(points) for name, points in lines.items()}
        self.svg = self._draw()

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Drawing({', '.join(f'{name}: {len(points)} points' for name, points in self.lines.items())})"

    def _draw(self) -> str:
        every = [point for points in self.lines.values() for point in points]
        left, right = min(x for x, _ in every), max(x for x, _ in every)
        low, high = min(y for _, y in every), max(y for _, y in every)
        across, up = (right - left) or 1.0, (high - low) or 1.0

        def place(x: float, y: float) -> str:
            return (
                f"{_MARGIN + (x - left) / across * (_WIDTH - 2 * _MARGIN):.1f},"
                f"{_HEIGHT - _MARGIN - (y - low) / up * (_HEIGHT - 2 * _MARGIN):.1f}"
            )

        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect x="{_MARGIN}" y="{_MARGIN}" width="{_WIDTH - 2 * _MARGIN}" height="{_HEIGHT - 2 * _MARGIN}" fill="none" stroke="#ccc"/>',
            f'<text x="{_MARGIN}" y="{_HEIGHT - _MARGIN + 16}">report {left:g}</text>',
            f'<text x="{_WIDTH - _MARGIN}" y="{_HEIGHT - _MARGIN + 16}" text-anchor="end">{right:g}</text>',
            f'<text x="{_MARGIN - 4}" y="{_HEIGHT - _MARGIN}" text-anchor="end">{low:.4g}</text>',
            f'<text x="{_MARGIN - 4}" y="{_MARGIN + 10}" text-anchor="end">{high:.4g}</text>',
        ]
        for number, (name, points) in enumerate(self.lines.items()):
            colour = _COLOURS[number % len(_COLOURS)]
            parts.append(
                f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{" ".join(place(*point) for point in points)}"/>'
            )
            parts.append(f'<text x="{_MARGIN + 8 + 120 * number}" y="{_MARGIN - 8}" fill="{colour}">{escape(name)}</text>')
        return "\n".join([*parts, "</svg>"]) + "\n"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and abs(value) != float("inf")


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    step = -(-len(points) // _POINTS_MAX)
    if step <= 1:
        return points
    stretches = [points[start : start + step] for start in range(0, len(points), step)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in stretches]
