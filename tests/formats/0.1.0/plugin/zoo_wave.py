"""A plugin for version 1 of the interface."""

from zoo.registry import register

register(
    "wave-decoder",
    "A decoder of a plugin.",
    tasks=("causal-lm",),
    source="tests/formats",
    defaults={"norm_placement": "pre", "position": "sinusoidal"},
)
