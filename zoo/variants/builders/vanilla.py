"""The "vanilla" Transformer: a post-norm encoder-decoder with learned positions, and a classifier on its encoder."""

from typing import Any

import torch
from torch import Tensor, nn

from zoo.base.errors import ConfigError
from zoo.fast.attention_backends import added_mask
from zoo.fast.modules import Identity
from zoo.models import Attention, DecoderLayer, EncoderLayer, Residual, Transformer, ZooConfig
from zoo.models.attention import Mixed
from zoo.models.borrowing import Borrower

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")

TOKEN_BY_TOKEN = {
    "scores-scaled-by-model-width",
    "cross-attention-reuses-self",
    "feed-forward-reuses-cross-norm",
    "dropout-on-the-skip",
    "torch-initialization",
}
"""Quirks with which only attention looks beyond one token, so that padding may be taken out."""


class UniformMaskedRows(Attention):
    """Attention in which a query without any visible key attends to all keys alike."""

    supports_unpadding = False
    backends = ("eager",)  # the only one that adds a finite number to masked scores: a row of them stays a softmax

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any) -> Mixed:
        if attention_mask is not None:
            attention_mask = added_mask(attention_mask, query.dtype)
            sees_nothing = (attention_mask <= torch.finfo(attention_mask.dtype).min / 2).all(dim=-1, keepdim=True)
            query = query.masked_fill(sees_nothing, 0.0)
        return super().attend(query, key, value, attention_mask, **kwargs)


class BorrowingAttention(Borrower, Attention):
    """Cross attention that projects with the modules of self-attention."""


class BorrowingUniformMaskedRows(Borrower, UniformMaskedRows):
    """The same where masked rows are uniform, too."""


BORROWING: dict[type[Attention], type[BorrowingAttention] | type[BorrowingUniformMaskedRows]] = {
    Attention: BorrowingAttention,
    UniformMaskedRows: BorrowingUniformMaskedRows,
}


class BorrowingResidual(Borrower, Residual):
    """The residual connection of cross attention, with the norm of the feed-forward network's."""


class VanillaEncoderLayer(EncoderLayer):
    """A post-norm layer; with the quirk, dropout falls on the skip connection instead of the branch."""

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        if config.has_quirk("dropout-on-the-skip"):
            for residual in (self.self_attn_residual, self.mlp_residual):
                residual.skip, residual.dropout = residual.dropout, Identity()


class VanillaDecoderLayer(DecoderLayer):
    """A post-norm layer; with the quirks, modules of an earlier sublayer serve a later one as well."""

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        dead: dict[str, nn.Module] = {}
        if config.has_quirk("cross-attention-reuses-self"):
            dead = {name: getattr(self.cross_attn, name) for name in PROJECTIONS}
            borrowing = BORROWING.get(type(self.cross_attn))
            if borrowing is None:
                raise ConfigError(
                    f"attention={config.attention!r} was given; with the quirk cross-attention-reuses-self it can be "
                    "'multi-head' or 'masked-rows-uniform'"
                )
            self.cross_attn = borrowing(config, layer_idx, is_cross=True)
            self.cross_attn.borrow(self.self_attn, *PROJECTIONS)
        if config.has_quirk("feed-forward-reuses-cross-norm"):
            require_plain_residual(config, "feed-forward-reuses-cross-norm")
            dead["norm"] = self.mlp_residual.norm_out
            self.mlp_residual.norm_out = self.cross_attn_residual.norm_out
            self.cross_attn_residual = BorrowingResidual(**dict(self.cross_attn_residual.named_children()))
            self.cross_attn_residual.borrow(self.mlp_residual, "norm_out")
        if getattr(config, "keep_dead", False):
            self.dead = nn.ModuleDict(dead)


def require_plain_residual(config: ZooConfig, quirk: str) -> None:
    """Refuse other residual parts with a quirk that replaces a connection: their streams may be several vectors."""
    if config.residual != "plain":
        raise ConfigError(f"residual={config.residual!r} was given; with the quirk {quirk} it must be 'plain'")


def mask_from_ids(attention_mask: Any, input_ids: Tensor | None, config: ZooConfig) -> Any:
    """The given mask, or else every id but `pad_token_id`."""
    if attention_mask is None and input_ids is not None and config.pad_token_id is not None:
        return input_ids.ne(config.pad_token_id).long()
    return attention_mask


def max_over_padding(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The maximum over all positions. Arguments as for [`zoo.models.transformer.pool_max`][]."""
    return hidden_states.amax(dim=1)


def vanilla(config: ZooConfig) -> Transformer:
    return Transformer(
        encoder_layer=VanillaEncoderLayer,
        decoder_layer=VanillaDecoderLayer,
        pooler=max_over_padding if config.has_quirk("max-pools-padding") else None,
        attention_mask=mask_from_ids if config.has_quirk("masks-from-token-ids") else None,
        supports_unpadding=TOKEN_BY_TOKEN.issuperset(config.quirks),
    )
