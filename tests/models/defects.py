"""Defects that the checks of `zoo.testing` are there for, each put into a model or into what it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.cache_utils import Cache
from transformers.loss.loss_utils import ForMaskedLMLoss

import zoo
import zoo.base.errors
from zoo.building.quantizing import FusedProjections
from zoo.fast import chunked_loss
from zoo.fast.attention import BACKENDS
from zoo.fast.captured_steps import DecodeStep
from zoo.fast.unpadding import UnpaddedMask
from zoo.models import NORMS, Attention, LearnedPosition, Residual, TransformerLayer, language_modeling, stack
from zoo.models import attention as attention_module
from zoo.models.context import Context, EarlierLayers
from zoo.models.mixers import base as mixer_base
from zoo.models.mixers import delta_net
from zoo.models.mixers import short_convolution as convolution
from zoo.models.norms import LayerNorm
from zoo.testing import basics

Break = Callable[[Any, pytest.MonkeyPatch], None]


def drop_a_logit(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model, "project", lambda hidden: model.lm_head(hidden)[..., :-1])


def do_not_shift_labels(model: Any, patch: pytest.MonkeyPatch) -> None:
    model.loss_function = ForMaskedLMLoss


def decode_the_labels_themselves(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model, "decoder_inputs", lambda ids, labels: labels.clamp(min=0))


def add_a_dead_parameter(model: Any, patch: pytest.MonkeyPatch) -> None:
    model.dead = nn.Parameter(torch.zeros(3, dtype=torch.float64))


def scale_by_what_no_configuration_says(model: Any, patch: pytest.MonkeyPatch) -> None:
    model.model.embed_tokens.embed_scale = 3.0


def look_up_without_scaling(model: Any, patch: pytest.MonkeyPatch) -> None:
    weight = model.get_input_embeddings().weight
    patch.setattr(model, "get_input_embeddings", lambda: lambda ids: F.embedding(ids, weight))


def mix_the_batch(model: Any, patch: pytest.MonkeyPatch) -> None:
    model.model.embed_tokens.register_forward_hook(lambda *args: args[-1] + 0.1 * args[-1].mean(0))


def forget_positions(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model.model.position, "embed", lambda embeds, position_ids: embeds)


def refuse_to_grow(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(type(model), "resize_token_embeddings", lambda self, size: None)


def ignore_padding(model: Any, patch: pytest.MonkeyPatch) -> None:
    original = stack.self_attention_masks

    def unpadded(config: Any, states: Any, context: Any, *rest: Any) -> dict[str, Any]:
        context = replace(context, attention_mask=None)
        context.given_positions = None  # by which padding would be a document of its own
        return original(config, states, context, *rest)

    patch.setattr(stack, "self_attention_masks", unpadded)


def swap_causality(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stack, "self_attention_masks", lambda config, *rest, **named: {"full_attention": None})
    for module in model.modules():
        if isinstance(module, Attention):
            module.is_causal = not module.is_causal


def mask_by_infinity(model: Any, patch: pytest.MonkeyPatch) -> None:
    original = stack.self_attention_masks

    def infinite(config: Any, states: Tensor, context: Any, *rest: Any) -> dict[str, Any]:
        made = original(config, states, context, *rest)
        mask = context.attention_mask
        if mask is None:
            return made
        hidden = (mask == 0)[:, None, None, :]
        shape = (len(mask), 1, states.shape[1], states.shape[1])
        return dict.fromkeys(made, torch.zeros(shape, dtype=states.dtype).masked_fill(hidden, -torch.inf))

    patch.setattr(stack, "self_attention_masks", infinite)


def change_eager_attention(model: Any, patch: pytest.MonkeyPatch) -> None:
    original = attention_module.eager_attention

    def changed(*args: Any, scaling: float, **kwargs: Any) -> Any:
        return original(*args, scaling=1.1 * scaling, **kwargs)

    patch.setattr(attention_module, "eager_attention", changed)


def give_all_layers_one_place(model: Any, patch: pytest.MonkeyPatch) -> None:
    original = attention_module.Attention.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.layer_idx = 0

    patch.setattr(attention_module.Attention, "__init__", made)


class IdleLayer(TransformerLayer):
    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return hidden_states


def add_an_idle_layer(model: Any, patch: pytest.MonkeyPatch) -> None:
    model.model.layers[1] = IdleLayer()


def return_scores_for_weights(model: Any, patch: pytest.MonkeyPatch) -> None:
    original = attention_module.eager_attention

    def changed(*args: Any, **kwargs: Any) -> Any:
        mixed, weights = original(*args, **kwargs)
        return mixed, 2 * weights

    patch.setattr(attention_module, "eager_attention", changed)


def confuse_a_cache(cache_class: type[Cache]) -> Break:
    def break_it(model: Any, patch: pytest.MonkeyPatch) -> None:
        original = Cache.update

        def update(self: Any, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
            keys, values = original(self, key, value, *args, **kwargs)
            return (keys.roll(1, dims=2) if type(self) is cache_class else keys), values

        patch.setattr(Cache, "update", update)

    return break_it


def cache_the_source_at_every_step(model: Any, patch: pytest.MonkeyPatch) -> None:
    original = Attention.memory

    def memory(self: Any, states: Any, cache: Any, cache_idx: int) -> Any:
        found = original(self, states, cache, cache_idx)
        cache.is_updated[cache_idx] = False
        return found

    patch.setattr(Attention, "memory", memory)


def keep_the_first_positions(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(language_modeling, "keep_positions", lambda hidden, keep: hidden[:, :keep] if keep else hidden)


def checkpoint_nothing(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(type(model), "gradient_checkpointing_enable", lambda self, **kwargs: None)


def overflow_in_low_precision(model: Any, patch: pytest.MonkeyPatch) -> None:
    original = Residual.forward

    def forward(self: Any, states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        output = original(self, states, *args, **kwargs)
        return output * torch.nan if states.dtype == torch.bfloat16 else output

    patch.setattr(Residual, "forward", forward)


def keep_positions_from_attention(model: Any, patch: pytest.MonkeyPatch) -> None:
    attend = Attention.attend
    patch.setattr(Attention, "attend", lambda *args, **kwargs: attend(*args, **kwargs | {"position_ids": None}))


def let_biases_be_dropped(model: Any, patch: pytest.MonkeyPatch) -> None:
    """Says of FlashAttention that it adds them."""
    patch.setattr("zoo.models.capabilities.refusals", lambda config: {})
    patch.setattr("zoo.fast.attention.ADDS_BIASES", BACKENDS)


def forget_the_last_label(model: Any, patch: pytest.MonkeyPatch) -> None:
    original = chunked_loss.chunked_loss

    def shorter(states: Tensor, labels: Tensor, *rest: Any, **named: Any) -> Tensor:
        return original(states[:, :-1], labels[:, :-1], *rest, **named)

    patch.setattr(chunked_loss, "chunked_loss", shorter)


def take_values_for_queries(model: Any, patch: pytest.MonkeyPatch) -> None:
    project = FusedProjections.project
    patch.setattr(FusedProjections, "project", lambda self, states: project(self, states)[::-1])


def carry_states_into_the_next_document(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mixer_base, "mix_documents", lambda mix, states, documents: mix(states, None))


def mix_documents_in_a_cache(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stack, "packs_documents", lambda *args: False)
    patch.setattr(Context, "is_first", False)


def replay_in_place(model: Any, patch: pytest.MonkeyPatch) -> None:
    """Replayed steps leave the cache where it was."""
    patch.setattr(DecodeStep, "advance", lambda self, states: None)


def read_a_weight_outside_of_its_forward(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LearnedPosition, "embed", lambda self, embeds, ids: embeds + F.embedding(ids, self.weight))


def give_a_wrong_plain_form(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NORMS, "_items", dict(NORMS._items))
    form = type("OtherNorm", (LayerNorm,), {"plain": "models.doubled_norm:DoubledNorm"})
    NORMS.register("other-norm")(form)
    model.config.norm = "other-norm"


def replaced(target: Any, *change: Any) -> Break:
    """A defect that is another attribute of a class or a module; where only a text is given, the one of that name."""
    return lambda model, patch: patch.setattr(target, *change)


forget_the_seed = replaced(basics, "build", lambda name, task, seed: zoo.build(name, task))
leave_beams_unordered = replaced(Cache, "reorder_cache", lambda self, beams: None)
forget_the_window_on_flash = replaced("zoo.fast.attention.flash_window", lambda module, window: None)
never_step = replaced(torch.optim.Adam, "step", lambda self: None)
let_unpadded_sequences_see_everything = replaced(UnpaddedMask, "visible", lambda self, is_causal: None)
count_padding = replaced(stack, "EarlierLayers", lambda token_ids, is_token: EarlierLayers(token_ids))
keep_padding_in_a_state = replaced(convolution, "keep_last_tokens", lambda past, channels, is_token: None)
forget_at_padding = replaced(delta_net, "of_tokens", lambda is_token, states: states)
