"""Language models: a stack, the output projection, the loss, and generation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Cache
from .config import Config
from .feed_forward import activated, balance, learned_activation
from .initialization import initialize
from .layers import DecoderLayer
from .norms import build_norm
from .stacks import Decoder, Encoder, EncoderDecoder, entered
from .streams import StreamEnd, begun, ended


def bounded(logits: Tensor, config: Config) -> Tensor:
    """Logits, scaled and bounded as the configuration has it."""
    if config.logit_scale != 1.0:
        logits = logits * config.logit_scale
    if config.final_logit_softcapping is not None:
        logits = torch.tanh(logits / config.final_logit_softcapping) * config.final_logit_softcapping
    return logits


def transformed(x: Tensor, owner: Any, config: Config) -> Tensor:
    """Hidden states as the output projection reads them."""
    if config.lm_head_transform:
        return owner.transform(x)
    return x


def chosen(logits: Tensor, temperature: float) -> Tensor:
    """The likeliest token at temperature 0, or else one that is drawn. *Shape:* (batch, vocab_size) -> (batch, 1)."""
    return (logits / temperature).softmax(-1).multinomial(1) if temperature else logits.argmax(-1, keepdim=True)


def up_to_last(labels: Tensor) -> Tensor:
    """1 up to the last label of each row: what follows it is padding. *Shape:* (batch, length), unchanged."""
    return (labels != -100).long().flip(1).cummax(dim=1).values.flip(1)


class PredictionDepth(nn.Module):
    """One layer more, which looks one token further (DeepSeek-V3, section 2.2, equations 21 and 22)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size if config.embedding_size is None else config.embedding_size
        self.state_norm = build_norm(config, config.hidden_size, config.layer_norm_eps)
        self.token_norm = build_norm(config, width, config.embedding_norm_eps)
        self.projection = nn.Linear(config.hidden_size + width, config.hidden_size, bias=False)
        self.layer = DecoderLayer(config, config.num_hidden_layers - 1)
        if config.residual in ("gated-hyper-connections", "manifold-hyper-connections", "attention-residuals"):
            self.stream = StreamEnd(config)
        if config.final_norm:
            self.norm = build_norm(config, config.hidden_size, config.layer_norm_eps)

    def forward(
        self,
        x: Tensor,
        embedded: Tensor,
        mask: Tensor,
        bias: Tensor | None,
        rotation: tuple[Tensor, Tensor] | None,
        earlier: Cache | None,
    ) -> Tensor:
        """*Shape:* (batch, length, hidden_size) and embeddings of the tokens that follow -> (..., hidden_size)."""
        x = self.projection(torch.cat([self.state_norm(x), self.token_norm(embedded)], dim=-1))
        x = entered(begun(x, self.config), self.layer, self.config.num_hidden_layers - 1, self.config)
        x = ended(self.layer(x, mask, bias, rotation, earlier=earlier), self, self.config)
        return self.norm(x) if self.config.final_norm else x


class MultiTokenPrediction(nn.Module):
    """Layers that predict later tokens, in training alone."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.depths = nn.ModuleList(PredictionDepth(config) for _ in range(config.num_nextn_predict_layers))


class UnitHead(nn.Linear):
    """Cosines of hidden states and token vectors, times a learned factor for each token (nGPT, section 2.1)."""

    def __init__(self, width: int, config: Config) -> None:
        super().__init__(width, config.vocab_size, bias=config.lm_head_bias)
        self.scales = nn.Parameter(torch.full((config.vocab_size,), width**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (self.scales / self.in_features**-0.5)


def build_head(config: Config) -> nn.Module:
    """The output projection of a decoder."""
    is_narrow = config.lm_head_transform and config.embedding_size is not None
    width = config.embedding_size if is_narrow else config.hidden_size
    if config.unit_weights:
        return UnitHead(width, config)
    return nn.Linear(width, config.vocab_size, bias=config.lm_head_bias)


class PredictionTransform(nn.Module):
    """A dense layer in front of the output projection (Devlin et al. 2018, BERT)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size if config.embedding_size is None else config.embedding_size
        self.dense = nn.Linear(config.hidden_size, width, bias=config.lm_head_transform_bias)
        if config.lm_head_transform_act in ("prelu", "xielu"):
            self.act_fn = learned_activation(config.lm_head_transform_act)
        self.norm = build_norm(config, width, config.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(activated(self.dense(x), self, self.config.lm_head_transform_act))


class CausalLM(nn.Module):
    """A decoder that predicts the next token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        if config.lm_head_transform:
            self.transform = PredictionTransform(config)
        self.lm_head = build_head(config)
        if config.num_nextn_predict_layers:
            self.mtp = MultiTokenPrediction(config)
        initialize(self, config)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(
        self,
        ids: Tensor,
        labels: Tensor | None = None,
        cache: list[Cache] | None = None,
        start: int = 0,
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of the next tokens, and the loss. *Shape:* ids and labels (batch, length)."""
        if self.config.num_nextn_predict_layers and self.training and labels is not None:
            x, *further = self.model(ids, depths=self.mtp.depths)
        else:
            x = self.model(ids, None, cache, start)
        logits = bounded(self.lm_head(transformed(x, self, self.config)), self.config)
        loss = None if labels is None else F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        if self.config.balances_experts and labels is not None and loss is not None:
            real = up_to_last(labels)
            loss = loss + self.config.router_aux_loss_coef * balance(self.model, real, self.config)
        if self.config.num_nextn_predict_layers and self.training and labels is not None:
            if self.config.balances_experts:
                # Routers of further layers are balanced over the tokens that have the later one.
                follows = [real * F.pad(real, (0, shift))[:, shift:] for shift in range(1, len(further) + 1)]
                balanced = balance(self.mtp, torch.stack(follows), self.config)
                loss = loss + self.config.router_aux_loss_coef * balanced
            for shift, x in enumerate(further, start=1):
                # The loss of a further token, divided as that of the next one is (DeepSeek-V3, equation 24).
                wanted = F.pad(labels, (0, shift + 1), value=-100)[:, shift + 1 :].flatten()
                scores = bounded(self.lm_head(transformed(x, self, self.config)), self.config).flatten(0, 1)
                extra = F.cross_entropy(scores, wanted, reduction="sum") / (labels[:, 1:] != -100).sum()
                loss = loss + self.config.mtp_loss_weight / len(further) * extra
        return logits, loss

    @torch.no_grad()
    def generate(self, ids: Tensor, max_new_tokens: int, temperature: float = 0.0) -> Tensor:
        """Continue texts; greedy at temperature 0. *Shape:* (batch, length) -> (batch, length + new tokens)."""
        if self.config.generates_with_cache:
            cache, new = [dict[str, Tensor]() for _ in range(self.config.num_hidden_layers)], ids
        for _ in range(max_new_tokens):
            if self.config.generates_with_cache:
                logits = self(new, cache=cache, start=ids.shape[1] - new.shape[1])[0][:, -1]
            else:
                # Earlier keys are computed again: they depend on the tokens that follow.
                logits = self(ids)[0][:, -1]
            new = chosen(logits, temperature)
            ids = torch.cat([ids, new], dim=1)
        return ids


class Seq2SeqLM(nn.Module):
    """An encoder-decoder that predicts the next token of a target."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = EncoderDecoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.decoder_vocab_size, bias=config.lm_head_bias)
        if "works-on-features" in config.quirks:
            self.lm_head = nn.Linear(config.hidden_size, config.hidden_size, bias=config.lm_head_bias)
        initialize(self, config)
        if config.initializer == "deepnorm" or (
            config.initializer == "depth-scaled" and "num_hidden_layers" in config.decoder_changes
        ):
            # How small weights are depends on the depth of their stack.
            initialize(self.model.decoder, config.of_decoder())
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.decoder.embed_tokens.weight

    def forward(
        self,
        ids: Tensor,
        labels: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_ids: Tensor | None = None,
        cache: list[Cache] | None = None,
        start: int = 0,
        memory: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Logits of the target, the loss, the encoder's output. *Shape:* (batch, source), (batch, target)."""
        if decoder_ids is None and "decoder-reads-the-source" in self.config.quirks:
            # The original's defect: the decoder reads the source itself.
            decoder_ids = ids
        elif decoder_ids is None and labels is not None:
            # The target after the token that begins it.
            decoder_ids = labels.roll(1, dims=-1)
            decoder_ids = decoder_ids.masked_fill(decoder_ids == -100, self.config.decoder_pad_token_id)
            decoder_ids[:, 0] = self.config.decoder_start_token_id
        x, encoded = self.model(ids, decoder_ids, attention_mask, cache, start, memory)
        logits = bounded(self.lm_head(x), self.config)
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        if self.config.balances_experts and labels is not None and loss is not None:
            balanced = balance(self.model.encoder, attention_mask, self.config)
            balanced = balanced + balance(self.model.decoder, up_to_last(labels), self.config)
            loss = loss + self.config.router_aux_loss_coef * balanced
        return logits, loss, encoded

    @torch.no_grad()
    def generate(
        self, ids: Tensor, max_new_tokens: int, temperature: float = 0.0, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Write targets; greedy at temperature 0. *Shape:* (batch, source) -> (batch, 1 + max_new_tokens)."""
        target = torch.full_like(ids[:, :1], self.config.decoder_start_token_id)
        if not self.config.generates:
            raise NotImplementedError("the original cannot write token by token")
        if self.config.generates_with_cache:
            cache: list[Cache] = [{} for _ in range(self.config.decoder_layers)]
            new, memory = target, None
        for _ in range(max_new_tokens):
            if self.config.generates_with_cache:
                logits, _, memory = self(ids, None, attention_mask, new, cache, target.shape[1] - new.shape[1], memory)
            else:
                logits, _, _ = self(ids, None, attention_mask, target)
            last = logits[:, -1]
            new = chosen(last, temperature)
            target = torch.cat([target, new], dim=1)
        return target


class MaskedLM(nn.Module):
    """An encoder that predicts masked tokens (Devlin et al. 2018, BERT, section 3.1)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Encoder(config)
        if config.lm_head_transform:
            self.transform = PredictionTransform(config)
        self.lm_head = build_head(config)
        initialize(self, config)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(
        self,
        ids: Tensor,
        labels: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of all tokens, and the loss where labels are not -100. *Shape:* ids and labels (batch, length)."""
        x = self.model(ids, attention_mask, token_type_ids)
        logits = bounded(self.lm_head(transformed(x, self, self.config)), self.config)
        if labels is None:
            return logits, None
        if self.config.masked_next_token:
            # Each token is predicted one position earlier, as a causal model does (GPT-BERT, section 2).
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        else:
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        if self.config.balances_experts:
            loss = loss + self.config.router_aux_loss_coef * balance(self.model, attention_mask, self.config)
        return logits, loss
