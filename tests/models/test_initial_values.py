"""Initial values by width and depth, and sizes of branches in new models, neither lost in the stream nor more."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from every_variant import EACH
from models.formulas import config
from torch._subclasses import FakeTensorMode

import zoo
from zoo.analysis.measuring.signals import measure_signals, recorded
from zoo.base.errors import ZooError
from zoo.building.starting import UnequalStartWarning, unequal_starts
from zoo.comparison.benchmarks import benchmarks
from zoo.comparison.benchmarks.definition import Benchmark
from zoo.models import ZooConfig
from zoo.models.parts import PART_FIELDS
from zoo.models.residual import deepnorm_constants
from zoo.registry import VARIANTS, find_weights, list_variants, list_weights, parse_name
from zoo.training.recipe import recipe_for

ORIGINALS = {**dict.fromkeys(("vanilla", "d2l-style", "odom-style", "nlpt-encoder"), 0.02), "explicando": 1.0}


@pytest.mark.parametrize("width", [16, 128, 512, 768, 1024])
def test_the_default_is_0_02_from_768_on_and_grows_below(width: int) -> None:
    config = zoo.config("gpt2-style", hidden_size=width, num_attention_heads=1)
    assert config.initializer_range == pytest.approx(0.02 * math.sqrt(768 / width) if width < 768 else 0.02)
    assert (
        zoo.config("gpt2-style", hidden_size=width, num_attention_heads=1, initializer_range=0.5).initializer_range
        == 0.5
    )
    fixed = zoo.config("gpt2-style", hidden_size=width, num_attention_heads=1, initializer_width=1)
    assert fixed.initializer_range == 0.02


@pytest.mark.parametrize("name", list_variants())
def test_originals_keep_theirs_and_all_others_follow_the_width(name: str) -> None:
    follows = zoo.config(name, hidden_size=64, num_attention_heads=4).initializer_range
    assert follows == pytest.approx(ORIGINALS.get(name, 0.02 * math.sqrt(768 / 64)))


def test_a_saved_configuration_keeps_its_own(tmp_path: Any) -> None:
    old = zoo.config("gpt2-style@tiny").to_dict()
    old["initializer_range"] = 0.02
    old.pop("initializer_width")
    assert ZooConfig.from_dict(old).initializer_range == 0.02


def test_mup_is_the_standard_parametrization_at_its_base_width() -> None:
    sizes: dict[str, Any] = {"hidden_size": 128, "num_attention_heads": 2, "vocab_size": 64, "num_hidden_layers": 1}
    mup = zoo.build("gpt2-style", parametrization="mup", mup_base_width=128, seed=0, **sizes)
    plain = zoo.build("gpt2-style", initializer="normal", seed=0, **sizes)
    for (path, one), (_, other) in zip(mup.named_parameters(), plain.named_parameters(), strict=True):
        assert one.std().item() == pytest.approx(other.std().item(), rel=0.1), path


def test_a_model_without_values_has_no_start() -> None:
    for mode in (torch.device("meta"), FakeTensorMode(allow_non_fake_inputs=True)):
        with mode:
            assert not list(unequal_starts(zoo.build("pre-norm:position=sinusoidal", **SIZES)))


def test_layer_scaling_reaches_parallel_layers() -> None:
    sequential, parallel = (
        zoo.build("ltg-bert-style@tiny", seed=0, num_hidden_layers=3, parallel_residual=one).model.layers
        for one in (False, True)
    )
    for one, other in zip(sequential, parallel, strict=True):
        assert one.mlp.down_proj.weight.std().item() == pytest.approx(other.mlp.down_proj.weight.std().item(), rel=0.05)
    assert sequential[2].mlp.down_proj.weight.std() < 0.7 * sequential[0].mlp.down_proj.weight.std()


def test_scaled_embeddings_of_another_width_have_the_size_of_one() -> None:
    settings: dict[str, Any] = {"initializer": "xavier-uniform", "scale_embedding": True, "embedding_size": 16}
    model = zoo.build("pre-norm@tiny", "feature-extraction", seed=0, **settings)
    assert model.embed_tokens(torch.arange(500)).std().item() == pytest.approx(1.0, rel=0.1)


PRESENT = {
    ("adder", None),
    ("depth", None),
    ("encoder", None),
    ("grokking", None),
    ("ladder", None),
    ("length", None),
    ("length-lm", None),
    ("lr-robustness", None),
    ("mad", None),
    ("mad-memorization", None),
    ("quirks", None),
    ("recall", None),
    ("speed", None),
    ("english", None),
    ("translation-en-pt", None),
    *(("char-lm", f"500 steps{more}") for more in ("", ", learning rate swept", ", equal operations")),
}
"""Benchmarks, or conditions of them, with rows of the present initial values."""


@pytest.mark.parametrize("name", sorted(benchmarks().keys() - {name for name, condition in PRESENT if not condition}))
def test_recorded_rows_keep_the_initial_values_and_the_decay_that_they_were_made_with(name: str) -> None:
    benchmark = benchmarks()[name]
    for condition in [one for one in benchmark.conditions if (name, one) not in PRESENT]:
        options = benchmark.arguments(condition)
        recipe = recipe_for(options["task"], options.get("recipe"))
        recipe = recipe.changed(model=options.get("settings"), arguments=options.get("arguments"))
        if recipe.arguments.get("weight_decay", 0) or "weight_decay" in (options.get("sweep") or {}):
            assert recipe.arguments["decay"] == "transformers"
        for variant in benchmark.names(condition):
            spec = parse_name(variant)
            quirks = VARIANTS.get(spec.name).check_quirks(spec.quirks, faithful=spec.faithful)
            own = VARIANTS.get(spec.name).settings(preset=spec.preset, quirks=quirks) | spec.overrides
            settings = recipe.model_settings(variant)
            expected = settings.get("initializer_range", own.get("initializer_range", 0.02))
            assert zoo.config(variant, **settings).initializer_range == expected, variant


UNEQUAL = ("pre-norm:position=sinusoidal", "gpt2-style:position=sinusoidal", "explicando")
"""Beginnings of names of variants that start unequal to the others of a benchmark, as its notes state."""


def starts_of(benchmark: Benchmark, names: Callable[[str], list[str]]) -> set[str]:
    """Variants with an unequal start, among those that a function takes from each condition."""
    found = set()
    for condition in benchmark.conditions:
        options = benchmark.arguments(condition)
        recipe = recipe_for(options["task"], options.get("recipe")).changed(model=options.get("settings"))
        task = str(recipe.data_task().model_task)
        for variant in names(condition):
            sizes = {"vocab_size": 100, **recipe.model_settings(variant)}
            if "works-on-features" in variant or variant == "odom-style+faithful":  # they have no embeddings
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnequalStartWarning)
                model = zoo.build(variant, task, **sizes)
            found |= {variant for _ in unequal_starts(model)}
    return found


@pytest.mark.parametrize("name", sorted(benchmarks()))
def test_baselines_of_benchmarks_start_as_usual(name: str) -> None:
    benchmark = benchmarks()[name]
    assert not starts_of(benchmark, lambda condition: [benchmark.baseline(condition)])


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(benchmarks()))
def test_variants_of_benchmarks_start_as_usual(name: str) -> None:
    benchmark = benchmarks()[name]
    assert not [one for one in starts_of(benchmark, benchmark.names) if not one.startswith(UNEQUAL)]


@pytest.mark.parametrize("name", [name for name in list_weights() if not name.endswith(".books")])
def test_commands_of_weights_keep_theirs(name: str) -> None:
    """All but those that were made with the present ones."""
    command = find_weights(name).command
    if not command:
        pytest.skip("not trained by the zoo")
    variant, recipe = command[2], recipe_for(None, command[command.index("--recipe") + 1])
    given = {"initializer_width": 1} if "initializer_width=1" in command else {}
    expected = 1.0 if variant == "explicando" or ("+faithful" in variant and variant.startswith("vanilla")) else 0.02
    assert zoo.config(variant, hidden_size=64, num_attention_heads=4, **given).initializer_range == expected
    assert not recipe.arguments.get("weight_decay") or "transformers" in command


def test_deepnorm_constants_are_those_of_the_papers_table() -> None:
    """Wang et al. 2022, table 1: architectures by rows, N encoder and M decoder layers."""
    n, m = 5, 9
    encoder_only = deepnorm_constants(config(num_hidden_layers=n))
    assert encoder_only == pytest.approx(((2 * n) ** (1 / 4), (8 * n) ** (-1 / 4)))
    decoder_only = deepnorm_constants(config(num_hidden_layers=m, is_decoder=True))
    assert decoder_only == pytest.approx(((2 * m) ** (1 / 4), (8 * m) ** (-1 / 4)))
    both = config(num_hidden_layers=n, decoder_layers=m, is_encoder_decoder=True)
    encoder = deepnorm_constants(both)
    assert encoder == pytest.approx((0.81 * (n**4 * m) ** (1 / 16), 0.87 * (n**4 * m) ** (-1 / 16)))
    assert deepnorm_constants(both.decoder_config()) == pytest.approx(((3 * m) ** (1 / 4), (12 * m) ** (-1 / 4)))


def test_deepnorm_initialises_values_outputs_and_feed_forward_with_gain_beta() -> None:
    depth, width = 6, 96
    sizes: dict[str, Any] = {"hidden_size": width, "num_hidden_layers": depth, "intermediate_size": width}
    model = zoo.build("deepnorm", "causal-lm", seed=0, vocab_size=9, num_attention_heads=4, **sizes)
    beta = (8 * depth) ** -0.25
    xavier = math.sqrt(2 / (width + width))
    layer = model.model.layers[3]
    for linear, gain in (
        (layer.self_attn.q_proj, 1.0),
        (layer.self_attn.k_proj, 1.0),
        (layer.self_attn.v_proj, beta),
        (layer.self_attn.o_proj, beta),
        (layer.mlp.up_proj, beta),
        (layer.mlp.down_proj, beta),
    ):
        assert linear.weight.std().item() == pytest.approx(gain * xavier, rel=0.05)


STDS: dict[str, Callable[[int, int, bool, bool], float]] = {
    "normal": lambda read, written, feeds, ends: 0.02,
    "depth-scaled": lambda read, written, feeds, ends: 0.02 / math.sqrt(2 * 8) if ends else 0.02,
    "xavier-uniform": lambda read, written, feeds, ends: math.sqrt(2 / (read + written)),
    "t5": lambda read, written, feeds, ends: read**-0.5,
    "torch": lambda read, written, feeds, ends: 1 / math.sqrt(3 * read),
    # A normal distribution that is cut at two standard deviations has 0.88 of it.
    "layer-scaled": lambda read, written, feeds, ends: 0.88 * math.sqrt(2 / (5 * 96) / (2 * 3 if feeds else 1)),
}
"""Standard deviation in the third of eight layers of 96: by widths, in feed-forwards, of what ends a branch."""


@pytest.mark.parametrize("initializer", STDS)
def test_weights_begin_as_large_as_their_scheme_has_them(initializer: str) -> None:
    sizes: dict[str, Any] = {"hidden_size": 96, "num_hidden_layers": 8, "intermediate_size": 160}
    settings = {"initializer": initializer, "initializer_range": 0.02, "num_attention_heads": 4, "vocab_size": 9}
    layer = zoo.build("gpt2-style", seed=0, **sizes, **settings).model.layers[2]
    for linear, feeds, ends in (
        (layer.self_attn.q_proj, False, False),
        (layer.self_attn.o_proj, False, True),
        (layer.mlp.up_proj, True, False),
        (layer.mlp.down_proj, True, True),
    ):
        std = STDS[initializer](linear.in_features, linear.out_features, feeds, ends)
        assert linear.weight.std().item() == pytest.approx(std, rel=0.05)


@pytest.mark.parametrize("tied", [False, True])
def test_t5_begins_as_its_authors_have_it(tied: bool) -> None:
    """t5x, examples/t5: embeddings of 1, others by fan-in, queries smaller by sqrt(head_dim), tied logits scaled."""
    settings: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4}
    output = {"tie_word_embeddings": True, "logit_scale": 128**-0.5} if tied else {}
    model = zoo.build("t5-style", seed=0, vocab_size=300, num_hidden_layers=1, **settings, **output)
    stds = {name: weight.std().item() for name, weight in model.named_parameters() if weight.ndim > 1}
    for name, std in stds.items():
        expected = {"embed_tokens.weight": 1.0, "down_proj.weight": 512**-0.5, "q_proj.weight": (128 * 32) ** -0.5}
        ends = [one for end, one in expected.items() if name.endswith(end)]
        assert std == pytest.approx(ends[0] if ends else 128**-0.5, rel=0.2 if "position" in name else 0.05), name
    assert ("lm_head.weight" in stds) != tied


def test_embeddings_of_t5_are_small_where_logits_are_not_divided() -> None:
    for field in ("tie_word_embeddings", "scale_embedding"):
        model: Any = zoo.build(f"t5-style@tiny:{field}=true", seed=0, vocab_size=300)
        assert model.get_input_embeddings().weight.std().item() == pytest.approx(
            model.config.hidden_size**-0.5, rel=0.05
        )


SIZES: dict[str, Any] = {
    **{"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 64},
    **{"num_hidden_layers": 2, "dropout": 0.0},
}
LEAST, MOST = 0.05, 20.0  # Sizes of branches relative to the stream

SMALL = {"rezero": "begins with branches of zero", "nlpt-encoder": "the original starts with 0.02 at every width"}
PARTS = [
    f"pre-norm:{field}={name}"
    for field, table in PART_FIELDS.items()
    for name in table
    if table.origin(name).built_in and field != "mixer"
]


@pytest.mark.parametrize("name", EACH)
def test_every_branch_of_every_variant_counts(name: str) -> None:
    shares = [one.share for one in measure_signals(name, **SIZES)]
    assert shares and (max(shares) < LEAST if name in SMALL else LEAST < min(shares) <= max(shares) < MOST)


@pytest.mark.parametrize("name", PARTS)
def test_every_branch_with_every_part_counts(name: str) -> None:
    try:
        zoo.config(name, "causal-lm", **SIZES)
    except ZooError as error:
        pytest.skip(str(error))
    shares = [one.share for one in measure_signals(name, "causal-lm", **SIZES)]
    assert shares and LEAST < min(shares) <= max(shares) < MOST


@pytest.mark.parametrize("name", ["pre-norm@tiny:decoder_vocab_size=20", "odom-style@tiny+works-on-features"])
def test_signals_of_fewer_target_tokens_and_of_features(name: str) -> None:
    assert all(one.share > 0 for one in measure_signals(name, "seq2seq-lm", vocab_size=100))


def test_a_step_on_the_sphere_counts_and_not_where_it_leads() -> None:
    """Of rates of 0.05, between vectors of one length."""
    shares = [one.share for one in measure_signals("ngpt", **SIZES)]
    assert all(0.05 < one < 0.1 for one in shares)  # 0.05 times the root of two, if they are orthogonal


@pytest.mark.parametrize("name", list_variants())
def test_no_variant_starts_with_positions_above_its_tokens_or_with_large_logits(name: str) -> None:
    assert not list(unequal_starts(zoo.build(name, seed=0, **SIZES)))


@pytest.mark.parametrize(
    ("name", "settings", "phrase"),
    [
        ("pre-norm:position=sinusoidal", {}, r"positions of 0\.71 are added to embeddings that start with 0\.0\d+:"),
        ("post-norm:position=sinusoidal", {"initializer_range": 0.1}, "positions of 0.71 .* start with 0.1:"),
        ("explicando", {"tie_word_embeddings": True}, r"tied output weights start with logits of 8.1,"),
        ("gpt2-style", {"initializer_range": 1.0}, r"tied output weights start with logits of 8.1,"),
    ],
)
def test_an_unequal_start_is_a_warning(name: str, settings: dict[str, Any], phrase: str) -> None:
    with pytest.warns(UnequalStartWarning, match=phrase):
        model = zoo.build(name, seed=0, **{**SIZES, **settings})
    assert len(list(unequal_starts(model))) == 1
    cure = {"scale_embedding": True} if "position" in name else {"logit_scale": SIZES["hidden_size"] ** -0.5}
    assert not list(unequal_starts(zoo.build(name, seed=0, **{**SIZES, **settings, **cure})))


def test_signals_are_what_a_forward_adds() -> None:
    """Of a model without norms after branches, the stream grows by just the branch."""
    model = zoo.build("gpt2-style", "causal-lm", seed=0, **SIZES).eval()
    ids = torch.arange(12)[None]
    with torch.no_grad(), recorded(model) as signals:
        logits = model(input_ids=ids).logits
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states
        assert torch.equal(model(input_ids=ids).logits, logits)
    assert len(signals) == 4
    streams = [float(one.square().mean().sqrt()) for one in states[:2]]
    assert [signals[0].stream, signals[2].stream] == pytest.approx(streams, rel=1e-5)
