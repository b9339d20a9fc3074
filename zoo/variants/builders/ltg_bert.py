"""A defect of the first code of LTG-BERT."""

import torch
from torch import Tensor

from zoo.models.attentions.disentangled import DisentangledAttention


class OtherRowsAttention(DisentangledAttention):
    """Disentangled attention with the rows of both projections, one after the other, split into twice as wide heads.

    A head's first half is its query of a position and its second half the key, where contents have all queries first.
    """

    def places(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([queries, keys], dim=-1).unflatten(-1, (-1, 2 * self.head_dim)).transpose(1, 2)
        query, key = both.chunk(2, dim=-1)
        return query, key
