"""A plain form of a norm that is wrong on purpose."""

from torch import Tensor, nn


class DoubledNorm(nn.LayerNorm):
    """Twice the norm."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)
