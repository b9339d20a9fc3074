"""Every check of `zoo.testing` notices the defect that it is there for."""

import pytest
import torch
from models import defects
from models.defects import Break
from transformers.cache_utils import DynamicCache, StaticCache

import zoo
import zoo.base.errors
from zoo.models import ZooForCausalLM, ZooForConditionalGeneration, ZooForMaskedLM
from zoo.testing import CHECKS, Case, Subject, cases, check_variant, new_subject
from zoo.testing.subjects import TARGET_LENGTH

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("in_forks")]

CAUSAL, MASKED, SEQ2SEQ = "causal-lm", "masked-lm", "seq2seq-lm"
DEFECTS: list[tuple[str, str, Break]] = [
    ("output_has_its_documented_shape", CAUSAL, defects.drop_a_logit),
    ("loss_is_cross_entropy", CAUSAL, defects.do_not_shift_labels),
    ("labels_become_decoder_inputs", SEQ2SEQ, defects.decode_the_labels_themselves),
    ("every_parameter_gets_a_finite_gradient", CAUSAL, defects.add_a_dead_parameter),
    ("saves_and_reloads_bit_equal", CAUSAL, defects.scale_by_what_no_configuration_says),
    ("offloaded_weights_compute_the_same", CAUSAL, defects.read_a_weight_outside_of_its_forward),
    ("body_and_head_load_from_each_other", CAUSAL, defects.scale_by_what_no_configuration_says),
    ("seed_makes_weights_reproducible", CAUSAL, defects.forget_the_seed),
    ("parameters_are_counted_without_building", CAUSAL, defects.add_a_dead_parameter),
    ("inputs_embeds_equal_input_ids", CAUSAL, defects.look_up_without_scaling),
    ("rows_do_not_depend_on_the_batch", MASKED, defects.mix_the_batch),
    ("token_order_matters", MASKED, defects.forget_positions),
    ("vocabulary_can_grow", CAUSAL, defects.refuse_to_grow),
    ("padding_on_the_right_changes_nothing", MASKED, defects.ignore_padding),
    ("padding_on_the_left_changes_nothing", MASKED, defects.ignore_padding),
    ("padding_on_the_left_changes_nothing", CAUSAL, defects.ignore_padding),
    ("gaps_in_a_mask_change_nothing", CAUSAL, defects.ignore_padding),
    ("gaps_in_a_mask_change_nothing", CAUSAL, defects.keep_padding_in_a_state),
    ("gaps_in_a_mask_change_nothing", CAUSAL, defects.forget_at_padding),
    ("packed_documents_equal_separate_ones", CAUSAL, defects.carry_states_into_the_next_document),
    ("packed_documents_equal_separate_ones", CAUSAL, defects.mix_documents_in_a_cache),
    ("decoder_is_causal", CAUSAL, defects.swap_causality),
    ("encoder_sees_both_directions", MASKED, defects.swap_causality),
    ("fully_masked_rows_are_finite", MASKED, defects.mask_by_infinity),
    ("attention_backends_agree", MASKED, defects.change_eager_attention),
    ("flash_attention_agrees", MASKED, defects.forget_the_window_on_flash),
    ("flash_attention_agrees", CAUSAL, defects.keep_positions_from_attention),
    ("flash_attention_agrees", CAUSAL, defects.let_biases_be_dropped),
    ("engines_with_attention_of_their_own_compute_the_same", CAUSAL, defects.give_all_layers_one_place),
    ("hidden_states_have_their_documented_shapes", CAUSAL, defects.add_an_idle_layer),
    ("attention_weights_have_their_documented_shapes", CAUSAL, defects.return_scores_for_weights),
    ("generation_with_a_cache_equals_without", CAUSAL, defects.confuse_a_cache(DynamicCache)),
    ("replayed_steps_change_nothing", CAUSAL, defects.replay_in_place),
    ("replayed_steps_change_nothing", SEQ2SEQ, defects.replay_in_place),
    ("a_static_cache_equals_a_dynamic_one", CAUSAL, defects.confuse_a_cache(StaticCache)),
    ("beam_search_equals_without_a_cache", CAUSAL, defects.leave_beams_unordered),
    ("padded_prompts_generate_the_same", CAUSAL, defects.ignore_padding),
    ("a_text_can_be_read_in_pieces", SEQ2SEQ, defects.cache_the_source_at_every_step),
    ("a_text_can_be_read_in_pieces", CAUSAL, defects.confuse_a_cache(DynamicCache)),
    ("logits_to_keep_selects_positions", CAUSAL, defects.keep_the_first_positions),
    ("gradient_checkpointing_gives_the_same_gradients", MASKED, defects.checkpoint_nothing),
    ("low_precision_is_finite", MASKED, defects.overflow_in_low_precision),
    ("learns_a_batch", MASKED, defects.never_step),
    ("unpadding_changes_nothing", MASKED, defects.let_unpadded_sequences_see_everything),
    ("training_is_the_same_on_every_fast_path", MASKED, defects.let_unpadded_sequences_see_everything),
    ("training_is_the_same_on_every_fast_path", CAUSAL, defects.count_padding),
    ("skipping_logits_changes_no_gradient", MASKED, defects.forget_the_last_label),
    ("unpadding_changes_nothing", CAUSAL, defects.let_unpadded_sequences_see_everything),
    ("int8_weights_give_nearly_the_same", CAUSAL, defects.take_values_for_queries),
    ("plain_forms_of_plugins_compute_the_same", CAUSAL, defects.give_a_wrong_plain_form),
]


NEEDED = {
    defects.carry_states_into_the_next_document: ",mixer=short-conv",
    defects.forget_at_padding: ",mixer=gated-delta-net",
    defects.keep_padding_in_a_state: ",mixer=short-conv",
    defects.count_padding: ",feed_forward=moe-sigmoid,num_experts=4",
    defects.forget_the_window_on_flash: ",sliding_window=4",
    defects.keep_positions_from_attention: ",position=rotary",
    defects.let_biases_be_dropped: ",position=alibi",
}
"""What a model has to have for some of them to matter."""


@pytest.mark.parametrize(("name", "task", "break_it"), DEFECTS, ids=[f"{name}-{task}" for name, task, _ in DEFECTS])
def test_a_defect_is_noticed(name: str, task: str, break_it: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = new_subject(f"pre-norm:scale_embedding=True{NEEDED.get(break_it, '')}", task)
    assert isinstance(subject.model, (ZooForCausalLM, ZooForMaskedLM, ZooForConditionalGeneration))
    check = CHECKS.get(name).function
    with torch.random.fork_rng():
        check(subject)
        break_it(subject.model, monkeypatch)
        with pytest.raises(AssertionError) as failure:
            check(subject)
    assert len(str(failure.value).splitlines()[0]) > 15, "the message is too short"


def test_every_check_has_a_defect() -> None:
    assert {row[0] for row in DEFECTS} == set(CHECKS.names())


def test_a_failing_case_names_its_variant_and_task(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in cases("gpt2-style") if case.check.name == "learns_a_batch")
    assert str(case) == "gpt2-style-causal-lm-learns_a_batch"
    defects.never_step(None, monkeypatch)
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
    with pytest.raises(zoo.base.errors.UnknownNameError, match="did you mean 'decoder_is_causal'"):
        cases("pre-norm", skip=["decoder_is_casual"])
    with pytest.raises(zoo.base.errors.UnknownVariantError, match=r"unknown variant 'my-\*'"):
        cases("my-*")


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


@pytest.mark.parametrize("task", [CAUSAL, MASKED, SEQ2SEQ])
def test_a_padded_query_with_no_token_in_its_window_is_no_defect(task: str) -> None:
    subject = new_subject("pre-norm:sliding_window=2", task)
    CHECKS.get("attention_weights_have_their_documented_shapes").function(subject)
