"""Multi-token prediction: sequential modules that predict later tokens in training.

DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 2.2; after Gloeckle et al. 2024, "Better & Faster Large
Language Models via Multi-token Prediction", with parallel heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils import ModelOutput

from zoo.base.errors import InputError
from zoo.fast.chunked_loss import IGNORED, cross_entropy
from zoo.fast.modules import Identity

from .configuration import ZooConfig
from .context import Context, EarlierLayers, position_biases, self_attention_masks
from .norms import build_norm
from .parts import RESIDUALS
from .transformer import transformer_of

if TYPE_CHECKING:
    from .language_modeling import LanguageModel

LOSS_WEIGHT = 0.3  # Default weight of the loss (`mtp_loss_weight`), as in most of DeepSeek-V3's training (section 4.2)


class PredictionDepth(nn.Module):
    """One depth: `h' = norm(layer(W [norm(h); norm(e)]))`, with a layer like the stack's last (equations 21 and 22)."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.state_norm = build_norm(config)
        self.token_norm = build_norm(config.embedding_config())
        self.projection = nn.Linear(config.hidden_size + config.embedding_width, config.hidden_size, bias=False)
        self.layer = transformer_of(config).decoder_layer(config, config.num_hidden_layers - 1)
        self.stream = RESIDUALS.get(config.residual).build_stream(config)
        self.norm = build_norm(config) if config.final_norm else Identity()

    def forward(self, hidden_states: Tensor, embeddings: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Predict one token further, from the states of the depth before and the embeddings of the next tokens."""
        joined = torch.cat((self.state_norm(hidden_states), self.token_norm(embeddings)), dim=-1)
        stream = self.layer(self.stream.open(self.projection(joined)), *args, **kwargs)
        normed: Tensor = self.norm(self.stream(stream))
        return normed


class MultiTokenPrediction(nn.Module):
    """Depths that predict the second next token, the third next and so on, for a loss added to that of the next one.

    They have the embedding, the position part and the output projection of the model. They run in training only, and
    if labels are given: generation and evaluation are those of the model without them. Padding stays in.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.loss_weight = float(getattr(config, "mtp_loss_weight", LOSS_WEIGHT))
        self.depths = nn.ModuleList(PredictionDepth(config) for _ in range(config.prediction_depth))
        further = "one further token" if len(self.depths) == 1 else f"each of {len(self.depths)} further tokens"
        self.drawn_as = ("multi-token prediction", f"next to it, in training only: a layer for {further}")

    def forward(
        self,
        output: ModelOutput,
        head: LanguageModel,
        outputs: Any,
        labels: Tensor,
        inputs_embeds: Tensor | None,
        *,
        input_ids: Tensor | None,
        attention_mask: Any,
        position_ids: Tensor | None,
        skip_logits: bool,
        label_smoothing: float,
        is_token: Tensor | None = None,
        z_loss: float = 0.0,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Add the loss of further tokens to the output of a language model (equations 24 and 25).

        It is summed over the tokens that a depth predicts, divided by the number that the model's own loss is divided
        by, and averaged over depths. A token of another document in the row is not predicted, nor one of padding.

        Args:
            outputs: Of the body: the input of the output projection, *Shape:* (batch_size, seq_len, hidden_size), and
                router logits if they were asked for.
            labels: As it was given them, like what follows. *Shape:* (batch_size, seq_len)
            is_token: 1 for tokens, where there is no mask. *Shape:* (batch_size, seq_len)

        Returns:
            The output with `mtp_loss`, which the loss contains `mtp_loss_weight` times; and if router logits were asked
            for, with `mtp_router_logits` and their load-balancing loss.
        """
        hidden_states = outputs.last_hidden_state
        if labels.shape != (shape := hidden_states.shape[:-1]):
            raise InputError(
                f"labels of shape {tuple(labels.shape)} were given for positions of {tuple(shape)}, but further tokens "
                "are predicted at all of them: leave logits_to_keep out in training"
            )
        share = {**kwargs, "num_items_in_batch": num_items_in_batch}
        targets = head.targets(labels, **kwargs)
        if num_items_in_batch is None:
            num_items_in_batch = (targets != IGNORED).sum()
        body: Any = head.model
        embeddings = body.token_embeddings(input_ids, inputs_embeds).to(hidden_states.device)
        mask = body.padding_mask(attention_mask, input_ids)
        is_padding_mask = isinstance(mask, Tensor) and mask.ndim == 2
        context = Context(mask[:, -labels.shape[1] :] if is_padding_mask else mask, position_ids, None)
        tokens = context.attention_mask if is_padding_mask else is_token
        # Arguments of the last layer of a stack without a cache.
        step = body.config.num_hidden_layers - 1
        kind, placed, position = body.layer_types[step], body.placed_types[step], body.position
        context.place(embeddings, position)
        biases = position_biases([placed], position, embeddings, None) if position.has_bias else {}
        rotations: Any = position.rotations(embeddings, context.position_ids, [placed]) if placed else {}
        args = (self_attention_masks(body.config, embeddings, context, [kind])[kind], biases.get(placed))
        kwargs |= {"position_embeddings": rotations.get(placed), "position_ids": context.position_ids, "step": step}
        kwargs["attn_implementation"] = body.config._attn_implementation
        losses = []
        routes: list[tuple[Tensor, Any]] = []
        for shift, depth in enumerate(self.depths, start=1):
            follows = context.position_ids.roll(-shift, dims=1) == context.position_ids + shift
            if tokens is not None:
                real = tokens.bool()
                follows = follows & real & real.roll(-shift, dims=1)
            ids = None if input_ids is None else input_ids.roll(-shift, dims=1)
            kwargs["earlier"] = earlier = EarlierLayers(ids, follows.expand_as(labels))
            earlier.kept |= {"router_logits": ()} if "router_logits" in outputs else {}
            hidden_states = depth(hidden_states, embeddings.roll(-shift, dims=1), *args, **kwargs)
            routes += [(logits, earlier.is_token) for logits in earlier.kept.get("router_logits", ())]
            # Values rolled to the end belong to no token: their targets are ignored.
            further = F.pad(targets, (0, shift), value=IGNORED)[:, shift:]
            further = further.masked_fill(~follows.to(further.device), IGNORED)
            options: dict[str, Any] = {"num_items_in_batch": num_items_in_batch, "z_loss": z_loss}
            options["shift_labels"] = further
            losses.append(cross_entropy(head, hidden_states, labels, skip_logits, label_smoothing, **options)[1])
        output["mtp_loss"] = torch.stack(losses).mean()
        output["loss"] = output["loss"] + self.loss_weight * output["mtp_loss"]
        if not routes:
            return output
        routed, masks = zip(*routes, strict=True)
        return head.balanced(output, {"mtp_router_logits": routed}, torch.stack(masks), labels, share, "mtp_")
