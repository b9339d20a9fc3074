"""Every property of `zoo.testing`, for every task of every variant that the registry lists."""

import pytest
from every_variant import EVERY_PART, ONE_TASK, enough, kinds_of

import zoo
from zoo.building.builder import stack_of
from zoo.models.parts import PART_FIELDS
from zoo.registry import VARIANTS
from zoo.testing import Case, cases

FEW = ("pre-norm", "odom-style", "gemma2-style")
"""Variants for every task, with a stack of its own, and with most kinds of parts: enough between two edits."""

READ_BY_HEADS = {
    *("stack", "norm_placement", "final_norm", "embedding_norm", "num_nextn_predict_layers"),
    *("tie_word_embeddings", "share_encoder_decoder_embeddings", "lm_head_bias", "lm_head_transform"),
    *("logit_scale", "final_logit_softcapping", "classifier_pooling", "classifier_pooler_act"),
    *("classifier_positions", "classifier_bias"),
}
"""Settings that heads read, and those that say what comes to them."""


def kinds_of_head(pair: tuple[str, str]) -> set[tuple[str, str, str]]:
    """What a head is for, with each of the settings that it reads."""
    task = pair[1]
    return {(task, name, str(kind)) for name, kind in kinds_of(pair) if name in READ_BY_HEADS}


def first_heads(name: str) -> set[tuple[str, str]]:
    """A variant's first task of every stack."""
    variant = VARIANTS.get(name)
    firsts = {stack_of(variant, task): (name, str(task)) for task in reversed(variant.tasks)}
    return {*firsts.values()}


EVERY_HEAD = enough([(name, str(task)) for name in ONE_TASK for task in VARIANTS.get(name).tasks], kinds_of_head)
"""As few models as have every head with every stack, and with every value of a setting that it reads."""

EVERY_TIME = EVERY_HEAD.union(*map(first_heads, EVERY_PART))
"""What everything is tried of, each time: heads, and bodies with one head a stack."""

OF_OTHERS = {"output_has_its_documented_shape", "saves_and_reloads_bit_equal", "learns_a_batch", "decoder_is_causal",
             "padding_on_the_left_changes_nothing", "padding_on_the_right_changes_nothing",
             "rows_do_not_depend_on_the_batch", "generation_with_a_cache_equals_without"}  # fmt: skip
"""What is tried of each other variant with one head a stack."""


def parts_of(pair: tuple[str, str]) -> set[tuple[str, str]]:
    """The named parts of a model, and its stack."""
    config = zoo.config(*pair)
    return {(field, getattr(config, field)) for field in (*(PART_FIELDS.keys() - {"hidden_act"}), "stack")}


OFTEN = enough(sorted(EVERY_TIME), parts_of)
"""As few of these as have every part."""


def marks_of(case: Case) -> tuple[pytest.MarkDecorator, ...]:
    """When a case is tried: all of a few variants between two edits, `EVERY_TIME` each time, the rest at night."""
    group = pytest.mark.xdist_group(case.variant)  # its models are built once
    pair = case.variant, case.task
    if case.check.name == "training_is_the_same_on_every_fast_path" and pair not in OFTEN:
        return (group, pytest.mark.thorough, pytest.mark.nightly)
    if case.variant in FEW:
        return (group,)
    if pair in EVERY_TIME or (case.check.name in OF_OTHERS and pair in first_heads(case.variant)):
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
