"""Classifiers: a stack, a pooling, a projection onto classes, and the loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config, NoPlainForm
from .feed_forward import activated, learned_activation
from .initialization import initialize
from .norms import build_norm
from .positions import sinusoids
from .stacks import Decoder, Encoder


def pooled(x: Tensor, attention_mask: Tensor | None, config: Config) -> Tensor:
    """One vector for each sequence. *Shape:* (batch, length, hidden_size) -> (batch, hidden_size)."""
    if "max-pools-padding" in config.quirks:
        # The original's defect: the maximum is taken over padding as well.
        return x.amax(dim=1)
    # In 16 bits, the numbers of places and of tokens are not exact.
    mask = torch.ones(x.shape[:2], device=x.device) if attention_mask is None else attention_mask.float()
    if config.classifier_pooling == "cls":
        return x[torch.arange(len(x)), mask.argmax(dim=1)]
    if config.classifier_pooling == "last":
        last = (mask * torch.arange(x.shape[1], device=x.device)).argmax(dim=1)
        return x[torch.arange(len(x)), last]
    if config.classifier_pooling == "mean":
        return ((x * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)).to(x.dtype)
    if config.classifier_pooling == "max":
        hidden = mask[..., None] == 0
        return x.masked_fill(hidden, torch.finfo(x.dtype).min).amax(dim=1).masked_fill(hidden.all(dim=1), 0.0)
    raise NoPlainForm("classifier_pooling")


class Pooler(nn.Module):
    """A dense layer between pooling and classifier (BERT)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        if config.classifier_pooler_act in ("prelu", "xielu"):
            self.act_fn = learned_activation(config.classifier_pooler_act)

    def forward(self, x: Tensor) -> Tensor:
        return activated(self.dense(x), self, self.config.classifier_pooler_act)


class PositionDecoder(nn.Module):
    """One vector for each position out of one for the sequence (Poli et al. 2024, MAD, section 3.1)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.norms = nn.ModuleList(build_norm(config, config.hidden_size, config.layer_norm_eps) for _ in range(2))
        self.dense = nn.ModuleList(nn.Linear(config.hidden_size, config.hidden_size) for _ in range(2))
        self.norm = build_norm(config, config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """*Shape:* (batch, hidden_size) -> (batch, positions, hidden_size)."""
        positions = torch.arange(self.config.classifier_positions, device=x.device)
        x = x[:, None] + sinusoids(positions, x.shape[-1], "sinusoidal", self.config).to(x.dtype)
        for norm, dense in zip(self.norms, self.dense, strict=True):
            x = F.gelu(dense(norm(x)))
        return self.norm(x)


class SequenceClassifier(nn.Module):
    """A stack, a pooling and a projection onto classes."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config) if config.is_decoder else Encoder(config)
        if config.classifier_positions is not None:
            self.pooler: nn.Module = PositionDecoder(config)
        elif config.classifier_pooler_act is not None:
            self.pooler = Pooler(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels, bias=config.classifier_bias)
        initialize(self, config)

    def forward(
        self,
        ids: Tensor,
        labels: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of classes, and the loss. *Shape:* ids (batch, length), labels (batch,), logits (batch, labels)."""
        if "masks-from-token-ids" in self.config.quirks and attention_mask is None:
            # As in the encoder.
            attention_mask = ids != self.config.pad_token_id
        if "padding-is-attended" in self.config.quirks:
            # The original's defect: padding is read like any other token.
            attention_mask = None
        x = pooled(self.model(ids, attention_mask, token_type_ids), attention_mask, self.config)
        if self.config.classifier_pooler_act is not None or self.config.classifier_positions is not None:
            x = self.pooler(x)
        if self.config.classifier_dropout:
            x = F.dropout(x, self.config.classifier_dropout, self.training)
        logits = self.classifier(x)
        if labels is None:
            return logits, None
        if self.config.problem_type == "regression" and self.config.num_labels == 1:
            return logits, F.mse_loss(logits.squeeze(), labels.squeeze())
        if self.config.problem_type == "regression":
            return logits, F.mse_loss(logits, labels)
        if self.config.problem_type == "multi_label_classification":
            return logits, F.binary_cross_entropy_with_logits(logits, labels)
        if self.config.problem_type is None and labels.is_floating_point():
            # One number for each class: several classes at once.
            return logits, F.binary_cross_entropy_with_logits(logits, labels)
        return logits, F.cross_entropy(logits.flatten(0, -2), labels.flatten())


class TokenClassifier(nn.Module):
    """A stack and a projection of each token onto classes."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config) if config.is_decoder else Encoder(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels, bias=config.classifier_bias)
        initialize(self, config)

    def forward(
        self,
        ids: Tensor,
        labels: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of classes, and the loss where labels are not -100. *Shape:* ids and labels (batch, length)."""
        x = self.model(ids, attention_mask, token_type_ids)
        if self.config.classifier_dropout:
            x = F.dropout(x, self.config.classifier_dropout, self.training)
        logits = self.classifier(x)
        return logits, None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
