"""Slopes of ALiBi, buckets of T5, and rotary frequencies that depend on the length of a text."""

import pytest
import torch
from models.formulas import close, config, randomized
from transformers import DataCollatorWithFlattening
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.t5.modeling_t5 import T5Attention

import zoo
from zoo.base.errors import InputError, UnsupportedBackendError, UnsupportedOperationError, ZooError
from zoo.fast import fast_paths
from zoo.models import POSITIONS

SIZES = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}

ALIBI_SLOPES = {
    1: [1 / 256],
    2: [1 / 16, 1 / 256],
    4: [1 / 4, 1 / 16, 1 / 64, 1 / 256],
    8: [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256],
    # The slopes of 2 and 4 heads, then every other slope of twice as many (Press et al. 2021, the authors' code).
    3: [1 / 16, 1 / 256, 1 / 4],
    6: [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8],
}


@pytest.mark.parametrize("heads", ALIBI_SLOPES)
@pytest.mark.parametrize("decoder", [True, False], ids=["decoder", "encoder"])
def test_alibi_subtracts_a_slope_times_the_distance(heads: int, decoder: bool) -> None:
    made = config(position="alibi", num_attention_heads=heads, head_dim=4, is_decoder=decoder)
    bias = POSITIONS.get("alibi")(made).bias(torch.arange(4) + 2, torch.arange(6))
    expected = [[[-slope * abs(q + 2 - k) for k in range(6)] for q in range(4)] for slope in ALIBI_SLOPES[heads]]
    close(bias[0].double(), expected, 1e-6)


TREE = [[0, 1, 2, 2, 3, 3]]  # Positions of a trunk of two tokens, and of two branches after it


@pytest.mark.parametrize("position", ["alibi", "t5"])
def test_positions_that_distances_of_places_contradict_are_refused(position: str) -> None:
    model = zoo.build("pre-norm", task="causal-lm", seed=0, **SIZES, position=position).double().eval()
    encoder = zoo.build("pre-norm", task="masked-lm", seed=0, **SIZES, position=position).eval()
    kinds = {"sliding_window": 1, "layer_types": ["full_attention", "sliding_attention"]}
    windowed = zoo.build("pre-norm", task="causal-lm", **{**SIZES, **kinds, "num_hidden_layers": 2}, position=position)
    ids, tree = torch.tensor([[5, 6, 7, 8, 9, 10]]), torch.tensor(TREE)
    ancestors = torch.tensor([[0, 0], [1, 0], [2, 0], [2, 1], [3, 0], [3, 1]])  # depth and branch
    sees = (
        torch.tensor([[a[0] < b[0] and a[1] in (0, b[1]) for a in ancestors] for b in ancestors]) | torch.eye(6).bool()
    )
    masks = {"full_attention": sees[None, None], "sliding_attention": torch.eye(6)[None, None].bool()}
    for called in (
        lambda: model(ids, attention_mask=sees[None, None], position_ids=tree),
        lambda: model(ids, attention_mask=torch.ones_like(ids), position_ids=tree),
        lambda: encoder(ids, position_ids=tree),
        lambda: windowed(ids, attention_mask=masks, position_ids=tree),
    ):
        with pytest.raises(InputError, match="do not count on by one"):
            called()
    close(model(ids, position_ids=tree).logits[:, :3], model(ids[:, :3]).logits)  # packed documents
    close(model(ids, position_ids=torch.arange(6)[None] + 3).logits, model(ids).logits)
    padded, mask = torch.tensor([[0, 0, 5, 6]]), torch.tensor([[0, 0, 1, 1]])
    shown = model(padded, attention_mask=mask, position_ids=torch.tensor([[0, 0, 0, 1]])).logits[:, 2:]
    close(shown, model(ids[:, :2]).logits)


def test_boundaries_of_documents_need_positions_that_separate_them() -> None:
    model = zoo.build("pre-norm", task="causal-lm", seed=0, **SIZES).double().eval()
    encoder = zoo.build("pre-norm", task="masked-lm", seed=0, **SIZES).double().eval()
    texts = [[5, 6, 7], [8, 9], [1, 2, 3, 4]]
    collator = DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    batch = collator([{"input_ids": text, "labels": text} for text in texts])
    bounds = {name: value for name, value in batch.items() if name.startswith("cu_seq")}
    ids, positions = batch["input_ids"], batch["position_ids"]
    alone = [model(torch.tensor([text])).logits for text in texts]
    close(model(ids, position_ids=positions, **bounds).logits, torch.cat(alone, dim=1))
    for given in ({}, {"position_ids": torch.arange(9)[None]}, {"position_ids": positions, "attention_mask": ids > 0}):
        with pytest.raises(InputError, match=r"cu_seq_lens_q=\[0, 3, 5, 9\] would not be kept separate; give"):
            model(ids, **given, **bounds)
    with pytest.raises(InputError, match="an encoder does so with FlashAttention alone"):
        encoder(ids, position_ids=positions, **bounds)
    for one in (model, encoder):
        close(one(ids, cu_seq_lens_q=torch.tensor([0, 9])).logits, one(ids).logits)


@pytest.mark.parametrize("decoder", [True, False], ids=["decoder", "encoder"])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20), (6, 7)])
def test_relative_buckets_are_t5s_own(decoder: bool, buckets: int, distance: int) -> None:
    settings = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": distance}
    part = POSITIONS.get("t5")(config(position="t5", is_decoder=decoder, **settings))
    distances = torch.arange(-200, 201)
    expected = T5Attention._relative_position_bucket(
        distances, bidirectional=not decoder, num_buckets=buckets, max_distance=distance
    )
    assert part.bucket(distances).tolist() == expected.tolist()
    table = randomized(part).weight
    bias = part.bias(torch.arange(5), torch.arange(5))
    assert bias[0, 1, 4, 1].item() == table[expected[200 - 3], 1].item()


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
SMALL = {"vocab_size": 31, "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 24}
BY_LENGTH = ("dynamic", "longrope")
GREEDY = {"do_sample": False, "output_logits": True, "return_dict_in_generate": True}
LENGTHS = {"max_new_tokens": 10, "min_new_tokens": 10}


def test_scaling_keeps_a_variants_base_and_channels():
    linear = {"rope_type": "linear", "factor": 2.0}
    of_variant = {"rope_theta": 1e7, "partial_rotary_factor": 0.25}
    assert zoo.config("qwen3-next-style", rope_parameters=linear).rope_parameters == {**linear, **of_variant}
    by_layer = {"full_attention": linear, "sliding_attention": {"rope_type": "default"}}
    found = zoo.config("gemma3-style", rope_parameters=by_layer).rope_parameters
    assert [found[kind]["rope_theta"] for kind in by_layer] == [1e6, 1e4]


def decoder(rope_type: str, variant: str = "llama-style", task: str = "causal-lm", **settings):
    rope = {"rope_type": rope_type, **SCALING}
    positions = {"rope_parameters": rope, "max_position_embeddings": ORIGINAL if rope_type == "dynamic" else 64}
    if variant == "gemma3-style":
        plain = {"rope_type": "default", "rope_theta": 1e4}
        positions["rope_parameters"] = {"full_attention": rope, "sliding_attention": plain}
    sizes = {**SMALL, "head_dim": 4, "seed": 0, "initializer_range": 0.3, **positions, **settings}
    return zoo.build(variant, task=task, **sizes).double().eval()


def texts(length: int, rows: int = 2) -> torch.Tensor:
    return torch.randint(3, SMALL["vocab_size"], (rows, length), generator=torch.Generator().manual_seed(0))


def assert_same_scores(first, second) -> None:
    torch.testing.assert_close(torch.stack(first.logits), torch.stack(second.logits), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rope_type", sorted(ROPE_INIT_FUNCTIONS))
def test_a_model_that_is_cast_rotates_as_one_that_is_loaded(rope_type, dtype, tmp_path):
    """Frequencies of 16 bits would turn far positions by other angles."""
    model, ids = decoder(rope_type).float(), texts(ORIGINAL)
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path, dtype=dtype)
    assert torch.equal(model.to(dtype)(ids).logits, loaded(ids).logits)
    assert all(torch.equal(one, other) for one, other in zip(model.buffers(), loaded.buffers(), strict=True))


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
def test_the_length_of_a_row_is_that_of_its_tokens(rope_type):
    """Neither padding between tokens nor branches of a tree begin another text, and a leap of positions does."""
    model, ids = decoder(rope_type), texts(ORIGINAL + 5, rows=1)
    alone = model(ids).logits[0]
    gaps = torch.tensor([[1, 1, 1, 0, 1, 0, 0, *[1] * (ORIGINAL + 1)]])
    padded = torch.zeros_like(gaps).masked_scatter(gaps.bool(), ids)
    for position_ids in (None, (gaps.cumsum(1) - 1) * gaps):
        together = model(padded, attention_mask=gaps, position_ids=position_ids).logits[gaps.bool()]
        torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    given = {"attention_mask": gaps, **GREEDY, **LENGTHS}
    assert_same_scores(model.generate(padded, **given), model.generate(ids, **GREEDY, **LENGTHS))
    places = torch.arange(ORIGINAL + 5)
    sees, tree = places[:, None] >= places, places.clone()[None]
    sees[4, 3], sees[5:, 4], tree[0, 4:] = False, False, tree[0, 4:] - 1  # the fourth and the fifth token are branches
    branch = model(ids, attention_mask=sees[None, None], position_ids=tree).logits[0, 5:]
    straight = model(ids[:, places != 4]).logits[0, 4:]
    torch.testing.assert_close(branch, straight, rtol=1e-5, atol=1e-5)
    leap = torch.cat([torch.arange(4), torch.arange(3, ORIGINAL + 4) + ORIGINAL])[None]
    packed = model(ids, position_ids=leap, use_cache=False).logits[0, :4]
    torch.testing.assert_close(packed, model(ids[:, :4]).logits[0], rtol=1e-5, atol=1e-5)


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
