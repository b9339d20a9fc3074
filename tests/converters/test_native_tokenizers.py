"""Tokenizers of native checkpoints next to the models that are made of them."""

import json

import pytest
import transformers
from tokenizers import Tokenizer, models

from zoo.converters.errors import LostInputWarning
from zoo.converters.native.files import carry_tokenizer

pytestmark = pytest.mark.thorough


@pytest.fixture
def folders(tmp_path):
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    return tmp_path / "from", tmp_path / "to"


def test_tokenizer_files_are_carried_over(folders):
    saved, out = folders
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")), unk_token="[UNK]"
    )
    words.save_pretrained(saved)
    assert "tokenizer.json" in carry_tokenizer(saved, out)
    assert transformers.AutoTokenizer.from_pretrained(out).get_vocab() == words.get_vocab()


SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]"
PAIRS = {piece: number for number, piece in enumerate([*"aThectsĠ", "ca"])}
TOKENIZERS = {
    "vocab.txt": ("bert", {"vocab.txt": f"{SPECIAL}\na\ncat\nThe\n##s"}),
    "cased": ("bert", {"vocab.txt": f"{SPECIAL}\na\nThe", "tokenizer_config.json": '{"do_lower_case": false}'}),
    "merges.txt": ("gpt2", {"vocab.json": json.dumps(PAIRS), "merges.txt": "#version: 0.2\nc a\n"}),
}
"""Files of tokenizers that do not name their class, and the model type that does."""


@pytest.mark.parametrize("case", TOKENIZERS)
def test_tokenizers_load_beside_a_model_of_the_zoo(case, folders):
    model_type, files = TOKENIZERS[case]
    for folder, model in zip(folders, (model_type, "transformer-zoo"), strict=True):
        (folder / "config.json").write_text(json.dumps({"model_type": model}))
    for name, content in files.items():
        (folders[0] / name).write_text(content)
    assert sorted(carry_tokenizer(*folders)) == ["tokenizer.json", "tokenizer_config.json"]
    theirs, ours = map(transformers.AutoTokenizer.from_pretrained, folders)
    assert type(ours) is type(theirs)
    assert ours("The cats", "a cat") == theirs("The cats", "a cat")


def test_a_tokenizer_that_cannot_be_loaded_is_copied_with_a_warning(tmp_path):
    (tmp_path / "to").mkdir()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.warns(LostInputWarning, match="cannot be loaded here"):
        assert carry_tokenizer(tmp_path, tmp_path / "to") == ["tokenizer.json"]


@pytest.mark.parametrize("names_class", [True, False])
def test_every_template_of_conversations_is_carried_over(names_class, folders):
    saved, out = folders
    tokenizer = transformers.GPT2Tokenizer(vocab={"<|endoftext|>": 0, "a": 1}, merges=[])
    tokenizer.chat_template = {"default": "{{ messages }}", "tool_use": "{{ tools }}"}
    tokenizer.save_pretrained(saved)
    if not names_class:
        settings = json.loads((saved / "tokenizer_config.json").read_text())
        del settings["tokenizer_class"]
        (saved / "tokenizer_config.json").write_text(json.dumps(settings))
        (saved / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    carry_tokenizer(saved, out)
    assert transformers.AutoTokenizer.from_pretrained(out).chat_template == tokenizer.chat_template


@pytest.mark.parametrize(("model_type", "kind"), [("transformer-zoo", "GPT2Tokenizer"), ("qwen2", "Qwen2Tokenizer")])
def test_tokenizers_stay_of_the_class_that_they_are_next_to_a_model(model_type, kind, folders):
    saved, out = folders
    vocabulary = {"<|endoftext|>": 0, "1": 1, "2": 2, "12": 3}
    transformers.GPT2Tokenizer(vocab=vocabulary, merges=[("1", "2")]).save_pretrained(saved)
    (saved / "config.json").write_text(json.dumps({"model_type": model_type}))
    carry_tokenizer(saved, out)
    ours, theirs = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (out, saved))
    assert type(ours).__name__ == type(theirs).__name__ == kind
    assert ours("12")["input_ids"] == theirs("12")["input_ids"]


def test_the_side_of_padding_that_a_class_implies_is_written(folders):
    saved, out = folders
    tokenizer = transformers.CohereTokenizer(vocab={"<PAD>": 0, "a": 1}, merges=[])
    assert tokenizer.padding_side == "left"
    tokenizer.save_pretrained(saved)
    carry_tokenizer(saved, out)
    (out / "config.json").write_text(json.dumps({"model_type": "nemotron"}))
    assert transformers.AutoTokenizer.from_pretrained(out).padding_side == "left"
