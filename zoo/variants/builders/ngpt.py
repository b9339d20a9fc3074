"""The normalised Transformer."""

from zoo.models import Transformer, UnitEmbedding, UnitHead, ZooConfig


def ngpt(config: ZooConfig) -> Transformer:
    """Decoder on the hypersphere: hidden states and weight vectors of length one, and learned steps between layers."""
    return Transformer(embedding=UnitEmbedding, head=UnitHead)
