"""What runs execute and hold, where the answer is known."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import zoo
from zoo.analysis.measuring import executed, peak_bytes
from zoo.base.errors import UnsupportedOperationError
from zoo.fast import chunked_loss
from zoo.fast.switches import fast_paths

ROWS, HEADS, QUERIES, KEYS, DIM = 2, 3, 5, 7, 8


def test_products_are_counted_and_operators():
    left, right = torch.ones(3, 4), torch.ones(4, 5)
    assert executed(lambda: left @ right + 1) == (2 * 3 * 4 * 5, 2)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_on_a_cpu_is_counted(causal):
    query, key, value = (torch.randn(ROWS, HEADS, length, DIM, requires_grad=True) for length in (QUERIES, KEYS, KEYS))
    forward = 2 * 2 * ROWS * HEADS * QUERIES * KEYS * DIM
    with torch.no_grad():
        found = executed(lambda: F.scaled_dot_product_attention(query, key, value, is_causal=causal)).flops
    assert found == forward
    found = executed(lambda: F.scaled_dot_product_attention(query, key, value, is_causal=causal).sum().backward())
    assert found.flops == 3 * forward


def test_the_fast_path_of_an_encoder_is_counted():
    width, inner, lengths = 16, 24, (6, 4)
    layer = nn.TransformerEncoderLayer(width, 2, inner, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3).eval()
    states, padding = torch.randn(2, 6, width), torch.arange(6) >= torch.tensor(lengths)[:, None]
    weights = 4 * width * width + 2 * width * inner
    expected = 3 * sum(2 * length * weights + 4 * length * length * width for length in lengths)
    with torch.inference_mode():
        assert executed(lambda: encoder(states, src_key_padding_mask=padding)).flops == expected


def test_a_compiled_model_counts_like_itself():
    model = nn.Linear(4, 5)
    compiled = torch.compile(model, backend="eager")
    inputs = torch.ones(3, 4)
    compiled(inputs)
    assert executed(lambda: compiled(inputs)) == executed(lambda: model(inputs))


def test_a_loss_that_finds_its_gradients_by_itself_is_counted():
    model = zoo.build("gpt2-style@tiny", vocab_size=50, attention_dropout=0.0).train()
    ids = torch.arange(3, 19).view(2, 8)

    def step() -> None:
        model(input_ids=ids, labels=ids, skip_logits=True).loss.backward()

    with fast_paths(chunked_loss="never"):
        plain = executed(step).flops
    with fast_paths(chunked_loss="always"):
        chunked = executed(step).flops
    # The last token of a sequence has no successor, and so no logits.
    assert plain - chunked == 3 * 2 * 2 * model.config.hidden_size * 50


def test_the_peak_is_what_is_held_at_once():
    def run() -> None:
        first = torch.empty(1000)
        second = torch.empty(3000)
        del first
        torch.empty(500).add(second[:500])

    assert 4 * 4000 <= peak_bytes(run) < 4 * 4500
    kept = torch.zeros(10_000)
    assert peak_bytes(kept.zero_) < 1000
    with pytest.raises(UnsupportedOperationError, match="not on mps"):
        peak_bytes(run, "mps")


def test_twice_the_context_fits_into_the_same_memory(monkeypatch):
    """Of transformers' own class, also when it recomputes its activations as well."""
    monkeypatch.setattr(chunked_loss, "LOGITS", 1 << 18)  # in proportion to the sizes of this test
    config = GPT2Config(vocab_size=1000, n_embd=32, n_layer=4, n_head=1, n_positions=1536, attn_pdrop=0.0)
    native = GPT2LMHeadModel(config).train()
    ours = zoo.convert(native).train()
    ours.gradient_checkpointing_enable({"use_reentrant": False})

    def peak(model, length: int, **options) -> int:
        ids = torch.full((1, length), 3)
        model.zero_grad()

        def step() -> None:
            loss = model(input_ids=ids, labels=ids, use_cache=False, **options).loss
            loss.backward()

        return peak_bytes(step)

    longer = peak(ours, 1536, skip_logits=True)
    assert longer < peak(native, 768)
    native.gradient_checkpointing_enable({"use_reentrant": False})
    assert longer < peak(native, 768)
