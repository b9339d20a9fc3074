"""How wide a model is next to the base of muP, and how large its matrices begin for that."""

from .configuration import ZooConfig

BASE_WIDTH = 256  # The hidden size at which muP is the standard parametrization, by default (`mup_base_width`)


def width_factor(config: ZooConfig) -> float:
    """How many times wider than the base a model is."""
    return config.hidden_size / float(getattr(config, "mup_base_width", BASE_WIDTH))


def applied_factor(config: ZooConfig) -> float:
    """The width factor in muP, and 1 for all other initial values."""
    return width_factor(config) if config.initializer == "mup" else 1.0


def vector_width(config: ZooConfig) -> float:
    """Width by which modules draw vectors of positions: the model's; in muP, where they do not shrink, the base's."""
    return config.hidden_size / applied_factor(config)


def matrix_std(config: ZooConfig) -> float:
    """Standard deviation of a new hidden matrix; in muP divided by the root of the width factor (table 8)."""
    return float(config.initializer_range / applied_factor(config) ** 0.5)
