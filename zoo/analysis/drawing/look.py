"""The colours of SVG drawings, on light and on dark paper; sublayers as in figure 1 of Vaswani et al. 2017."""

from __future__ import annotations

FILLS = {
    "embedding": ("#fbdfdf", "#5a3235"),
    "position": ("#e4f0da", "#344a26"),
    "inner-position": ("#e4f0da", "#344a26"),
    "attention": ("#ffe0b8", "#664619"),
    "cross-attention": ("#ffd0a0", "#6e3d12"),
    "mixer": ("#ffe9d6", "#5c3b2e"),
    "feed-forward": ("#c4e6f7", "#1d4a60"),
    "norm": ("#f1f3b9", "#4f5020"),
    "linear": ("#dcdfef", "#3b3f63"),
    "dropout": ("#eceff2", "#30363d"),
    "scale": ("#ead9f2", "#4b3159"),
    "rule": ("#eceff2", "#30363d"),
    "other": ("#d8efe6", "#204b3d"),
    "paper": ("#ffffff", "#0d1117"),
    "frame": ("#f6f8fa", "#161b22"),
    "card": ("#eceff3", "#12161c"),
    "sum": ("#ffffff", "#0d1117"),
    "dot": ("#424a53", "#aeb6c0"),
    "text": ("#1f2328", "#f0f3f6"),
    "soft": ("#4f5862", "#c0c8d1"),
    "quirk-text": ("#8a3b00", "#ffb77c"),
    "badge-text": ("#ffffff", "#0d1117"),
    "only": ("#0a58c2", "#79b8ff"),
    "changed": ("#8a3ab9", "#d2a8ff"),
}
"""Fill colours of areas and letters."""

STROKES = {
    "box": ("#57606a", "#8b949e"),
    "frame": ("#afb8c1", "#484f58"),
    "card": ("#c9d1d9", "#30363d"),
    "divider": ("#c9d1d9", "#30363d"),
    "sum": ("#424a53", "#aeb6c0"),
    "wire": ("#424a53", "#aeb6c0"),
    "shared": ("#8a3ab9", "#d2a8ff"),
    "quirk": ("#bc4c00", "#f0883e"),
    "outline-only": ("#0a58c2", "#79b8ff"),
    "outline-changed": ("#8a3ab9", "#d2a8ff"),
}
"""Colours of lines."""

SHAPES = """
.zoo-drawing text{font-family:system-ui,-apple-system,"Segoe UI","Helvetica Neue",Arial,"Liberation Sans",sans-serif}
.zoo-drawing .bold{font-weight:600}
.zoo-drawing .box{stroke-width:1.2}
.zoo-drawing path.wire,.zoo-drawing path.shared,.zoo-drawing path.divider{fill:none}
.zoo-drawing .wire{stroke-width:1.5}
.zoo-drawing .shared{stroke-width:1.5;stroke-dasharray:2 4;stroke-linecap:round}
.zoo-drawing .quirk{stroke-width:2;stroke-dasharray:6 3}
.zoo-drawing .sum,.zoo-drawing .frame,.zoo-drawing .card{stroke-width:1.3}
.zoo-drawing .outline-only{fill:none;stroke-width:2.6}
.zoo-drawing .outline-changed{fill:none;stroke-width:2.6;stroke-dasharray:9 4}
"""


def style_sheet() -> str:
    """Write the rules for both kinds of paper."""
    return f"{rules(0)}{SHAPES}@media (prefers-color-scheme:dark){{\n{rules(1)}}}\n"


def rules(paper: int) -> str:
    """Write the colours for one kind of paper."""
    colours = [(name, "fill", pair) for name, pair in FILLS.items()]
    colours += [(name, "stroke", pair) for name, pair in STROKES.items()]
    return "".join(f".zoo-drawing .{name}{{{key}:{pair[paper]}}}\n" for name, key, pair in colours)
