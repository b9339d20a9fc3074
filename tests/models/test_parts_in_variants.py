"""The suite of a variant for parts that no variant has, or none with that stack."""

import pytest
from every_variant import OF_HEADS

import zoo
from zoo.testing import Case, cases

CAUSAL, MASKED, SEQ2SEQ = "causal-lm", "masked-lm", "seq2seq-lm"
ATTENTIONS = [
    (f"{name}:attention={part}", task)
    for part in ("differential", "exclusive", "gated", "latent", "sinks")
    for name, task in (("llama-style", CAUSAL), ("post-norm", SEQ2SEQ))
    if (part, task) != ("latent", SEQ2SEQ)
    and (part, task) not in {(zoo.config(one).attention, CAUSAL) for one in zoo.list_variants(task=CAUSAL)}
]
SHARED = "llama-style@tiny:attention=kv-sharing,num_hidden_layers=4,num_kv_shared_layers=2"
EVERY_LAYER = "attention=value-embeddings,value_embedding_interval=1"
SUBJECTS = [
    *ATTENTIONS,
    *((f"llama-style:mixer={mixer}", CAUSAL) for mixer in ("gated-delta-net", "kimi-delta-attention", "short-conv")),
    *((SHARED, CAUSAL), (SHARED.replace("llama-style", "gpt-oss-style"), CAUSAL)),
    *(("post-norm:attention=value-residual", task) for task in (CAUSAL, SEQ2SEQ)),
    ("gpt2-style@tiny:attention=value-embeddings", CAUSAL),
    *((f"bert-style@tiny:{EVERY_LAYER}", MASKED), (f"post-norm@tiny:{EVERY_LAYER}", SEQ2SEQ)),
    ("deepseek-v3-style:num_nextn_predict_layers=2", CAUSAL),
]


OF_ANY_STACK = {"gradient_checkpointing_gives_the_same_gradients", "int8_weights_give_nearly_the_same",
                "learns_a_batch", "low_precision_is_finite", "offloaded_weights_compute_the_same",
                "parameters_are_counted_without_building", "plain_forms_of_plugins_compute_the_same",
                "saves_and_reloads_bit_equal", "seed_makes_weights_reproducible",
                "training_is_the_same_on_every_fast_path"}  # fmt: skip
"""Checks that a part fails in a decoder, too; every part of an encoder-decoder is tried in one."""


def at_night(task: str) -> set[str]:
    return OF_HEADS | OF_ANY_STACK if task == SEQ2SEQ else OF_HEADS


@pytest.mark.thorough
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=pytest.mark.nightly if case.check.name in at_night(task) else ())
        for name, task in SUBJECTS
        for case in cases(name)
        if case.task == task
    ],
)
def test_every_check(case: Case) -> None:
    case()
