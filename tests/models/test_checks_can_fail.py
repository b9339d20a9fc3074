"""Every check of `zoo.testing` notices the defect that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers.cache_utils import Cache, DynamicCache, StaticCache
from transformers.loss.loss_utils import ForMaskedLMLoss

import zoo
import zoo.errors
from zoo.fast import chunked_loss
from zoo.fast.attention import BACKENDS
from zoo.fast.decode_step import DecodeStep
from zoo.fast.unpadding import UnpaddedMask
from zoo.models import (
    Attention,
    LearnedPosition,
    Residual,
    TransformerLayer,
    ZooForCausalLM,
    ZooForConditionalGeneration,
    ZooForMaskedLM,
    language_modeling,
    stack,
)
from zoo.models import attention as attention_module
from zoo.quantizing import FusedProjections
from zoo.testing import CHECKS, Case, Subject, basics, cases, check_variant, new_subject
from zoo.testing.subjects import TARGET_LENGTH

pytestmark = pytest.mark.thorough

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


def forget_the_seed(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(basics, "build", lambda name, task, seed: zoo.build(name, task))


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
        return original(config, states, replace(context, attention_mask=None), *rest)

    patch.setattr(stack, "self_attention_masks", unpadded)


def swap_causality(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stack, "self_attention_masks", lambda config, *rest, **named: {"full_attention": None})
    for module in model.modules():
        if isinstance(module, Attention):
            module.is_causal = not module.is_causal


def mask_by_infinity(model: Any, patch: pytest.MonkeyPatch) -> None:
    original = stack.self_attention_masks

    def infinite(config: Any, states: torch.Tensor, context: Any, *rest: Any) -> dict[str, Any]:
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
    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
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

        def update(self: Any, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            keys, values = original(self, key, value, *args, **kwargs)
            return (keys.roll(1, dims=2) if type(self) is cache_class else keys), values

        patch.setattr(Cache, "update", update)

    return break_it


def leave_beams_unordered(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cache, "reorder_cache", lambda self, beams: None)


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

    def forward(self: Any, states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        output = original(self, states, *args, **kwargs)
        return output * torch.nan if states.dtype == torch.bfloat16 else output

    patch.setattr(Residual, "forward", forward)


def forget_the_window_on_flash(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("zoo.fast.attention.flash_window", lambda module: None)


def keep_positions_from_attention(model: Any, patch: pytest.MonkeyPatch) -> None:
    attend = Attention.attend
    patch.setattr(Attention, "attend", lambda *args, **kwargs: attend(*args, **kwargs | {"position_ids": None}))


def let_biases_be_dropped(model: Any, patch: pytest.MonkeyPatch) -> None:
    """Says of FlashAttention that it adds them."""
    patch.setattr("zoo.models.limits.refusals", lambda config: {})
    patch.setattr("zoo.fast.attention.ADDS_BIASES", BACKENDS)


def never_step(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.optim.Adam, "step", lambda self: None)


def forget_the_last_label(model: Any, patch: pytest.MonkeyPatch) -> None:
    original = chunked_loss.chunked_loss

    def shorter(states: torch.Tensor, labels: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        return original(states[:, :-1], labels[:, :-1], *rest, **named)

    patch.setattr(chunked_loss, "chunked_loss", shorter)


def take_values_for_queries(model: Any, patch: pytest.MonkeyPatch) -> None:
    project = FusedProjections.project
    patch.setattr(FusedProjections, "project", lambda self, states: project(self, states)[::-1])


def let_unpadded_sequences_see_everything(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnpaddedMask, "visible", lambda self, is_causal: None)


def replay_in_place(model: Any, patch: pytest.MonkeyPatch) -> None:
    """Replayed steps leave the cache where it was."""
    patch.setattr(DecodeStep, "advance", lambda self, states: None)


def read_a_weight_outside_of_its_forward(model: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LearnedPosition, "embed", lambda self, embeds, ids: embeds + F.embedding(ids, self.weight))


CAUSAL, MASKED, SEQ2SEQ = "causal-lm", "masked-lm", "seq2seq-lm"
DEFECTS: list[tuple[str, str, Break]] = [
    ("output_has_its_documented_shape", CAUSAL, drop_a_logit),
    ("loss_is_cross_entropy", CAUSAL, do_not_shift_labels),
    ("labels_become_decoder_inputs", SEQ2SEQ, decode_the_labels_themselves),
    ("every_parameter_gets_a_finite_gradient", CAUSAL, add_a_dead_parameter),
    ("saves_and_reloads_bit_equal", CAUSAL, scale_by_what_no_configuration_says),
    ("offloaded_weights_compute_the_same", CAUSAL, read_a_weight_outside_of_its_forward),
    ("body_and_head_load_from_each_other", CAUSAL, scale_by_what_no_configuration_says),
    ("seed_makes_weights_reproducible", CAUSAL, forget_the_seed),
    ("parameters_are_counted_without_building", CAUSAL, add_a_dead_parameter),
    ("inputs_embeds_equal_input_ids", CAUSAL, look_up_without_scaling),
    ("rows_do_not_depend_on_the_batch", MASKED, mix_the_batch),
    ("token_order_matters", MASKED, forget_positions),
    ("vocabulary_can_grow", CAUSAL, refuse_to_grow),
    ("padding_on_the_right_changes_nothing", MASKED, ignore_padding),
    ("padding_on_the_left_changes_nothing", MASKED, ignore_padding),
    ("padding_on_the_left_changes_nothing", CAUSAL, ignore_padding),
    ("decoder_is_causal", CAUSAL, swap_causality),
    ("encoder_sees_both_directions", MASKED, swap_causality),
    ("fully_masked_rows_are_finite", MASKED, mask_by_infinity),
    ("attention_backends_agree", MASKED, change_eager_attention),
    ("flash_attention_agrees", MASKED, forget_the_window_on_flash),
    ("flash_attention_agrees", CAUSAL, keep_positions_from_attention),
    ("flash_attention_agrees", CAUSAL, let_biases_be_dropped),
    ("engines_with_attention_of_their_own_compute_the_same", CAUSAL, give_all_layers_one_place),
    ("hidden_states_have_their_documented_shapes", CAUSAL, add_an_idle_layer),
    ("attention_weights_have_their_documented_shapes", CAUSAL, return_scores_for_weights),
    ("generation_with_a_cache_equals_without", CAUSAL, confuse_a_cache(DynamicCache)),
    ("replayed_steps_change_nothing", CAUSAL, replay_in_place),
    ("replayed_steps_change_nothing", SEQ2SEQ, replay_in_place),
    ("a_static_cache_equals_a_dynamic_one", CAUSAL, confuse_a_cache(StaticCache)),
    ("beam_search_equals_without_a_cache", CAUSAL, leave_beams_unordered),
    ("padded_prompts_generate_the_same", CAUSAL, ignore_padding),
    ("a_text_can_be_read_in_pieces", SEQ2SEQ, cache_the_source_at_every_step),
    ("a_text_can_be_read_in_pieces", CAUSAL, confuse_a_cache(DynamicCache)),
    ("logits_to_keep_selects_positions", CAUSAL, keep_the_first_positions),
    ("gradient_checkpointing_gives_the_same_gradients", MASKED, checkpoint_nothing),
    ("low_precision_is_finite", MASKED, overflow_in_low_precision),
    ("learns_a_batch", MASKED, never_step),
    ("unpadding_changes_nothing", MASKED, let_unpadded_sequences_see_everything),
    ("skipping_logits_changes_no_gradient", MASKED, forget_the_last_label),
    ("unpadding_changes_nothing", CAUSAL, let_unpadded_sequences_see_everything),
    ("int8_weights_give_nearly_the_same", CAUSAL, take_values_for_queries),
]


NEEDED = {
    forget_the_window_on_flash: ",sliding_window=4",
    keep_positions_from_attention: ",position=rotary",
    let_biases_be_dropped: ",position=alibi",
}
"""What a model has to have for some of them to matter."""


@pytest.mark.parametrize(
    ("name", "task", "break_it"), DEFECTS, ids=[f"{row[0]}-{row[1]}-{row[2].__name__}" for row in DEFECTS]
)
def test_a_defect_is_noticed(name: str, task: str, break_it: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = new_subject(f"pre-norm:scale_embedding=True{NEEDED.get(break_it, '')}", task)
    assert isinstance(subject.model, (ZooForCausalLM, ZooForMaskedLM, ZooForConditionalGeneration))
    check = CHECKS.get(name).function
    with torch.random.fork_rng():
        check(subject)
        break_it(subject.model, monkeypatch)
        with pytest.raises(AssertionError) as failure:
            check(subject)
    assert len(str(failure.value).splitlines()[0]) > 15, "the message says too little"


def test_every_check_has_a_defect() -> None:
    assert {row[0] for row in DEFECTS} == set(CHECKS.names())


def test_a_failing_case_says_which_variant_and_task(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in cases("gpt2-style") if case.check.name == "learns_a_batch")
    assert str(case) == "gpt2-style-causal-lm-learns_a_batch"
    never_step(None, monkeypatch)
    with pytest.raises(AssertionError, match=r"^gpt2-style, causal-lm: the loss went from"):
        case()


def test_cases_are_every_check_of_every_task() -> None:
    listed = cases(["bert-style", "pre-norm:position=rotary"], skip=["learns_a_batch"])
    assert {(case.variant, case.task) for case in listed} >= {
        ("bert-style", MASKED),
        ("pre-norm:position=rotary", SEQ2SEQ),
    }
    assert "learns_a_batch" not in {case.check.name for case in listed}
    flex = [case.task for case in cases("bert-style") if case.check.name == "attention_backends_agree"]
    assert flex == [MASKED], "one head is enough for what is about the body"
    assert all(isinstance(case, Case) for case in listed)


def test_a_check_that_does_not_exist_is_not_skipped_silently() -> None:
    with pytest.raises(zoo.errors.UnknownNameError, match="did you mean 'decoder_is_causal'"):
        cases("pre-norm", skip=["decoder_is_casual"])


def test_a_variant_can_be_checked_without_a_test_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(Case, "__call__", lambda self: ran.append(str(self)))
    assert check_variant("nlpt-encoder") == len(ran) > 40
    assert all(name.startswith("nlpt-encoder-") for name in ran)


def test_subjects_confuse_whoever_mixes_the_stacks_up() -> None:
    subject: Subject = new_subject("pre-norm", SEQ2SEQ)
    assert subject.config.decoder_layers != subject.config.num_hidden_layers
    assert subject.config.decoder_vocab_size != subject.config.vocab_size
    assert new_subject("gemma2-style", CAUSAL).config.sliding_window < TARGET_LENGTH
