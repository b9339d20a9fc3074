"""The layers of encoders and decoders."""

from __future__ import annotations

from torch import Tensor, nn

from .attention import Attention, Cache
from .config import Config, NoPlainForm
from .feed_forward import build_feed_forward
from .residual import Residual


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network (Vaswani et al. 2017, figure 1, left)."""

    def __init__(self, config: Config, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        if config.mixer != "attention":
            raise NoPlainForm("mixer")
        self.self_attn = Attention(config, layer_idx)
        if config.parallel_residual:
            self.residual = Residual(config)
        else:
            self.self_attn_residual = Residual(config, drops_skip="dropout-on-the-skip" in config.quirks)
        self.mlp = build_feed_forward(config)
        if not config.parallel_residual:
            self.mlp_residual = Residual(config, drops_skip="dropout-on-the-skip" in config.quirks)

    def forward(
        self, x: Tensor, mask: Tensor, bias: Tensor | None = None, rotation: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        if self.config.parallel_residual:
            # Both sublayers read one norm and are summed (Wang and Komatsuzaki 2021, GPT-J).
            return self.residual(x, lambda h: self.self_attn(h, mask, bias, rotation) + self.mlp(h))
        x = self.self_attn_residual(x, lambda h: self.self_attn(h, mask, bias, rotation))
        return self.mlp_residual(x, self.mlp)


class DecoderLayer(nn.Module):
    """Causal self-attention, then the feed-forward network (Vaswani et al. 2017, figure 1, right)."""

    def __init__(self, config: Config, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        if config.mixer != "attention":
            raise NoPlainForm("mixer")
        self.self_attn = Attention(config, layer_idx)
        if config.parallel_residual:
            self.residual = Residual(config)
        else:
            self.self_attn_residual = Residual(config)
        if config.add_cross_attention:
            if "cross-attention-reuses-self" not in config.quirks:
                self.cross_attn = Attention(config, layer_idx)
            if "feed-forward-reuses-cross-norm" not in config.quirks:
                self.cross_attn_residual = Residual(config)
        self.mlp = build_feed_forward(config)
        if not config.parallel_residual:
            self.mlp_residual = Residual(config)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        bias: Tensor | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
        cache: Cache | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        if self.config.parallel_residual:
            # Both sublayers read one norm and are summed (Wang and Komatsuzaki 2021, GPT-J).
            x = self.residual(x, lambda h: self.self_attn(h, mask, bias, rotation, cache) + self.mlp(h))
        else:
            x = self.self_attn_residual(x, lambda h: self.self_attn(h, mask, bias, rotation, cache))
        if self.config.add_cross_attention:
            if "cross-attention-reuses-self" in self.config.quirks:  # noqa: SIM108 - the comment is about one branch
                # The original's defect: cross attention runs with the weights of self-attention.
                attend = self.self_attn
            else:
                attend = self.cross_attn
            if "feed-forward-reuses-cross-norm" in self.config.quirks:
                # The original's defect: the norm after cross attention serves after the feed-forward network as well.
                x = self.mlp_residual(x, lambda h: attend(h, memory_mask, memory=memory))
            else:
                x = self.cross_attn_residual(x, lambda h: attend(h, memory_mask, memory=memory))
        if self.config.parallel_residual:
            return x
        return self.mlp_residual(x, self.mlp)
