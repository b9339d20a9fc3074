"""Rotary frequencies that depend on the length of a text: the same with a cache, in a batch, and packed."""

import pytest
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import zoo
from zoo.base.errors import InputError, UnsupportedBackendError, UnsupportedOperationError, ZooError
from zoo.fast import fast_paths

ORIGINAL = 16
SCALING = {
    "factor": 4.0,
    "rope_theta": 1e4,
    "original_max_position_embeddings": ORIGINAL,
    "short_factor": [1.0, 1.5],
    "long_factor": [2.0, 4.0],
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
SIZES = {"vocab_size": 31, "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 24}
BY_LENGTH = ("dynamic", "longrope")
GREEDY = {"do_sample": False, "output_logits": True, "return_dict_in_generate": True}
LENGTHS = {"max_new_tokens": 10, "min_new_tokens": 10}


def decoder(rope_type: str, variant: str = "llama-style", task: str = "causal-lm", **settings):
    rope = {"rope_type": rope_type, **SCALING}
    positions = {"rope_parameters": rope, "max_position_embeddings": ORIGINAL if rope_type == "dynamic" else 64}
    if variant == "gemma3-style":
        plain = {"rope_type": "default", "rope_theta": 1e4}
        positions["rope_parameters"] = {"full_attention": rope, "sliding_attention": plain}
    sizes = {**SIZES, "head_dim": 4, "seed": 0, "initializer_range": 0.3, **positions, **settings}
    return zoo.build(variant, task=task, **sizes).double().eval()


def texts(length: int, rows: int = 2) -> torch.Tensor:
    return torch.randint(3, SIZES["vocab_size"], (rows, length), generator=torch.Generator().manual_seed(0))


def assert_same_scores(first, second) -> None:
    torch.testing.assert_close(torch.stack(first.logits), torch.stack(second.logits), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rope_type", sorted(ROPE_INIT_FUNCTIONS))
def test_a_cache_changes_nothing_at_any_length(rope_type):
    model, ids = decoder(rope_type), texts(ORIGINAL - 5)
    mask = torch.ones_like(ids)
    mask[0, :2] = 0  # the rows grow past the threshold at different steps
    given = {"attention_mask": mask, **GREEDY, **LENGTHS}
    expected = model.generate(ids, use_cache=False, **given)
    assert_same_scores(model.generate(ids, **given), expected)
    with fast_paths(cache_room="never", graph_capture="never"):
        assert_same_scores(model.generate(ids, **given), expected)
    assert_same_scores(model.generate(ids, cache_implementation="static", **given), expected)
    embeds = {"inputs_embeds": model.get_input_embeddings()(ids), **given}
    assert_same_scores(model.generate(**embeds), expected)


@pytest.mark.parametrize("rope_type", sorted(ROPE_INIT_FUNCTIONS))
def test_a_long_row_changes_no_other(rope_type):
    model, long, short = decoder(rope_type), texts(ORIGINAL + 9, rows=1), texts(ORIGINAL - 6, rows=1)
    alone = model(short).logits[0].detach()
    padding = torch.zeros(1, long.shape[1] - short.shape[1], dtype=torch.long)
    for unpadding in ("never", "always"):
        for pieces in ((short, padding), (padding, short)):
            row = torch.cat(pieces, dim=1)
            mask = torch.cat([torch.ones_like(long), (row > 0).long()])
            with fast_paths(unpadding=unpadding), torch.no_grad():
                together = model(torch.cat([long, row]), attention_mask=mask, use_cache=False).logits[1]
            torch.testing.assert_close(together[row[0] > 0], alone, rtol=1e-5, atol=1e-5)
    positions = torch.cat([torch.arange(part.shape[1]) for part in (long, short)])[None]
    packed = model(torch.cat([long, short], dim=1), position_ids=positions, use_cache=False).logits[0]
    torch.testing.assert_close(packed[long.shape[1] :], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rope_type", BY_LENGTH)
@pytest.mark.parametrize(
    ("variant", "task"), [("gemma3-style", "causal-lm"), ("pre-norm:position=rotary", "seq2seq-lm")]
)
def test_beams_and_other_stacks_fill_their_cache_again(rope_type, variant, task):
    model, ids = decoder(rope_type, variant, task), texts(9)
    lengths = {"max_new_tokens": 10, "min_new_tokens": 10} if task == "causal-lm" else {"max_length": 20}
    given = {**lengths, "num_beams": 3, "eos_token_id": None, "pad_token_id": 0}
    assert model.generate(ids, **given).tolist() == model.generate(ids, use_cache=False, **given).tolist()


@pytest.mark.parametrize("rope_type", BY_LENGTH)
def test_what_cannot_be_filled_again_is_refused(rope_type):
    model, ids = decoder(rope_type), texts(ORIGINAL + 1, rows=1)
    first = model(ids[:, :ORIGINAL], use_cache=True)
    with pytest.raises(InputError, match=f"cache holds {ORIGINAL} positions.* in a sequence of {ORIGINAL + 1}"):
        model(ids[:, ORIGINAL:], past_key_values=first.past_key_values)
    with pytest.raises(UnsupportedOperationError, match=f"beyond {ORIGINAL} this rope_type .* leave the assistant out"):
        model.generate(ids[:, :5], assistant_model=model, max_new_tokens=20)
    with pytest.raises(UnsupportedBackendError, match=f"texts of more than {ORIGINAL} tokens"):
        model.init_continuous_batching()
    with pytest.raises(ZooError, match=f"texts of more than {ORIGINAL} tokens, graphs do not"):
        zoo.export(model.float(), "nowhere", target="onnx")
