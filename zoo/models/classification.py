"""Classification heads for sequences and for tokens."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import SequenceClassifierOutput, TokenClassifierOutput
from transformers.utils.generic import can_return_tuple

from zoo.base.errors import ConfigError, InputError, UnsupportedBackendError
from zoo.fast.modules import Dropout

from .capabilities import SERVING
from .configuration import ZooConfig
from .context import cache_of_either_name
from .embedding import SinusoidalPosition
from .norms import build_norm
from .parts import ACTIVATIONS
from .pretrained import CallOptions, ZooModel, ZooPreTrainedModel


class Classifier(ZooPreTrainedModel):
    """Base of both heads: a body of one stack, dropout, and a projection onto the `num_labels` classes."""

    scores: ClassVar[str] = "logits"  # Name of the scores in the arguments of the loss
    mean_losses: ClassVar[tuple[str, ...]] = ()  # Values of `problem_type` with the mean over a batch for their loss
    output_class: ClassVar[Any] = TokenClassifierOutput

    def __init__(self, config: ZooConfig) -> None:
        if config.stack == "encoder-decoder":
            raise ConfigError(
                "this configuration describes an encoder-decoder, classification needs an encoder or a decoder alone; "
                f"zoo.config({config.variant!r}, task='sequence-classification') describes one"
            )
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = ZooModel(config)
        self.dropout = Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels, bias=config.classifier_bias)

    def check_backend(self, name: str) -> None:
        """Also refuse the backends of serving engines, which pool hidden states by their own rules."""
        super().check_backend(name)
        if name.removeprefix("paged|") in SERVING:
            raise UnsupportedBackendError(
                f"attn_implementation={name!r} was given, by which engines serve models, but no classifiers because of "
                f"their pooling, which engines do by themselves; valid: {', '.join(self.supported_backends())}"
            )

    @classmethod
    def share_of_update(
        cls, loss: Tensor, labels: Tensor, config: ZooConfig, num_items_in_batch: Any = None, **kwargs: Any
    ) -> Tensor:
        """The loss, divided by the number of labels in an update instead of that in its batch where it is a mean."""
        is_mean = config.problem_type in cls.mean_losses and num_items_in_batch is not None
        return loss * labels.numel() / num_items_in_batch if is_mean else loss

    def pool(self, hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Hidden states to classify: those of tokens as they are."""
        return hidden_states

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: CallOptions,
    ) -> SequenceClassifierOutput | TokenClassifierOutput:
        """Score every class of every sequence, or of every token.

        Args:
            input_ids: Token ids. *Shape:* (batch_size, seq_len)
            attention_mask: 1 for real tokens, those of the prefix included. *Shape:* (batch_size, key_len)
            position_ids: Positions, by default 0, 1, ... *Shape:* (batch_size, seq_len)
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, seq_len, hidden_size)
            labels: Classes of tokens, -100 to ignore, *Shape:* (batch_size, seq_len); of sequences,
                *Shape:* (batch_size,); or values, for regression and several labels at once, *Shape:* (batch_size,
                num_labels); or classes of positions, *Shape:* (batch_size, classifier_positions).
            token_type_ids: Types of tokens, by default 0; for an encoder. *Shape:* (batch_size, seq_len)
            past_key_values: Keys and values of a prefix (prefix-tuning), extended in place.
            kwargs: `cache` (`past_key_values` by the name of transformers 5.24), `output_attentions`,
                `output_hidden_states`, `return_dict`, `num_items_in_batch`, and arguments of attention backends.

        Returns:
            `logits`, of tokens *Shape:* (batch_size, seq_len, num_labels), of sequences (batch_size, num_labels), with
            `classifier_positions` (batch_size, classifier_positions, num_labels); the loss if labels are given, and the
            outputs that were requested.
        """
        past_key_values = cache_of_either_name(past_key_values, kwargs) if "cache" in kwargs else past_key_values
        attention_mask = self.model.padding_mask(attention_mask, input_ids)
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}  # a decoder has none
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids, **types}
        caching = {"past_key_values": past_key_values, "use_cache": False}
        outputs = self.model(**given, inputs_embeds=inputs_embeds, **{**caching, **kwargs})
        if past_key_values is not None and isinstance(attention_mask, Tensor):  # the prefix has no hidden states
            attention_mask = attention_mask[:, -outputs.last_hidden_state.shape[1] :]
        logits = self.classifier(self.dropout(self.pool(outputs.last_hidden_state, attention_mask)))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, config=self.config, **{self.scores: logits}, **kwargs)
            loss = self.share_of_update(loss, labels, self.config, **kwargs)
            self.warn_in_eval_mode(loss)
        return self.output_class(loss, logits, outputs.hidden_states, outputs.attentions)


class SequencePooler(nn.Module):
    """A dense layer between pooling and classifier (BERT's pooler)."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        assert config.classifier_pooler_act is not None
        self.act_fn = ACTIVATIONS.get(config.classifier_pooler_act)()
        self.drawn_as = ("dense layer", f"{config.hidden_size} → {config.hidden_size}, {config.classifier_pooler_act}")

    def forward(self, pooled: Tensor) -> Tensor:
        """Transform. *Shape:* (batch_size, hidden_size), unchanged."""
        return self.act_fn(self.dense(pooled))


class PositionDecoder(nn.Module):
    """Expands one vector for the sequence to one per position (Poli et al. 2024, MAD, section 3.1).

    Sinusoids encode the position; two dense layers follow, each after a norm. It sees nothing else of the sequence, so
    all information about a position was in the one vector.
    """

    def __init__(self, config: ZooConfig, num_positions: int) -> None:
        super().__init__()
        self.num_positions = num_positions
        self.position = SinusoidalPosition(config)
        self.norms = nn.ModuleList(build_norm(config, config.hidden_size) for _ in range(2))
        self.dense = nn.ModuleList(nn.Linear(config.hidden_size, config.hidden_size) for _ in range(2))
        self.act_fn = ACTIVATIONS.get("gelu")()
        self.norm = build_norm(config, config.hidden_size)
        self.drawn_as = ("position decoder", f"{num_positions} vectors out of one, by sinusoids and two dense layers")

    def forward(self, pooled: Tensor) -> Tensor:
        """Transform. *Shape:* (batch_size, num_positions, hidden_size) of (batch_size, hidden_size)."""
        position_ids = torch.arange(self.num_positions, device=pooled.device)[None]
        hidden_states = self.position.embed(pooled[:, None], position_ids)
        for norm, dense in zip(self.norms, self.dense, strict=True):
            hidden_states = self.act_fn(dense(norm(hidden_states)))
        return self.norm(hidden_states)


class ZooForSequenceClassification(Classifier):
    """Classifies sequences by the pooled hidden states of an encoder, or of a decoder."""

    scores = "pooled_logits"
    mean_losses = ("regression", "multi_label_classification")
    output_class = SequenceClassifierOutput

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.pooler: nn.Module = nn.Identity()
        if config.classifier_positions is not None:
            self.pooler = PositionDecoder(config, config.classifier_positions)
        elif config.classifier_pooler_act is not None:
            self.pooler = SequencePooler(config)
        self.post_init()

    def pool(self, hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """One vector a sequence, or for each of `classifier_positions`."""
        ndim = 2 if attention_mask is None else getattr(attention_mask, "ndim", 0)
        if ndim != 2:
            form = f"of {ndim} dimensions" if ndim else "for each layer type"
            raise InputError(
                f"an attention_mask {form} was given, but sequences are classified by their tokens without padding; "
                "give 1 for real tokens and 0 for padding, one a token"
            )
        return self.pooler(self.model.transformer.pool(hidden_states, attention_mask, self.config))


class ZooForTokenClassification(Classifier):
    """Classifies every token by its hidden state."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.post_init()
