"""Drawings of a variant's blocks: what a layer does to the residual stream, as plain data and as text.

The data are read off a model on the meta device by running one of its layers, so that a drawing shows what the code
does, whoever wrote it, and nothing is allocated.
"""

from .parts import Block, Drawing, Residual, Step, Together
from .text import to_text
from .variants import draw

__all__ = ["Block", "Drawing", "Residual", "Step", "Together", "draw", "to_text"]
