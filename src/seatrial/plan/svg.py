"""A pipeline's timeline as an SVG picture that stands alone: no script, no font, no outside reference.

    svg.timeline(schedule.walk("1f1b", pp=4, microbatches=8, forward_s=1, backward_s=2), title="four stages")
"""
from __future__ import annotations

from html import escape

from seatrial.schedule import Kind, Timeline

COLOURS = {Kind.FORWARD: ("#4477aa", "#88aacc"), Kind.BACKWARD: ("#228833", "#77bb88"), Kind.WEIGHT: ("#ccbb44", "#ddd088")}
"""For the first virtual stage and for the later ones; told apart without colour by their letter."""
ROW, LEFT, TOP = 26, 64, 44


def timeline(made: Timeline, *, title: str, width: int = 1200) -> str:
    scale = (width - LEFT - 10) / made.total_s if made.total_s else 0.0
    height = TOP + ROW * len(made.ranks) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
    ]
    for rank, spans in enumerate(made.ranks):
        y = TOP + rank * ROW
        lines.append(f'<text x="10" y="{y + 16}">rank {rank}</text>')
        lines.append(f'<rect x="{LEFT}" y="{y}" width="{made.total_s * scale:.2f}" height="{ROW - 4}" fill="#eeeeee"/>')
        for span in spans:
            x, w = LEFT + span.start_s * scale, (span.end_s - span.start_s) * scale
            colour = COLOURS[span.action.kind][min(1, span.action.chunk)]
            lines.append(f'<rect x="{x:.2f}" y="{y}" width="{w:.2f}" height="{ROW - 4}" fill="{colour}" stroke="#ffffff" '
                         f'stroke-width="0.5"><title>{span.action}: {span.start_s:.4f} s to {span.end_s:.4f} s</title></rect>')
            label = str(span.action)
            if w > 7 * len(label):
                lines.append(f'<text x="{x + w / 2:.2f}" y="{y + 15}" text-anchor="middle" fill="#ffffff">{label}</text>')
    end = TOP + ROW * len(made.ranks) + 16
    lines.append(f'<text x="{LEFT}" y="{end}">0 s</text>')
    lines.append(f'<text x="{width - 10}" y="{end}" text-anchor="end">{made.total_s:.3f} s</text>')
    return "\n".join([*lines, "</svg>", ""])
