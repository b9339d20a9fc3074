"""The normalised Transformer."""

from zoo.models import Transformer, UnitEmbedding, UnitHead, ZooConfig


def ngpt(config: ZooConfig) -> Transformer:
    return Transformer(embedding=UnitEmbedding, head=UnitHead)
