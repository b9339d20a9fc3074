"""Verbs take a model also inside of torch's wrappers, and name what was given where it is no model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import zoo
from zoo.base.errors import ZooError
from zoo.inside import summary

pytestmark = pytest.mark.usefixtures("in_forks")

NAME = "gpt2-style@tiny:vocab_size=300"

VERBS: dict[str, Callable[[Any, Path], Any]] = {
    "show": lambda one, folder: str(zoo.show(one)),
    "to_int8": lambda one, folder: zoo.to_int8(one).num_parameters(),
    "eject": lambda one, folder: zoo.eject(one).text,
    "convert": lambda one, folder: zoo.convert(one).config.to_dict(),
    "export": lambda one, folder: zoo.export(one, folder / "out", "gpt2").class_name,
    "push": lambda one, folder: zoo.push(one, "someone/model", dry_run=True).files.keys(),
    "summary": lambda one, folder: str(summary(one)),
    "evaluate": lambda one, folder: zoo.evaluate(one, "copy").loss,
    "generate": lambda one, folder: zoo.generate(one, "a"),
    "train": lambda one, folder: zoo.train(one, "copy", max_steps=1),
    "load": lambda one, folder: zoo.load(one),
    "plan": lambda one, folder: zoo.plan(one),
    "diff": lambda one, folder: zoo.diff(one, NAME),
    "build": lambda one, folder: zoo.build(one),
    "describe": lambda one, folder: zoo.describe(one),
}
TAKE_FOREIGN = {"convert", "push", "summary", "evaluate", "generate", "train"}
TAKE_MODELS = {"show", "to_int8", "eject", "export", *TAKE_FOREIGN} - {"convert"}


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_no_model_is_named(verb: str, tmp_path: Path) -> None:
    modules = () if verb == "convert" else (torch.nn.Linear(1, 1),)
    for given in (None, 3, GPT2LMHeadModel, zoo.config(NAME), *modules):
        kind = type(given).__name__
        with pytest.raises(ZooError, match=rf"a {kind} was given|<class '[\w.]*\b{kind}'>"):
            VERBS[verb](given, tmp_path)


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - TAKE_FOREIGN))
def test_a_model_of_transformers_is_named_where_one_of_the_zoo_is_needed(verb: str, tmp_path: Path) -> None:
    native = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=50, bos_token_id=1, eos_token_id=1))
    with pytest.raises(ZooError, match="GPT2LMHeadModel"):
        VERBS[verb](native, tmp_path)


@pytest.mark.parametrize("verb", sorted(TAKE_MODELS - {"evaluate", "generate", "train"}))
def test_wrapped_models_are_as_plain_ones(verb: str, tmp_path: Path) -> None:
    model = zoo.build(NAME, "causal-lm", seed=0)
    expected = VERBS[verb](model, tmp_path / "plain")
    for number, wrap in enumerate((torch.compile, torch.nn.DataParallel)):
        assert VERBS[verb](wrap(model), tmp_path / str(number)) == expected


def test_wrapped_models_are_trained_evaluated_and_write(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on the mat\nthe dog ran to the park\n" * 20, encoding="utf-8")
    folder = tmp_path / "model"
    zoo.train("gpt2-style@tiny", "language-modeling", data=texts, max_steps=1, output_dir=folder)
    wraps: list[Callable[[Any], Any]] = [lambda one: one, torch.compile, torch.nn.DataParallel]
    losses, written, trained = [], [], []
    for wrap in wraps:
        model = wrap(zoo.load(folder))
        losses.append(zoo.evaluate(model, "language-modeling", data=texts, tokenizer=folder).loss)
        written.append(zoo.generate(model, "the cat", tokenizer=folder, max_new_tokens=4)[0].text)
        run = zoo.train(model, "language-modeling", data=texts, tokenizer=folder, max_steps=1)
        trained.append(run.model.get_input_embeddings().weight)
    assert losses[0] == losses[1] == losses[2] and written[0] == written[1] == written[2]
    torch.testing.assert_close(trained[0], trained[1], rtol=0, atol=0)
    torch.testing.assert_close(trained[0], trained[2], rtol=0, atol=0)


def test_an_unknown_format_is_named_before_the_folder_is_read(tmp_path: Path) -> None:
    zoo.build(NAME, "causal-lm").save_pretrained(tmp_path)
    with pytest.raises(ZooError, match="unknown converter 'gpt'"):
        zoo.convert(tmp_path, "gpt")
