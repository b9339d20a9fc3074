"""Drawings of a variant's blocks: what a layer does to the residual stream, as plain data, as text and as SVG.

The data are read off a model on the meta device by running one of its layers, so that a drawing shows what the code
does, a plugin's too, and nothing is allocated.
"""

from .layers import compare
from .parts import Block, Drawing, Layer, Residual, Step, Together
from .reading import draw
from .svg import to_svg, to_svg_beside
from .text import to_text

__all__ = [
    "Block",
    "Drawing",
    "Layer",
    "Residual",
    "Step",
    "Together",
    "compare",
    "draw",
    "to_svg",
    "to_svg_beside",
    "to_text",
]
