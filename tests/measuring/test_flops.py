"""FLOP counts, compared with formulas that are written here from the architectures."""

import pytest
import torch
from every_variant import enough, kinds_of
from torch import Tensor

import zoo
from zoo.analysis.measuring import count_flops, decode_speed, flops_per_token
from zoo.base.errors import ConfigError
from zoo.building.builder import skeleton
from zoo.registry import VARIANTS, list_variants

pytestmark = pytest.mark.thorough

HIDDEN, HEADS, INNER, LAYERS = 64, 4, 80, 2
DECODER_HEADS, DECODER_INNER, DECODER_LAYERS = 2, 112, 1
VOCABULARY, TARGET_VOCABULARY, LABELS = 37, 41, 5
SOURCE, TARGET = 6, 7
STREAMS = 4
SIZES = {
    **{"hidden_size": HIDDEN, "num_attention_heads": HEADS, "intermediate_size": INNER, "num_hidden_layers": LAYERS},
    **{"vocab_size": VOCABULARY, "num_labels": LABELS},
}
DECODER_SIZES = {
    **{"decoder_attention_heads": DECODER_HEADS, "decoder_intermediate_size": DECODER_INNER},
    **{"decoder_layers": DECODER_LAYERS, "decoder_vocab_size": TARGET_VOCABULARY},
}

LLAMAS = {"llama-style", "qwen3-style", "smollm3-style", "gemma2-style", "gemma3-style", "lfm2-style"}
GATED = {*LLAMAS, "modernbert-style", "diff-transformer", "qk-norm", "olmo2-style", "olmo3-style", "t5-style"}
GATED |= {"t5gemma-style", "value-residual", "ngpt", "multi-token-prediction", "ltg-bert-style", "gpt-bert-style"}
WITH_EXPERTS = ("mixtral-style", "qwen3-moe-style", "qwen3-next-style", "deepseek-moe", "gpt-oss-style")
KEY_VALUE_HEADS = {**dict.fromkeys({*LLAMAS, *WITH_EXPERTS}, 2), "falcon-style": 1}
UNROTATED = {"t5-style", "ltg-bert-style", "gpt-bert-style"}
ROTATED = {
    **dict.fromkeys({*GATED, *WITH_EXPERTS, "falcon-style", "nanochat-style", "roformer-style"} - UNROTATED, 16),
    **dict.fromkeys(("gptj-style", "gpt-neox-style", "qwen3-next-style"), 4),
    "deepseek-v3-style": 32,
    **dict.fromkeys(("gemma3-style", "modernbert-style"), 32),  # two kinds of layers, each with its own wavelengths
}
EMBEDDING = {"albert-style": 128}  # Widths of embeddings that are projected
TRANSFORMS = {"albert-style", "bert-style", "modernbert-style", "roberta-prelayernorm-style", "roformer-style"}
TRANSFORMS |= {"ltg-bert-style", "gpt-bert-style"}
DISTANCES = 63  # Buckets of relative distances with vectors that disentangled attention projects
EXPERTS = {
    "mixtral-style": (2, 8),
    "gpt-oss-style": (4, 16),
    "qwen3-moe-style": (4, 16),
    **dict.fromkeys(("deepseek-moe", "deepseek-v3-style", "kimi-linear-style", "qwen3-next-style"), (4 + 1, 16)),
}
"""How many experts a token sees, a shared one included, and of how many a router chooses."""
MOE_INNER = dict.fromkeys(("qwen3-moe-style", "deepseek-moe", "deepseek-v3-style", "qwen3-next-style"), 512)
MOE_INNER["kimi-linear-style"] = 512
HYBRIDS = ("kimi-linear-style", "qwen3-next-style", "lfm2-style")  # Whose first layer has no attention
ONE_EMBEDDING = {"explicando", "t5-style", "marian-style", "pegasus-style", "attention-is-all-you-need"}


def linear(inputs: int, outputs: int, positions: int) -> int:
    return 2 * inputs * outputs * positions


def attention(queries: int, keys: int, heads: int, kv_heads: int = 0, *, one_head: bool = False, times: int = 1) -> int:
    """Projections, scores and mixing, several times in all. One head's projections serve all with Odom's quirk."""
    width = HIDDEN // heads
    query_width = width if one_head else HIDDEN
    key_width = width * (1 if one_head else kv_heads or heads)
    projections = linear(HIDDEN, query_width, queries) + 2 * linear(HIDDEN, key_width, keys)
    products = times * 2 * (2 * heads * width * queries * keys)
    return projections + products + linear(HIDDEN, HIDDEN, queries)


def disentangled_attention(length: int) -> int:
    """Both projections of distances, too, and scores of contents with distances in both directions."""
    distances = 2 * linear(HIDDEN, HIDDEN, DISTANCES) + 2 * linear(HIDDEN, DISTANCES, length)
    return attention(length, length, HEADS) + distances


def attention_with_sinks(length: int, heads: int, kv_heads: int) -> int:
    """A sink is one more key, and the feature by which queries see it one more in all keys and values."""
    width = HIDDEN // heads
    products = 2 * heads * 2 * (width + 1) * length * (length + 1)
    projections = 2 * linear(HIDDEN, HIDDEN, length) + 2 * linear(HIDDEN, kv_heads * width, length)
    return projections + products


def latent_attention(length: int, heads: int, query_rank: int) -> int:
    """Keys and values of 128 latent numbers, queries of some or none; heads of 64 + 32 for scores, 64 for values."""
    latent = linear(HIDDEN, query_rank, length)
    queries = latent + linear(query_rank or HIDDEN, heads * (64 + 32), length)
    keys = linear(HIDDEN, 128 + 32, length) + linear(128, heads * (64 + 64), length)
    products = 2 * heads * (64 + 32 + 64) * length**2
    return queries + keys + products + linear(heads * 64, HIDDEN, length)


def convolution(length: int, filters: int, channels: int) -> int:
    """A filter a channel, over the text and what it is padded with on both sides."""
    return 2 * (length + filters - 1) * filters * channels


def gated_delta_net(length: int) -> tuple[int, int]:
    """A layer, and what training takes more than three times that."""
    maps = linear(HIDDEN, 5 * HIDDEN + 2 * HEADS, length) + convolution(length, 4, 3 * HIDDEN)
    return delta_rule(length, HIDDEN // HEADS, maps)


def kimi_delta_attention(length: int) -> tuple[int, int]:
    """The same; decays and gates are made by way of one head's width."""
    width = 64
    by_head = linear(HIDDEN, width, length) + linear(width, HEADS * width, length)
    maps = linear(HIDDEN, 4 * HEADS * width + HEADS, length) + convolution(length, 4, 3 * HEADS * width)
    return delta_rule(length, width, maps + 2 * by_head)


def delta_rule(length: int, width: int, maps: int) -> tuple[int, int]:
    """One chunk: projections and convolution, and products; and what training takes more than three times that."""
    within = HEADS * 2 * width * length**2  # keys and queries with keys, and with what is written
    memory = HEADS * 2 * length * width**2  # read by keys and by queries, and written
    system = HEADS * length**2 * 2 * width
    # The memory before the first chunk is zeros without a gradient, that after the last is not used; and the gradient
    # of a triangular system is another one, and a whole product.
    return maps + 3 * within + 3 * memory + system, system - 2 * memory - 2 * memory


def without_attention(variant: str, length: int) -> tuple[int, int]:
    """A layer of a hybrid, and what training takes more than three times that."""
    if variant == "qwen3-next-style":
        return gated_delta_net(length)
    if variant == "kimi-linear-style":
        return kimi_delta_attention(length)
    return linear(HIDDEN, 4 * HIDDEN, length) + convolution(length, 3, HIDDEN), 0


def feed_forward(variant: str, inner: int, positions: int) -> int:
    if variant in EXPERTS:
        seen, count = EXPERTS[variant]
        width = MOE_INNER.get(variant, inner)
        gate = linear(HIDDEN, 1, positions) if variant == "qwen3-next-style" else 0
        return gate + linear(HIDDEN, count, positions) + seen * 3 * linear(HIDDEN, width, positions)
    return (3 if variant in GATED else 2) * linear(HIDDEN, inner, positions)


def hyper_connections(variant: str, length: int) -> tuple[int, int]:
    """Of a layer and of a stack's end: weights are computed, and streams are read and mixed."""
    reads, mixes = linear(STREAMS, HIDDEN, length), linear(STREAMS, STREAMS * HIDDEN, length)
    if variant == "hyper-connections":
        return 2 * (linear(HIDDEN, 2 + STREAMS, STREAMS * length) + reads + mixes), 0
    if variant == "manifold-hyper-connections":
        width = STREAMS * HIDDEN
        weights = linear(width, 2 * STREAMS + STREAMS**2, length)
        return 2 * (weights + reads + mixes), linear(width, STREAMS, length) + reads
    if variant == "gated-hyper-connections":
        gates = 2 * linear(STREAMS * HIDDEN, 32, length)
        return 2 * (gates + linear(STREAMS * HIDDEN, STREAMS, length)), gates
    return 0, 0


def stack(variant: str, length: int, one_head: bool = False) -> int:
    kv_heads = KEY_VALUE_HEADS.get(variant)
    times = 2 if variant == "diff-transformer" else 1
    mixing = attention(length, length, HEADS, kv_heads, one_head=one_head, times=times)
    if variant == "gpt-oss-style":
        mixing = attention_with_sinks(length, HEADS, 2)
    if variant in ("deepseek-v3-style", "kimi-linear-style"):
        mixing = latent_attention(length, HEADS, 192 if variant == "deepseek-v3-style" else 0)
    if variant in ("ltg-bert-style", "gpt-bert-style"):
        mixing = disentangled_attention(length)
    if variant == "gpt-bert-style":
        mixing += linear(HIDDEN, HIDDEN, length)  # of its gates
    first = mixing
    if variant in HYBRIDS:
        first = without_attention(variant, length)[0]
        mixing += linear(HIDDEN, HIDDEN, length) if variant == "qwen3-next-style" else 0  # of its gates
    connections, end = hyper_connections(variant, length)
    if variant == "attention-residuals":  # scores and means of two vectors, three, ..., but none of the embedding alone
        end = sum(2 * linear(vectors, HIDDEN, length) for vectors in range(2, 2 * LAYERS + 2))
    dense = 1 if variant in ("deepseek-v3-style", "kimi-linear-style") else 0
    networks = (LAYERS - dense) * feed_forward(variant, INNER, length) + dense * 3 * linear(HIDDEN, INNER, length)
    embedding = linear(EMBEDDING[variant], HIDDEN, length) if variant in EMBEDDING else 0
    return embedding + first + (LAYERS - 1) * mixing + LAYERS * connections + networks + end


def decoder(variant: str, source: int, target: int, one_head: bool = False) -> int:
    own = attention(target, target, DECODER_HEADS, one_head=one_head)
    cross = attention(target, source, DECODER_HEADS, one_head=one_head)
    return DECODER_LAYERS * (own + cross + feed_forward(variant, DECODER_INNER, target))


def head(variant: str, task: str, length: int) -> int:
    width = EMBEDDING.get(variant, HIDDEN)
    transform = linear(HIDDEN, width, 1) if variant in TRANSFORMS else 0
    return {
        "feature-extraction": 0,
        "causal-lm": linear(HIDDEN, VOCABULARY, length) + length * transform,
        "masked-lm": linear(width, VOCABULARY, length) + length * transform,
        "token-classification": linear(HIDDEN, LABELS, length),
        "sequence-classification": linear(HIDDEN, LABELS, 1) + transform,
        "seq2seq-lm": linear(HIDDEN, VOCABULARY if variant in ONE_EMBEDDING else TARGET_VOCABULARY, length),
    }[task]


def small(name: str, task: str):
    sizes = dict(SIZES, sizes="fixed")
    variant = VARIANTS.get(name.split("+", maxsplit=1)[0])
    if task == "seq2seq-lm" or (task == "feature-extraction" and variant.default_task == "seq2seq-lm"):
        sizes |= DECODER_SIZES
        if variant.name in ONE_EMBEDDING:
            sizes["decoder_vocab_size"] = VOCABULARY
    return skeleton(name, task, **sizes)


def batch(source: int, target: int | None = None) -> dict[str, Tensor]:
    found = {"input_ids": torch.ones(1, source, dtype=torch.long)}
    return found if target is None else {**found, "labels": torch.ones(1, target, dtype=torch.long)}


DEFAULT_TASKS = {name: str(VARIANTS.get(name).default_task) for name in list_variants()}
ENOUGH = {name for name, _ in enough(DEFAULT_TASKS.items(), kinds_of)}


@pytest.mark.parametrize(
    "variant", [pytest.param(one, marks=[pytest.mark.nightly] * (one not in ENOUGH)) for one in DEFAULT_TASKS]
)
def test_every_variant_needs_the_operations_of_the_formula(variant):
    task = DEFAULT_TASKS[variant]
    forward = head(variant, task, TARGET if task == "seq2seq-lm" else SOURCE) + stack(variant, SOURCE)
    if task == "seq2seq-lm":
        forward += decoder(variant, SOURCE, TARGET)
    flops = count_flops(small(variant, task), batch(SOURCE, TARGET if task == "seq2seq-lm" else None))
    assert flops.tokens == SOURCE + (TARGET if task == "seq2seq-lm" else 0)
    # Position biases are looked up or computed elementwise. Rotary angles, frequencies times positions, are a product
    # with an inner dimension of one in some versions of transformers, and have no gradient.
    angles = flops.forward - forward
    of_target = TARGET * HIDDEN // DECODER_HEADS if variant == "t5gemma-style" else 0
    assert angles in (0, SOURCE * ROTATED.get(variant, 0) + of_target)
    further = without_attention(variant, SOURCE)[1] if variant in HYBRIDS else 0
    if variant == "multi-token-prediction":  # one more layer, which reads two vectors, and its scores
        layer = attention(SOURCE, SOURCE, HEADS) + feed_forward(variant, INNER, SOURCE)
        further = 3 * (linear(2 * HIDDEN, HIDDEN, SOURCE) + layer + linear(HIDDEN, VOCABULARY, SOURCE))
    assert flops.training == 3 * forward + angles + further  # backwards, there is a product for either factor of each


@pytest.mark.parametrize("variant, task", [("bert-style", task) for task in VARIANTS.get("bert-style").tasks])
def test_heads_are_counted(variant, task):
    flops = count_flops(small(variant, task), batch(SOURCE))
    assert flops.forward == stack(variant, SOURCE) + head(variant, task, SOURCE) and flops.training == 3 * flops.forward


def test_quirks_that_change_the_work():
    # One head's projections serve all heads; quirks that move masks, norms and dropout change nothing.
    quirks = "+".join(quirk for quirk in VARIANTS.get("odom-style").quirks if quirk != "works-on-features")
    odom = count_flops(small(f"odom-style+{quirks}", "seq2seq-lm"), batch(SOURCE, TARGET))
    body = stack("odom-style", SOURCE, one_head=True) + decoder("odom-style", SOURCE, TARGET, one_head=True)
    assert odom.forward == body + head("odom-style", "seq2seq-lm", TARGET) and odom.training == 3 * odom.forward
    # Nothing before the first layers learns, so their projections pass no gradient on.
    explicando = count_flops(small("explicando+faithful", "seq2seq-lm"), batch(TARGET, TARGET))
    body = stack("explicando", TARGET) + decoder("explicando", TARGET, TARGET)
    assert explicando.forward == body + head("explicando", "seq2seq-lm", TARGET)
    assert explicando.training == 3 * explicando.forward - 2 * 3 * linear(HIDDEN, HIDDEN, TARGET)
    vanilla = count_flops(small("vanilla+faithful", "seq2seq-lm"), batch(SOURCE, TARGET))
    assert vanilla == count_flops(small("vanilla", "seq2seq-lm"), batch(SOURCE, TARGET))


def test_features_are_read_like_tokens():
    model = small("odom-style+works-on-features", "seq2seq-lm")
    features = {"inputs_embeds": torch.zeros(1, SOURCE, HIDDEN), "decoder_inputs_embeds": torch.ones(1, TARGET, HIDDEN)}
    flops = count_flops(model, features)
    body = stack("odom-style", SOURCE) + decoder("odom-style", SOURCE, TARGET)
    assert (flops.forward, flops.tokens) == (body + linear(HIDDEN, HIDDEN, TARGET), SOURCE + TARGET)


def test_a_model_is_left_as_it_was():
    model = zoo.build("pre-norm", "causal-lm", seed=0, **SIZES)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    padded = {**batch(SOURCE), "attention_mask": torch.tensor([[1, 1, 1, 0, 0, 0]])}
    flops = count_flops(model, padded)
    assert flops == count_flops(small("pre-norm", "causal-lm"), batch(SOURCE))
    assert not model.training and model.config._attn_implementation == "sdpa"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_token_costs_the_same_in_any_batch():
    model = small("vanilla", "seq2seq-lm")
    many = {name: ids.expand(4, -1) for name, ids in batch(SOURCE, TARGET).items()}
    per_token = count_flops(model, many).per_token
    assert per_token == flops_per_token(model.config, SOURCE, TARGET) and per_token.training == 3 * per_token.forward


def test_what_a_batch_shares_is_no_cost_of_every_sequence():
    """Disentangled attention projects its table once a forward pass."""
    model = small("ltg-bert-style", "masked-lm")
    batches = [{"input_ids": torch.zeros(size, SOURCE, dtype=torch.long)} for size in (1, 2, 64)]
    one, two, many = (count_flops(model, one).forward for one in batches)
    assert flops_per_token(model, SOURCE).forward == pytest.approx(many / 64 / SOURCE, rel=1e-4)
    assert one - (two - one) == 2 * LAYERS * linear(HIDDEN, HIDDEN, DISTANCES)


def test_recomputation_is_not_counted():
    model = zoo.build("gpt2-style@tiny", **SIZES)
    once = flops_per_token(model, SOURCE)
    model.gradient_checkpointing_enable()
    assert flops_per_token(model, SOURCE) == once


def test_lengths_without_tokens_are_refused():
    model = zoo.build("gpt2-style@tiny", **SIZES)
    for lengths in ((0,), (SOURCE, 0)):
        with pytest.raises(ConfigError, match="_len=0 was given"):
            flops_per_token(model, *lengths)
    with pytest.raises(ConfigError, match="sequences=0 was given"):
        decode_speed(model, {"input_ids": torch.ones(1, SOURCE, dtype=torch.long)}, 0.01, sequences=0)
