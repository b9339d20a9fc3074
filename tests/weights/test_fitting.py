"""Weights with other heads and vocabularies than they were trained with, and training that starts from them."""

import pytest
import torch

import zoo
from zoo.base.errors import CheckpointError, ConfigError, ZooWarning
from zoo.building.loading import NewHeadWarning
from zoo.registry import find_weights


def test_another_number_of_labels_makes_a_new_head_and_says_so() -> None:
    old = zoo.build("vanilla.language")
    with pytest.warns(NewHeadWarning, match=r"new and random, because num_labels=5: .*classifier"):
        new = zoo.build("vanilla.language", num_labels=5)
    assert new.num_labels == 5
    kept = [
        name for name, tensor in new.state_dict().items() if torch.equal(tensor, old.state_dict().get(name, 0 * tensor))
    ]
    changed = sorted(set(new.state_dict()) - set(kept))
    assert changed and all("classifier" in name or "score" in name for name in changed)


def test_another_vocabulary_makes_new_embeddings_and_says_so() -> None:
    with pytest.warns(NewHeadWarning, match=r"because vocab_size=30, decoder_vocab_size=30"):
        model = zoo.build("vanilla", weights="en-pt", vocab_size=30, decoder_vocab_size=30)
    assert model.get_input_embeddings().weight.shape[0] == 30
    with pytest.raises(CheckpointError, match="other sizes than hidden_size=32 asks for"):
        zoo.build("vanilla.en-pt", hidden_size=32)


def test_embeddings_of_other_tokens_are_named() -> None:
    old = zoo.load("vanilla.en-pt")
    size = {"kind": "bpe", "vocab_size": old.config.vocab_size, "lower_case": True}
    with pytest.warns(ZooWarning, match="tokens of vanilla.en-pt have other ids in the given tokenizer"):
        zoo.train("vanilla", init="vanilla.en-pt", tokenizer=size, max_steps=1, scored=False, progress=False)


@pytest.mark.slow
def test_training_starts_from_weights() -> None:
    result = zoo.train(
        "vanilla", recipe="small-translation", init="vanilla.en-pt", max_steps=1, scored=False, progress=False
    )
    recorded = find_weights("vanilla.en-pt").scores["loss"].value
    assert result.report.heldout_loss == pytest.approx(recorded, abs=0.01), "one step of a warm-up changes little"
    assert result.run.recipe.init == "vanilla.en-pt"
    with pytest.raises(ConfigError, match=r"vanilla\.en-pt holds weights of 'vanilla', and training 'd2l-style'"):
        zoo.train("d2l-style", init="vanilla.en-pt", max_steps=1, progress=False)
