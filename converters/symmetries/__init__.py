"""Exact symmetries: two models of the zoo with different settings and weights that compute the same.

A class of transformers can express a model if symmetries lead from the model's settings to ones that the class has.
Each symmetry changes one setting, and the settings and weights that go with it. Weights are
named as in a model with a head: `model.layers.0.self_attn.q_proj.weight`.
"""

from . import numerics, structure
from .base import SYMMETRIES, Route, Step, Symmetry, find_route

__all__ = ["SYMMETRIES", "Route", "Step", "Symmetry", "find_route", "numerics", "structure"]
