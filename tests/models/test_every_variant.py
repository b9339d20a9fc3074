"""Every property of `zoo.testing`, for every task of every variant that the registry lists."""

from typing import Any

import pytest
from every_variant import EVERY_BODY, EVERY_HEAD, EVERY_TIME, OF_HEADS, enough, first_heads

import zoo
from zoo.models.parts import PART_FIELDS
from zoo.registry import VARIANTS
from zoo.testing import Case, cases

FEW = ("pre-norm", "odom-style", "gemma2-style")
"""Variants for every task, with a stack of its own, and with most kinds of parts: enough between two edits."""

OF_BODIES = {"fully_masked_rows_are_finite", "inputs_embeds_equal_input_ids", "unpadding_changes_nothing",
             "hidden_states_have_their_documented_shapes", "token_order_matters",
             "plain_forms_of_plugins_compute_the_same"}  # fmt: skip
"""Checks that are about bodies alone."""

OF_PARTS = {"a_static_cache_equals_a_dynamic_one", "attention_backends_agree", "beam_search_equals_without_a_cache",
            "attention_weights_have_their_documented_shapes", "flash_attention_agrees",
            "gradient_checkpointing_gives_the_same_gradients", "int8_weights_give_nearly_the_same", "learns_a_batch",
            "low_precision_is_finite", "offloaded_weights_compute_the_same", "padded_prompts_generate_the_same",
            "replayed_steps_change_nothing", "seed_makes_weights_reproducible",
            "training_is_the_same_on_every_fast_path"}  # fmt: skip
"""Checks that fail by one part or by how it is put in place, with any other parts: those that take longest."""

OF_OTHERS = {"output_has_its_documented_shape", "saves_and_reloads_bit_equal", "decoder_is_causal",
             "padding_on_the_left_changes_nothing", "padding_on_the_right_changes_nothing",
             "rows_do_not_depend_on_the_batch", "generation_with_a_cache_equals_without"}  # fmt: skip
"""What is tried of each other variant with one head a stack."""


def parts_of(pair: tuple[str, str]) -> set[tuple[str, Any]]:
    """The named parts of a model, where they are, and the file of its builder."""
    config = zoo.config(*pair)
    names = {*PART_FIELDS, "stack", "norm_placement", "parallel_residual", "qk_norm", "share_layers"} - {"hidden_act"}
    return {(name, getattr(config, name)) for name in names} | {
        ("attention and position", (config.attention, config.position)),
        ("builder", VARIANTS.get(config.variant).origin.module),
        ("slides", config.sliding_window is not None),
    }


OFTEN = enough(sorted(EVERY_TIME), parts_of)  # As few of these as have every part

TRIED_OF = {
    **dict.fromkeys(OF_HEADS, EVERY_HEAD),
    **dict.fromkeys(OF_BODIES, EVERY_BODY),
    **dict.fromkeys(OF_PARTS, OFTEN),
}
"""Cases of checks that have others than `EVERY_TIME`."""


def marks_of(case: Case) -> tuple[pytest.MarkDecorator, ...]:
    """When a case is tried: those of a few variants between two edits, others each time, the rest at night."""
    group = pytest.mark.xdist_group(case.variant)  # its models are built once
    pair, name = (case.variant, case.task), case.check.name
    if case.variant in FEW and (name != "training_is_the_same_on_every_fast_path" or pair in OFTEN):
        return (group,)
    if pair in TRIED_OF.get(name, EVERY_TIME) or (name in OF_OTHERS and pair in first_heads(case.variant)):
        return (group, pytest.mark.thorough)
    return (group, pytest.mark.thorough, pytest.mark.nightly)


@pytest.mark.parametrize("case", [pytest.param(case, marks=marks_of(case)) for case in cases()], ids=str)
@pytest.mark.usefixtures("on_device")
def test_every_variant(case: Case) -> None:
    case()


def test_a_device_that_is_not_there_is_refused(request: pytest.FixtureRequest) -> None:
    (conftest,) = (plugin for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "check_device"))
    for name in ("cuda:99", "nowhere"):
        with pytest.raises(pytest.UsageError, match=f"--device {name} cannot be used here"):
            conftest.check_device(name)
