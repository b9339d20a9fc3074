"""What a reader has already when a document's first snippet begins: files of their own, or a model."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

import zoo
from zoo.building.weights import locate
from zoo.converters import convert_back
from zoo.models import Transformer

Names = dict[str, Any]

TRANSLATOR = "vanilla.en-pt"


def pairs(names: Names) -> None:
    """Forty pairs of sentences."""
    lines = zoo.data.tasks.TASKS.get("translation").load().train.select(range(40))
    Path("pairs.tsv").write_text("en\tpt\n" + "".join(f"{one['en']}\t{one['pt']}\n" for one in lines), encoding="utf-8")


def reviews_and_a_model(names: Names) -> None:
    """Texts with labels, and a checkpoint with its tokenizer."""
    words = (("A good", "pos"), ("No", "neg"))
    texts = [f"{word} film number {number}\t{label}\n" for number in range(20) for word, label in words]
    Path("reviews.tsv").write_text("text\tlabel\n" + "".join(texts), encoding="utf-8")
    zoo.build("pre-norm@tiny", "seq2seq-lm", vocab_size=2000).save_pretrained("models/mine")
    tokenizer().save_pretrained("models/mine")


def a_folder(names: Names) -> None:
    """A trained translator."""
    shutil.copytree(locate(TRANSLATOR), "models/en-pt")


def a_model(names: Names) -> None:
    """A model with its tokenizer, and in a folder."""
    names |= {"model": zoo.build(TRANSLATOR), "tokenizer": tokenizer()}
    shutil.copytree(locate(TRANSLATOR), "my-model")


def foreign_models(names: Names) -> None:
    """One of transformers' classes, alive and in a folder, and a file of an original."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    names["their_model"] = BertForMaskedLM(BertConfig(vocab_size=50, **sizes)).eval()
    names["their_model"].save_pretrained("path/to/bert")
    torch.save(convert_back(zoo.build("vanilla@tiny+faithful", vocab_size=50, num_attention_heads=8)), "model.pt")


def my_variant(names: Names) -> None:
    """A variant of the reader's own."""
    if "my-variant" not in zoo.list_variants():
        zoo.register("my-variant", tasks=("causal-lm",), source="a test")(lambda config: Transformer())


def a_model_and_inputs(names: Names) -> None:
    """A model, and what it reads."""
    names |= {"model": zoo.build("pre-norm@tiny", vocab_size=20), "inputs": {"input_ids": torch.tensor([[5, 6, 7]])}}


def a_small_decoder(names: Names) -> None:
    """A folder with one."""
    zoo.build("llama-style@tiny", vocab_size=20).save_pretrained("my-model")


def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(locate(TRANSLATOR))


BEFORE: dict[str, Callable[[Names], object]] = {
    "converters/conversion.py": foreign_models,
    "converters/exporting.py": a_model,
    "docs/hub.md": a_model,
    "docs/inside.md": a_folder,
    "docs/on-device.md": a_small_decoder,
    "docs/training.md": pairs,
    "docs/weights.md": reviews_and_a_model,
    "zoo/testing/__init__.py": my_variant,
    "zoo/testing/cases.py": my_variant,
    "zoo/testing/device.py": a_model_and_inputs,
}
