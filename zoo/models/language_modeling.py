"""Heads that predict tokens: their base, causal and masked language modelling."""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast, MaskedLMOutput
from transformers.utils.generic import can_return_tuple

from zoo.base.errors import InputError, UnsupportedOperationError
from zoo.fast.captured_steps import with_captured_steps
from zoo.fast.chunked_loss import IGNORED, cross_entropy
from zoo.fast.generation import CachedGenerationMixin
from zoo.fast.modules import Identity
from zoo.fast.preallocated_cache import CACHE_NAME

from .capabilities import refuse_paging
from .configuration import ZooConfig
from .context import cache_of_either_name
from .feed_forwards.routing import Router, has_router_loss, load_balancing_loss, routed_tokens
from .multi_token_prediction import MultiTokenPrediction
from .norms import build_norm
from .partly_causal import has_kinds, mixed_loss, partly_causal, weights_of_kinds
from .parts import ACTIVATIONS, FEED_FORWARDS, option
from .pretrained import CallOptions, ZooPreTrainedModel
from .stack import ZooDecoder, ZooEncoder
from .transformer import transformer_of
from .unit import UnitHead


class LanguageModel(ZooPreTrainedModel):
    """Base of the three heads: a body, and a projection onto the vocabulary.

    transformers' trainer expects every argument of a forward with "label" in its name in every batch. `transforms`
    allows `lm_head_transform` before the projection.
    """

    parallel_styles = {"lm_head": "colwise_gather_output"}
    ties: ClassVar[dict[str, tuple[str, str]]] = {
        "tie_word_embeddings": ("lm_head.weight", "model.embed_tokens.weight")
    }

    def __init__(self, config: ZooConfig, body: ZooPreTrainedModel, transforms: bool = False) -> None:
        super().__init__(config)
        has_transform = transforms and config.lm_head_transform
        self.model = body
        transformer = transformer_of(config)
        width = config.embedding_width if has_transform else config.hidden_size
        self.lm_head = transformer.head(width, transformer.output_size(config), bias=config.lm_head_bias)
        self.transform = PredictionTransform(config) if has_transform else Identity()

    def _get_resized_lm_head(self, old_lm_head: nn.Linear, *args: Any, **kwargs: Any) -> nn.Linear:
        """Resize the output projection, as transformers does, and the further parts of a head of another class."""
        resized: nn.Linear = super()._get_resized_lm_head(old_lm_head, *args, **kwargs)
        return old_lm_head.resized(resized) if isinstance(old_lm_head, UnitHead) else resized

    def project(self, hidden_states: Tensor) -> Tensor:
        """Scores of every token id: (..., hidden_size) -> (..., vocab_size)."""
        logits = self.lm_head(self.transform(hidden_states))
        if self.config.logit_scale != 1.0:
            logits = logits * self.config.logit_scale
        if (cap := self.config.final_logit_softcapping) is not None:
            logits = cap * torch.tanh(logits / cap)
        return logits

    def head_modules(self) -> tuple[nn.Module, ...]:
        """Modules of `project`."""
        return (self.transform, self.lm_head)

    def targets(self, labels: Tensor, **kwargs: Any) -> Tensor:
        """The labels, each where it is predicted; a head may shift them. *Shape:* (batch_size, seq_len)."""
        return labels

    def share_of_update(
        self, labels: Tensor | None, *, num_items_in_batch: Tensor | int | None = None, **kwargs: Any
    ) -> Tensor | float:
        """Share of a batch in the labels of an update: 1 unless batches are accumulated or processes have others."""
        if labels is None or num_items_in_batch is None:
            return 1.0
        return (self.targets(labels, **kwargs) != IGNORED).sum() / num_items_in_batch

    def balanced(
        self, output: Any, body: Any, mask: Any, labels: Tensor | None, options: dict[str, Any], side: str = ""
    ) -> Any:
        """Add recorded router logits, and their load-balancing loss by the batch's share of an update, to an output.

        `mask` is 1 for real tokens, (batch_size, seq_len), or of every layer, (num_layers, batch_size, seq_len); `side`
        "encoder_" or "decoder_" in an encoder-decoder, "mtp_" for the layers of further tokens.
        """
        if not (logits := body.get(f"{side}router_logits")):
            return output
        output[f"{side}router_logits"] = logits
        if has_router_loss(self.config):
            self.check_routers_learn(output.loss, logits)
            part = FEED_FORWARDS.get(self.config.feed_forward)
            chosen = option(self.config, part, "num_experts_per_tok")
            loss = load_balancing_loss(logits, chosen, options.get("is_token", mask))
            output["aux_loss"] = output.get("aux_loss", 0) + loss
            if output.get("loss") is not None:
                weight = option(self.config, part, "router_aux_loss_coef") * self.share_of_update(labels, **options)
                output["loss"] = output["loss"] + weight * loss
        return output

    def check_routers_learn(self, loss: Tensor | None, router_logits: tuple[Tensor, ...]) -> None:
        """Refuse a loss of routers without a gradient, as recorded logits have none in reentrant checkpointing."""
        learns = loss is not None and loss.requires_grad and not any(logits.requires_grad for logits in router_logits)
        if learns and any(one.weight.requires_grad for one in self.modules() if isinstance(one, Router)):
            raise UnsupportedOperationError(
                "the load-balancing loss of routers has no gradient if layers are computed again by "
                "use_reentrant=True: give gradient_checkpointing_kwargs={'use_reentrant': False}"
            )

    def logits_and_loss(
        self, hidden_states: Tensor, labels: Tensor | None, logits_to_keep: int | Tensor = 0, **options: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Logits, unless they were skipped, and the loss if labels are given, by the `options` of `compared`."""
        if isinstance(logits_to_keep, Tensor) or logits_to_keep:
            hidden_states = keep_positions(hidden_states, logits_to_keep)
        if labels is not None:
            return self.compared(hidden_states, labels, **options)
        return self.project(hidden_states), None

    def compared(
        self,
        states: Tensor,
        labels: Tensor,
        skip_logits: bool = False,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        **kwargs: Any,
    ) -> tuple[Tensor | None, Tensor]:
        """Logits, unless they were skipped, and the loss; InputError unless every position has a label."""
        if labels.shape != (shape := states.shape[:-1]):
            raise InputError(f"labels of shape {tuple(labels.shape)} were given for positions of {tuple(shape)}")
        if skip_logits or label_smoothing or z_loss:
            logits, loss = cross_entropy(self, states, labels, skip_logits, label_smoothing, z_loss=z_loss, **kwargs)
        else:
            logits = self.project(states)
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=logits.shape[-1], **kwargs)
        return logits, self.warn_in_eval_mode(loss)


def keep_positions(hidden_states: Tensor, logits_to_keep: int | Tensor) -> Tensor:
    """Keep the positions to predict at, before the costly projection."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, -logits_to_keep:]
    if logits_to_keep.dtype == torch.bool:
        return hidden_states[logits_to_keep]
    if logits_to_keep.ndim == 1:
        return hidden_states[:, logits_to_keep]
    return hidden_states.take_along_dim(logits_to_keep[..., None], dim=1)


def next_labels(labels: Tensor) -> Tensor:
    """Each position's next label, -100 at the last one. *Shape:* (batch_size, seq_len), unchanged."""
    return nn.functional.pad(labels, (0, 1), value=IGNORED)[:, 1:].contiguous()


class ZooForCausalLM(LanguageModel, CachedGenerationMixin):
    """A decoder that predicts the next token."""

    def __init__(self, config: ZooConfig) -> None:
        config = config.of_stack("decoder") if config.masked_next_token else config
        super().__init__(config, ZooDecoder(config), transforms=True)
        self.mtp = MultiTokenPrediction(config) if config.prediction_depth else None
        self.post_init()

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """Run `generate_batch` as transformers does, if paged attention computes the same as attention."""
        refuse_paging(self.config, self.config._attn_implementation)
        return super().init_continuous_batching(*args, **kwargs)

    def targets(self, labels: Tensor, **kwargs: Any) -> Tensor:
        """The next token's label at every position, or `shift_labels` if given, as transformers' loss takes them."""
        shifted: Tensor | None = kwargs.get("shift_labels")
        return next_labels(labels) if shifted is None else shifted

    @with_captured_steps
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        skip_logits: bool = False,
        loss_smoothing: float = 0.0,
        z_loss: float = 0.0,
        **kwargs: CallOptions,
    ) -> CausalLMOutputWithPast:
        """Predict the next token at every position.

        Args:
            input_ids: Token ids. *Shape:* (batch_size, seq_len)
            attention_mask: 1 for real tokens, cached ones included. *Shape:* (batch_size, key_len)
            position_ids: Positions, by default counted on from the cache. *Shape:* (batch_size, seq_len)
            past_key_values: Keys and values of earlier positions, extended in place.
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, seq_len, hidden_size)
            labels: Token ids, -100 to ignore; they are shifted here. *Shape:* (batch_size, seq_len)
            use_cache: Whether to return keys and values; with labels only if asked for.
            logits_to_keep: Positions to predict at, 0 for all, see `keep_positions`.
            skip_logits: Whether to compute the loss without the logits, which are then None: they are the largest
                tensor of a training step.
            loss_smoothing: Label smoothing: the share of the target that the loss spreads over the whole vocabulary.
            z_loss: Weight of the squared log of the softmax's normalizer in the loss (PaLM: 1e-4).
            kwargs: `cache` (`past_key_values` by the name of transformers 5.24), `output_attentions`,
                `output_hidden_states`, `return_dict`, `num_items_in_batch`, and what attention backends take.

        Returns:
            `logits`, *Shape:* (batch_size, num_positions, vocab_size), the loss if labels are given, the cache, and
            what was asked for. In training, the loss may contain that of routers and of further tokens.
        """
        past_key_values = cache_of_either_name(past_key_values, kwargs) if "cache" in kwargs else past_key_values
        use_cache = bool(use_cache) if labels is not None and past_key_values is None else use_cache
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        kwargs |= {} if labels is None else routed_tokens(self.config, attention_mask, labels, input_ids, inputs_embeds)
        caching = {"past_key_values": past_key_values, "use_cache": use_cache}
        body = self.model(**given, inputs_embeds=inputs_embeds, **caching, **kwargs)
        options = {"skip_logits": skip_logits, "label_smoothing": loss_smoothing, "z_loss": z_loss, **kwargs}
        logits, loss = self.logits_and_loss(body.last_hidden_state, labels, logits_to_keep, **options)
        output = CausalLMOutputWithPast(loss, logits, getattr(body, CACHE_NAME), body.hidden_states, body.attentions)
        if self.mtp is not None and self.training and labels is not None:
            output = self.mtp(output, self, body, labels, inputs_embeds, **given, **options)
        return self.balanced(output, body, attention_mask, labels, kwargs) if "router_logits" in body else output


class PredictionTransform(nn.Module):
    """BERT's transform before the output projection: dense, activation, norm, in the width of the embeddings."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        width = config.embedding_width
        act = config.lm_head_transform_act or config.hidden_act
        self.dense = nn.Linear(config.hidden_size, width, bias=config.lm_head_transform_bias)
        self.act_fn = ACTIVATIONS.get(act)()
        self.norm = build_norm(config, width)
        self.drawn_as = ("dense layer", f"{config.hidden_size} → {width}, {act}, {type(self.norm).__name__}")

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Transform. *Shape:* (batch_size, seq_len, hidden_size) to (batch_size, seq_len, embedding_size)."""
        return self.norm(self.act_fn(self.dense(hidden_states)))


class ZooForMaskedLM(LanguageModel):
    """An encoder that predicts masked tokens (BERT)."""

    def __init__(self, config: ZooConfig) -> None:
        config = config.of_stack("encoder") if config.masked_next_token else config
        super().__init__(config, ZooEncoder(config), transforms=True)
        self.post_init()

    def logits_and_loss(
        self, hidden_states: Tensor, labels: Tensor | None, *args: Any, causal_rows: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Score token ids, and compare with the labels where they are predicted."""
        if not self.config.masked_next_token or labels is None:
            return super().logits_and_loss(hidden_states, labels, *args, **kwargs)
        labels = self.targets(labels, **kwargs)
        kwargs = {**kwargs, "shift_labels": labels}
        is_plain = causal_rows is None or causal_rows.all() or not causal_rows.any()
        if causal_rows is None or (is_plain and not has_kinds(kwargs.get("num_items_in_batch"))):
            return super().logits_and_loss(hidden_states, labels, *args, **kwargs)
        return mixed_loss(self, super().logits_and_loss, hidden_states, labels, causal_rows, **kwargs)

    def share_of_update(
        self, labels: Tensor | None, *, causal_rows: Tensor | None = None, **kwargs: Any
    ) -> Tensor | float:
        """Share of a batch in an update: of its labels, or where there are two kinds of rows, of its rows."""
        items = kwargs.get("num_items_in_batch")
        if labels is None or causal_rows is None or not has_kinds(items):
            return super().share_of_update(labels, **kwargs)
        return weights_of_kinds(self.targets(labels, **kwargs), causal_rows, items).sum()

    def targets(self, labels: Tensor, **kwargs: Any) -> Tensor:
        """The labels; with `masked_next_token`, one position earlier, or `shift_labels` if given."""
        shifted: Tensor | None = kwargs.get("shift_labels")
        if not self.config.masked_next_token:
            return labels
        return next_labels(labels) if shifted is None else shifted

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        skip_logits: bool = False,
        loss_smoothing: float = 0.0,
        z_loss: float = 0.0,
        token_type_ids: Tensor | None = None,
        causal_rows: Tensor | None = None,
        **kwargs: CallOptions,
    ) -> MaskedLMOutput:
        """Predict the token at every position, with `masked_next_token` the next one.

        Args:
            input_ids: Token ids. *Shape:* (batch_size, seq_len)
            attention_mask: 1 for real tokens. *Shape:* (batch_size, seq_len)
            position_ids: Positions, by default 0, 1, ... *Shape:* (batch_size, seq_len)
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, seq_len, hidden_size)
            labels: Token ids, -100 to ignore. *Shape:* (batch_size, seq_len)
            logits_to_keep: Positions to predict at, 0 for all, see `keep_positions`.
            skip_logits: Whether to compute the loss without the logits, which are then None: they are the largest
                tensor of a training step.
            loss_smoothing: Label smoothing: the share of the target that the loss spreads over the whole vocabulary.
            z_loss: Weight of the squared log of the softmax's normalizer in the loss (PaLM: 1e-4).
            token_type_ids: Types of tokens, by default 0. *Shape:* (batch_size, seq_len)
            causal_rows: True for rows in which a position sees only itself and earlier ones; with `masked_next_token`.
                The loss is then the mean over causal rows and the mean over the others, weighted by numbers of rows.
                *Shape:* (batch_size,)
            kwargs: `cache` (`past_key_values` by the name of transformers 5.24), `output_attentions`,
                `output_hidden_states`, `return_dict`, `num_items_in_batch`, and arguments of attention backends.

        Returns:
            `logits`, *Shape:* (batch_size, seq_len, vocab_size), the loss if labels are given, and what was asked for.
        """
        mask: Any = attention_mask
        if causal_rows is not None:
            causal_rows = causal_rows.bool()
            windows = {kind: self.model.windows[kind] for kind in self.model.layer_types}
            given: Any = input_ids if inputs_embeds is None else inputs_embeds
            make = partial(partly_causal, given, attention_mask, causal_rows)
            mask = {kind: make(one) for kind, one in windows.items()} if any(windows.values()) else make()
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            token_type_ids=token_type_ids,
            is_token=None if causal_rows is None else attention_mask,
            **kwargs,
        )
        options = {"skip_logits": skip_logits, "label_smoothing": loss_smoothing, "z_loss": z_loss, **kwargs}
        options |= {"logits_to_keep": logits_to_keep, "causal_rows": causal_rows}
        logits, loss = self.logits_and_loss(outputs.last_hidden_state, labels, **options)
        output = MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)
        kwargs["causal_rows"] = causal_rows
        return self.balanced(output, outputs, attention_mask, labels, kwargs) if "router_logits" in outputs else output
