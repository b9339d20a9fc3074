"""The layers of encoders and decoders."""

from __future__ import annotations

from torch import Tensor, nn

from .attention import Cache, build_attention
from .config import Config
from .feed_forward import build_feed_forward
from .mixers import build_mixer
from .streams import build_residual


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network (Vaswani et al. 2017, figure 1)."""

    def __init__(self, config: Config, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        if config.step_embeddings:
            # A vector for each time that the layer is applied (Dehghani et al. 2019, section 2.1).
            self.step_embedding = nn.Embedding(config.num_hidden_layers, config.hidden_size)
        self.self_attn = build_attention(config, layer_idx, extra_bias=config.encoder_attention_bias)
        if config.parallel_residual:
            self.residual = build_residual(config, layer_idx, opens_layer=True)
        else:
            self.self_attn_residual = build_residual(
                config,
                layer_idx,
                opens_layer=True,
                norms_branch=config.attention_branch_norm,
                drops_skip="dropout-on-the-skip" in config.quirks,
                drops=config.attention_branch_dropout,
            )
        self.mlp = build_feed_forward(config, layer_idx)
        if not config.parallel_residual:
            self.mlp_residual = build_residual(config, layer_idx, drops_skip="dropout-on-the-skip" in config.quirks)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        bias: Tensor | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
        earlier: Cache | None = None,
        cache: Cache | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        if self.config.parallel_residual:
            # Both sublayers read one norm and are summed (Wang and Komatsuzaki 2021, GPT-J).
            return self.residual(x, lambda h: self.self_attn(h, mask, bias, rotation, earlier=earlier) + self.mlp(h))
        x = self.self_attn_residual(x, lambda h: self.self_attn(h, mask, bias, rotation, earlier=earlier))
        return self.mlp_residual(x, self.mlp)


class DecoderLayer(nn.Module):
    """Causal self-attention, then a feed-forward network (Vaswani et al. 2017, figure 1)."""

    def __init__(self, config: Config, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        if config.step_embeddings:
            # A vector for each time that the layer is applied (Dehghani et al. 2019, section 2.1).
            self.step_embedding = nn.Embedding(config.num_hidden_layers, config.hidden_size)
        if config.mixer == "attention":
            self.self_attn = build_attention(config, layer_idx)
        else:
            # Some layers have attention, the others a memory of constant size.
            self.has_attention = config.layer_types[layer_idx] in ("full_attention", "sliding_attention")
            self.self_attn = build_attention(config, layer_idx) if self.has_attention else build_mixer(config)
        if config.parallel_residual:
            self.residual = build_residual(config, layer_idx, opens_layer=True)
        else:
            self.self_attn_residual = build_residual(
                config,
                layer_idx,
                opens_layer=True,
                norms_branch=config.attention_branch_norm,
                stands_bare="self-attention-stands-bare" in config.quirks,
            )
        if config.add_cross_attention:
            if "cross-attention-reuses-self" not in config.quirks:
                self.cross_attn = build_attention(config, layer_idx, is_cross=True)
            if "feed-forward-reuses-cross-norm" not in config.quirks:
                self.cross_attn_residual = build_residual(config, layer_idx, norms_branch=config.attention_branch_norm)
        self.mlp = build_feed_forward(config, layer_idx)
        if not config.parallel_residual:
            self.mlp_residual = build_residual(config, layer_idx)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        bias: Tensor | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
        earlier: Cache | None = None,
        cache: Cache | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        has_attention = self.config.mixer == "attention" or self.has_attention
        if self.config.parallel_residual and has_attention:
            # Both sublayers read one norm and are summed (Wang and Komatsuzaki 2021, GPT-J).
            x = self.residual(
                x, lambda h: self.self_attn(h, mask, bias, rotation, cache, earlier=earlier) + self.mlp(h)
            )
        elif self.config.parallel_residual:
            x = self.residual(x, lambda h: self.self_attn(h, cache=cache) + self.mlp(h))
        elif has_attention:
            x = self.self_attn_residual(x, lambda h: self.self_attn(h, mask, bias, rotation, cache, earlier=earlier))
        else:
            x = self.self_attn_residual(x, lambda h: self.self_attn(h, cache=cache))
        if self.config.add_cross_attention:
            if "cross-attention-reuses-self" in self.config.quirks:  # noqa: SIM108 - the comment is about one branch
                # The original's defect: cross attention uses the weights of self-attention.
                attend = self.self_attn
            else:
                attend = self.cross_attn
            if "feed-forward-reuses-cross-norm" in self.config.quirks:
                # The original's defect: one norm for both cross attention and the feed-forward network.
                x = self.mlp_residual(x, lambda h: attend(h, memory_mask, memory=memory))
            else:
                x = self.cross_attn_residual(x, lambda h: attend(h, memory_mask, memory=memory))
        if self.config.parallel_residual:
            return x
        return self.mlp_residual(x, self.mlp)
