"""Language modelling: every token counts once, and none that is not there."""

import json
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zoo
from zoo.base.errors import ConfigError
from zoo.data.corpora import sources
from zoo.data.tasks import DataError, DataSource, find_task, train_tokenizers
from zoo.data.tasks.blocks import BlockCollator, TokenBlocks
from zoo.fast.chunked_loss import IGNORED

TEXT = "".join(f"Line {i}: to be, or not to be?\n\nThat is {i * i}.\n" for i in range(40))


@given(st.integers(0, 60), st.integers(1, 20))
def test_blocks_meet_every_id_but_the_first_once_as_a_label(num_tokens, block_size):
    blocks = TokenBlocks(np.arange(num_tokens), block_size)
    labels = [label for block in blocks for label in block["labels"]]
    assert labels == list(range(1, num_tokens))
    assert [len(block["input_ids"]) for block in blocks] == blocks.lengths.tolist()
    assert all((block["labels"] == block["input_ids"] + 1).all() for block in blocks)


def test_blocks_that_begin_anywhere_are_those_of_nano_gpt():
    """Its `get_batch` draws beginnings below `len(data) - block_size`."""
    blocks = TokenBlocks(np.arange(20), 8, stride=1)
    assert [block["input_ids"][0] for block in blocks] == list(range(20 - 8))
    assert all(len(block["labels"]) == 8 for block in blocks)


@pytest.mark.parametrize(
    ("options", "source", "message"),
    [
        ("block_size=8", {"columns": ["a"]}, r"columns=\['a'\] were given, and .*a.txt is one text without any"),
        ("train_fraction=0.5", {"heldout": "a.txt"}, "train_fraction=0.5 was given, which divides one text without"),
        ("train_fraction=0.5", {"data": "b.jsonl"}, "train_fraction=0.5 was given, which divides one text without"),
        ("train_fraction=0.5,streaming=true", {}, "train_fraction=0.5 was given, which divides one text without"),
    ],
)
def test_options_that_a_text_does_not_read_are_refused(tmp_path, options, source, message):
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.jsonl").write_text('{"text": "a b"}\n' * 9)
    files = {name: str(tmp_path / value) for name, value in {"data": "a.txt", **source}.items() if name != "columns"}
    with pytest.raises((ConfigError, DataError), match=message):
        find_task(f"language-modeling:{options}").load_from(DataSource(**{**source, **files}))


def test_options_of_generation_are_refused_where_no_text_is_generated():
    with pytest.raises(
        ConfigError, match="generation={'num_beams': 2} was given, and no text is generated for language-"
    ):
        zoo.evaluate("gpt2-style.char-en", generation={"num_beams": 2})


def test_a_shorter_block_is_padded_and_does_not_count():
    batch = BlockCollator(0)([TokenBlocks(np.arange(5, 17), 8)[i] for i in range(2)])
    assert batch["labels"].ne(IGNORED).sum() == 11 and batch["attention_mask"].sum() == 11
    model = zoo.build("gpt2-style@tiny", "causal-lm", vocab_size=20, seed=0)
    with torch.no_grad():
        together = model(**batch).loss
        rows = [model(**BlockCollator(0)([block])) for block in TokenBlocks(np.arange(5, 17), 8)]
    assert together.item() == pytest.approx((8 * rows[0].loss.item() + 3 * rows[1].loss.item()) / 11, rel=1e-5)
    expected = torch.nn.functional.cross_entropy(rows[0].logits[0], torch.arange(6, 14))
    assert rows[0].loss.item() == pytest.approx(expected.item(), rel=1e-5)


@given(st.text(st.sampled_from("ab. \n"), max_size=60))
@settings(max_examples=300, deadline=None)
def test_long_texts_are_cut_where_no_token_reaches_across(text):
    tokenizer = TOKENIZER.source
    with mock.patch.object(sources, "PART_LENGTH", 3):
        parts = list(sources.cut(text))
    assert "".join(parts) == text
    ids = [i for part in parts for i in tokenizer.encode(part, add_special_tokens=False)]
    assert ids == tokenizer.encode(text, add_special_tokens=False)


TOKENIZER = train_tokenizers([TEXT, "a b\n\n  ab\n" * 9], kind="bpe", vocab_size=300)


@pytest.mark.parametrize("name, kind", [("text.txt", "character"), ("text.txt", "bpe"), ("babylm.train", "bpe")])
def test_the_first_part_of_a_text_is_trained_on(write, name, kind):
    file = write(name, TEXT)
    task = find_task("language-modeling:block_size=16,train_fraction=0.75")
    splits = task.load(file)
    border = int(len(TEXT) * 0.75)
    assert "".join(splits.train["text"]) == TEXT[:border] and "".join(splits.heldout["text"]) == TEXT[border:]
    tokenizers = task.train_tokenizers(splits.train, kind=kind)
    ids = tokenizers.source.encode(TEXT[border:], add_special_tokens=False)
    assert sum(task.encode(splits.heldout, tokenizers).lengths) == len(ids) - 1


def test_documents_end_where_the_next_begins(write):
    file = write("texts.jsonl", "".join(json.dumps({"id": i, "text": f"text {i}"}) + "\n" for i in range(40)))
    task = find_task("language-modeling:block_size=1000")
    splits = task.load(file)
    tokenizers = task.train_tokenizers(splits.train, kind="character")
    block = task.encode(splits.heldout, tokenizers)[0]
    text = tokenizers.source.decode([*block["input_ids"], block["labels"][-1]])
    assert text == "<eos>".join(splits.heldout["text"]) and len(splits.heldout) == 2
    assert tokenizers.source.bos_token == "<eos>"  # what a model has learned to begin a document after


def test_a_folder_of_texts(write):
    write("train.txt", TEXT)
    folder = write("validation.txt", "Not to be.\n").parent
    assert find_task("language-modeling").load(folder).heldout["text"][:] == ["Not to be.\n"]


@pytest.mark.parametrize("name", ["test.jsonl", "test.csv"])
def test_held_out_texts_of_a_table_are_its_rows(write, name):
    rows = "text\nNot to be.\n" if name.endswith("csv") else '{"text": "Not to be."}\n'
    heldout, train = write(name, rows), write("train.txt", TEXT)
    task = find_task("language-modeling")
    for splits in (task.load(train, heldout=heldout), task.load(train.parent)):
        assert splits.heldout["text"][:] == ["Not to be."]


@pytest.mark.parametrize(
    ("name", "variant", "least"),
    [
        ("language-modeling", "gpt2-style", 6),
        ("masked-next-token", "gpt-bert-style", 6),
        ("span-corruption", "t5-style", 2),  # labels are the spans alone
    ],
)
def test_tokens_that_the_tokenizer_does_not_know_are_counted_in_signatures(write, name, variant, least):
    """A model that guesses one token for all of them has a low loss, and has read nothing."""
    task = find_task(f"{name}:block_size=16")
    heldout = write("held.txt", "to ask or not to dare " * 20)
    splits = task.load(write("train.txt", "to be or not to be " * 20), heldout=heldout)
    tokenizers = task.train_tokenizers(splits.train, kind="word")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = zoo.build(variant, task.model_task, **sizes, **task.model_settings(tokenizers))
    found = zoo.evaluate(model, f"{name}:block_size=16", data=splits.heldout, tokenizer=tokenizers, n_bootstrap=1)
    labels = [np.asarray(block["labels"]) for block in task.encode(splits.heldout, tokenizers)]
    unknown = int((np.concatenate(labels) == tokenizers.source.unk_token_id).sum())
    signatures = [score.signature for score in found.scores.values() if score.name != "Accuracy"]
    assert unknown >= least and all(f"|unknown:{unknown}" in one for one in signatures)
    known = zoo.evaluate(model, f"{name}:block_size=16", data=splits.train, tokenizer=tokenizers, n_bootstrap=1)
    assert not any("unknown" in score.signature for score in known.scores.values())


@pytest.mark.parametrize(
    ("kind", "lossy"),
    [("bpe", False), ("character", False), ("word:min_frequency=1", True), ("bpe:lower_case=true", True)],
)
def test_bits_per_byte_of_a_tokenizer_that_does_not_give_the_text_back_have_a_note(write, kind, lossy):
    """Blanks or capitals that a tokenizer drops cost no bits, so that such bits compare with no others."""
    task = find_task("language-modeling:block_size=16")
    rows = "".join(json.dumps({"text": f"To be,  or not\nto be {number % 7}?"}) + "\n" for number in range(40))
    splits = task.load(write("train.jsonl", rows), heldout=write("held.jsonl", rows[: len(rows) // 2]))
    tokenizers = task.train_tokenizers(splits.train, kind=kind)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = zoo.build("gpt2-style", task.model_task, **sizes, **task.model_settings(tokenizers))
    found = zoo.evaluate(model, "language-modeling:block_size=16", data=splits.heldout, tokenizer=tokenizers).scores
    assert ("|lossy" in found["bits_per_byte"].signature) == lossy and "lossy" not in found["perplexity"].signature


@pytest.mark.parametrize(("content", "message"), [("\n \n", "text.txt is empty"), ("x", "has 1 characters, too few")])
def test_bad_texts_are_named(write, content, message):
    with pytest.raises(DataError, match=message):
        find_task("language-modeling").load(write("text.txt", content))


def test_too_few_tokens(write):
    task = find_task("language-modeling:block_size=64,stride=1,train_fraction=0.5")
    splits = task.load(write("text.txt", TEXT[:100]))
    tokenizers = task.train_tokenizers(splits.train, kind="character")
    assert len(task.encode(splits.train, tokenizers)) == 1
    with pytest.raises(DataError, match="have 50 tokens; at least 65"):
        task.encode(splits.train, tokenizers, training=True)
