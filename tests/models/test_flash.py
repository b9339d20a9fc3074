"""FlashAttention, written out: what is accepted on it comes out as on eager attention, and what cannot is refused."""

from contextlib import nullcontext
from unittest import mock

import pytest
import torch
import transformers.modeling_utils as modeling

import zoo
from zoo.base.errors import SequenceTooLongError, UnsupportedBackendError
from zoo.models import ZooPreTrainedModel
from zoo.models.capabilities import FLASH
from zoo.testing.backends import written_out_flash
from zoo.testing.fast_paths import rows_of_layers
from zoo.testing.subjects import randomize

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 60}
DECODERS = ["llama-style", "gpt2-style", "pre-norm", "gemma2-style", "gptj-style", "pre-norm:sliding_window=3"]
ENCODERS = ["bert-style", "pre-norm:sliding_window=2", "post-norm:position=rotary,sliding_window=3"]
DECODERS += ["gemma2-style:share_layers=true,sliding_window=3"]  # one module with and without a window
ENCODERS += ["modernbert-style:residual=plain,share_layers=true,sliding_window=2"]


def built(name: str, task: str, **settings) -> ZooPreTrainedModel:
    model = zoo.build(name, task, seed=0, dropout=0.0, attention_dropout=0.0, **SIZES, **settings)
    randomize(model)
    return model.double()


LENGTHS = {"right": [[0, 11], [0, 3], [0, 6]], "left": [[0, 11], [8, 11], [5, 11]], "none": [[0, 11]] * 3}


@pytest.mark.parametrize("side", LENGTHS)
@pytest.mark.parametrize(
    ("name", "task"), [*((name, "causal-lm") for name in DECODERS), *((name, "masked-lm") for name in ENCODERS)]
)
def test_padding_is_taken_out_once_before_all_layers(name, task, side):
    """Outputs and gradients are those of eager attention on the padded batch, windows and soft-capping included.

    Without padding too; of packed documents, every variant is checked.
    """
    model, ids = built(name, task).train(), torch.randint(5, 60, (3, 11))
    mask = torch.zeros_like(ids)
    for row, (start, end) in zip(mask, LENGTHS[side], strict=True):
        row[start:end] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
    found = []
    for backend in ("eager", "flash"):
        model.set_attn_implementation("eager")
        with written_out_flash(model) if backend == "flash" else nullcontext(), rows_of_layers() as rows:
            outputs = model(**inputs)
            outputs.loss.backward()
        found.append([outputs.logits[mask.bool()], *(parameter.grad for parameter in model.parameters())])
        model.zero_grad()
    # Of a decoder, the place before the first token predicts it, so that such a batch keeps its padding.
    assert rows == ({3} if (task, side) == ("causal-lm", "left") else {1})
    if rows == {1}:
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("rows", [1, 2])
def test_positions_that_begin_again_separate_no_text_of_an_encoder(name, rows):
    model, ids = built(name, "masked-lm"), torch.randint(5, 60, (rows, 11))
    inputs = {"input_ids": ids, "position_ids": torch.arange(11)[None].expand(rows, -1) % 6}
    model.set_attn_implementation("eager")
    expected = model(**inputs).logits
    with written_out_flash(model):
        torch.testing.assert_close(model(**inputs).logits, expected)


REFUSED = ["alibi-decoder", "pre-norm:position=t5", "vanilla", "t5-style"]


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("backend", [*FLASH, "kernels-community/flash-attn2", "someone/another-kernel"])
def test_what_flash_cannot_do_is_refused_even_with_a_substitute_kernel(name, backend):
    # With `kernels` installed and `flash_attn` not, transformers swaps names before it asks the model.
    with (
        mock.patch.object(modeling, "is_kernels_available", lambda *args, **kwargs: True),
        mock.patch.object(modeling, "lazy_import_flash_attention", lambda *args, **kwargs: None),
        pytest.raises(UnsupportedBackendError, match="cannot run on"),
    ):
        zoo.build(name, attn_implementation=backend, **SIZES)


def test_a_kernel_substitutes_where_flash_would_do():
    with (
        mock.patch.object(modeling, "is_kernels_available", lambda *args, **kwargs: True),
        mock.patch.object(modeling, "lazy_import_flash_attention", lambda *args, **kwargs: None),
    ):
        model = zoo.build("llama-style", attn_implementation="flash_attention_2", **SIZES)
    assert "flash" in model.config._attn_implementation


@pytest.mark.parametrize("name", ["alibi-decoder", "pre-norm:position=t5"])
def test_a_backend_that_may_drop_a_bias_is_refused_at_the_call(name):
    model = built(name, "causal-lm")
    with written_out_flash(model), pytest.raises(UnsupportedBackendError, match="adds no position biases"):
        model(input_ids=torch.ones(1, 3, dtype=torch.long))


@pytest.mark.parametrize(
    ("name", "task", "inputs"),
    [
        ("llama-style", "causal-lm", {"attention_mask": torch.ones(1, 1, 3, 3, dtype=torch.bool).tril()}),
        ("bert-style:masked_next_token=True", "masked-lm", {"causal_rows": torch.tensor([True])}),
    ],
)
def test_a_mask_of_queries_and_keys_is_refused_at_the_call(name, task, inputs):
    model = built(name, task)
    with written_out_flash(model), pytest.raises(UnsupportedBackendError, match="takes padding masks only"):
        model(input_ids=torch.ones(1, 3, dtype=torch.long), **inputs)


def test_positions_beyond_the_table_are_refused_before_they_are_looked_up():
    model = zoo.build("gpt2-style", max_position_embeddings=8, **SIZES)
    ids = torch.ones(1, 3, dtype=torch.long)
    with pytest.raises(SequenceTooLongError, match="8"):
        model(input_ids=ids, position_ids=torch.tensor([[5, 7, 9]]))
    model(input_ids=ids, position_ids=torch.tensor([[5, 6, 7]]))


def test_the_mean_of_a_long_sequence_is_finite_in_half_precision():
    from zoo.models.transformer import pool_mean

    states, mask = torch.full((1, 3000, 2), 40.0, dtype=torch.float16), torch.ones(1, 3000)
    assert torch.equal(pool_mean(states, mask), torch.full((1, 2), 40.0, dtype=torch.float16))


def test_a_seed_reads_no_other_devices_generators():
    with mock.patch.object(torch.cuda, "device_count", side_effect=AssertionError("a GPU was asked")):
        zoo.build("pre-norm@tiny", seed=1)
