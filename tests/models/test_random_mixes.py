"""Variants with random settings: generation, padding, saving, on seeded random mixes."""

import random
from typing import Any

import pytest
from models.formulas import run_checks
from models.test_pairs_of_parts import AXES

import zoo
from zoo.base.errors import ZooError
from zoo.registry import VARIANTS, Task, VariantSpec

FEW, QUICK, ALL = 4, 12, 48  # How many mixes are drawn: between two edits, by day and at night

CHECKED = (
    "generation_with_a_cache_equals_without",
    "a_static_cache_equals_a_dynamic_one",
    "beam_search_equals_without_a_cache",
    "padded_prompts_generate_the_same",
    "a_text_can_be_read_in_pieces",
    "padding_on_the_right_changes_nothing",
    "padding_on_the_left_changes_nothing",
    "rows_do_not_depend_on_the_batch",
    "decoder_is_causal",
    "unpadding_changes_nothing",
    "saves_and_reloads_bit_equal",
)

SETTINGS: dict[str, list[Any]] = {
    **{field: AXES[field] for field in ("position", "norm", "attention", "residual", "feed_forward", "mixer")},
    **{field: AXES[field] for field in ("norm_placement", "qk_norm")},
    **{field: AXES[field] for field in ("residual_scaling", "attn_logit_softcapping", "tie_word_embeddings")},
    **{field: AXES[field] for field in ("share_layers", "parallel_residual")},
    "num_hidden_layers": [1, 2, 3],
    "decoder_layers": [1, 2, 4],
    "num_key_value_heads": [1, 2],
    "head_dim": [None, 6],
    "embedding_norm": [True, False],
    "attention_bias": [True, False],
    "final_logit_softcapping": [None, 5.0],
    "share_encoder_decoder_embeddings": [True, False],
}
"""Choices that are drawn from, in addition to windows."""

WINDOWS: list[dict[str, Any]] = [
    {"sliding_window": 1},
    {"sliding_window": 2},
    {"sliding_window": 4},
    {"sliding_window": 64},
    {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]},
    {"sliding_window": 3, "layer_types": ["full_attention", "sliding_attention"]},
    {"sliding_window": 3, "layer_types": ["full_attention"]},
]
"""A window of one position, some that bind, one that does not, and layers of both kinds."""


def draw(seed: int) -> tuple[str, str]:
    """A name with settings that some model can have, and a task: half of them have a window."""
    generator = random.Random(seed)
    while True:
        variant = generator.choice(zoo.list_variants())
        tasks = [task for task in VARIANTS.get(variant).tasks if task in (Task.CAUSAL_LM, Task.SEQ2SEQ_LM)]
        task = str(generator.choice(tasks or VARIANTS.get(variant).tasks))
        fields = generator.sample(sorted(SETTINGS), generator.randint(0, 4))
        chosen = {field: generator.choice(SETTINGS[field]) for field in fields}
        if generator.random() < 0.5:
            chosen |= generator.choice(WINDOWS)
        name = str(VariantSpec(variant, overrides=chosen))
        try:
            zoo.config(name, task)
        except ZooError:  # settings that contradict each other
            continue
        return name, task


MIXES = [draw(seed) for seed in range(ALL)]


def marks_of(number: int) -> list[pytest.MarkDecorator]:
    """When a mix is tried."""
    return [pytest.mark.thorough] * (number >= FEW) + [pytest.mark.nightly] * (number >= QUICK)


@pytest.mark.parametrize(
    ("name", "task"), [pytest.param(*mix, id="-".join(mix), marks=marks_of(number)) for number, mix in enumerate(MIXES)]
)
def test_a_random_mix_is_a_model_like_any_other(name, task):
    run_checks(name, task, CHECKED)
