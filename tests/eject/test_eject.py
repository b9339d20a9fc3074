"""Ejected files: they compute what their models do, they are short, and what has no plain form is refused by name."""

import os
import random
import re
import runpy
from functools import cache
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from preloaded import run_python
from safetensors.torch import load_file

import zoo
from zoo.analysis.eject import code_difference, eject
from zoo.analysis.eject.ejecting import MODELS, text_of
from zoo.analysis.eject.proof import prove, randomise
from zoo.analysis.syntax.reading import names
from zoo.base.errors import OutputExistsError, RegistrationError, UnsupportedOperationError, ZooError, ZooWarning
from zoo.base.files import replace_part
from zoo.building.builder import config as configure
from zoo.cli.main import cli
from zoo.models import NORMS, RMSNorm
from zoo.models.parts import PART_FIELDS
from zoo.registry import describe, list_variants
from zoo.testing import new_subject
from zoo.testing.basics import check_plain_forms_of_plugins_compute_the_same

pytestmark = pytest.mark.usefixtures("in_forks")
ROOT = Path(__file__).parents[2]
ORIGINALS = {f"{name}+faithful": describe(name).tasks for name in list_variants() if describe(name).quirks}
BY_DAY = [("gpt2-style", "causal-lm"), *((name, tasks[0]) for name, tasks in ORIGINALS.items())]

BY_NIGHT = [
    (name, task)
    for name, tasks in ({name: describe(name).tasks for name in list_variants()} | ORIGINALS).items()
    for task in tasks
    if (name, task) not in BY_DAY
]

QUIRKS = [f"{name}+{quirk}" for name in list_variants() for quirk in describe(name).quirks]

PARTS = [
    f"pre-norm:{field}={part}".replace("position=disentangled", "position=disentangled,attention=disentangled")
    for field, registry in PART_FIELDS.items()
    for part in registry.names()
    if part != "mup"
]
"""Each part that ships, in an otherwise usual model."""

SCALED = {"factor": 4.0, "original_max_position_embeddings": 8}
ROTATIONS = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": SCALED,
    "llama3": {**SCALED, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "longrope": {**SCALED, "short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [2.0 + i for i in range(8)]},
    "proportional": {"partial_rotary_factor": 0.5},
}
"""Settings of each kind of scaled rotation; texts of a proof are longer than 8 tokens."""

LINES = {
    "gpt2-style": 160,
    "llama-style": 175,
    "vanilla": 235,
    "t5-style": 265,
    "deepseek-v3-style": 260,
    "qwen3-next-style": 325,
}
"""The most lines of a file, with all that is in it."""


def tiny(name: str) -> str:
    variant, plus, quirks = name.partition("+")
    return f"{variant}@tiny{plus}{quirks}"


@cache
def source(name: str, task: str | None = None) -> str:
    task = task or describe(name).tasks[0]
    return text_of(configure(name, task), task, name)


@pytest.mark.parametrize(
    ("name", "task"),
    [*BY_DAY, *(pytest.param(*one, marks=pytest.mark.nightly) for one in BY_NIGHT)],
)
def test_a_file_computes_what_its_model_does(name, task):
    ejected = eject(tiny(name), task=task)
    assert ejected.differences["float64"] < 1e-12
    assert "import zoo" not in ejected.text and "transformers import" not in ejected.text
    assert "# Proved when written" in ejected.text


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*list_variants(), *map(tiny, QUIRKS)])
def test_each_quirk_and_each_variant_of_usual_size_has_a_plain_form(name):
    """Fast paths run at such sizes that do not at small ones."""
    assert eject(name).differences["float64"] < 1e-12


@pytest.mark.nightly
@pytest.mark.parametrize("task", ["causal-lm", "masked-lm", "seq2seq-lm"])
@pytest.mark.parametrize("name", PARTS)
def test_each_part_has_a_plain_form(name, task):
    try:
        model = zoo.build(name.replace(":", "@tiny:", 1), task, seed=0)
    except ZooError:
        pytest.skip("the part is for other stacks")
    randomise(model)
    assert eject(model).differences["float64"] < 1e-12


@pytest.mark.parametrize("kind", ["llama3", *(pytest.param(one, marks=pytest.mark.nightly) for one in ROTATIONS)])
def test_each_scaled_rotation_has_a_plain_form(kind, monkeypatch):
    monkeypatch.undo()  # so that one proof is run in a new process
    rope = {"rope_type": kind, "rope_theta": 10000.0, **ROTATIONS[kind]}
    settings = {"max_position_embeddings": 8} if kind == "dynamic" else {}
    model = zoo.build("llama-style@tiny", "causal-lm", seed=0, rope_parameters=rope, **settings)
    assert eject(model).differences["float64"] < 1e-12


@pytest.mark.parametrize("settings", ["attention_scale=3.0", "position=learned,attention_scale=none"])
def test_disentangled_scores_are_scaled_in_a_file(settings):
    assert eject(f"ltg-bert-style@tiny:{settings}").differences["float64"] < 1e-12


def test_routers_of_layers_of_further_tokens_are_balanced():
    settings = "num_nextn_predict_layers=2,output_router_logits=true,router_aux_loss_coef=1.0"
    assert eject(f"mixtral-style@tiny:{settings}").differences["float64"] < 1e-12


@pytest.mark.parametrize("pattern", [{"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 2},
                                     {"nope_layers": [False, True], "position": "rotary"}])  # fmt: skip
def test_a_deeper_decoder_continues_the_pattern_of_layers(pattern):
    model = zoo.build("pre-norm@tiny", "seq2seq-lm", seed=0, decoder_layers=3, **pattern)
    assert eject(model).differences["float64"] < 1e-12


@pytest.mark.parametrize("head", ["lm_head_bias=true", "lm_head_transform=true,embedding_size=8"])
def test_a_head_of_unit_vectors_has_the_bias_and_width_of_others(head):
    assert eject(f"ngpt@tiny:{head}").differences["float64"] < 1e-12


@pytest.mark.parametrize("name", ["normformer", "nlpt-encoder"])
def test_streams_around_a_sublayer_of_a_variant_s_own_are_refused(name):
    """One normalises what attention gives, the other drops nothing of it: the proof, without dropout, misses that."""
    with pytest.raises(UnsupportedOperationError, match="residual='lambdas' has no plain form"):
        eject(f"{name}@tiny:residual=lambdas", task="masked-lm")


def test_a_convolution_over_one_token_keeps_none():
    assert eject("qwen3-next-style@tiny:linear_conv_kernel_dim=1").differences["float64"] < 1e-12


WHERE_SCHEMES_MEET_PARTS = [
    *(f"{name}-style:parametrization=mup" for name in ("kimi-linear", "t5", "ltg-bert", "deepseek-v3", "qwen3-next")),
    "gated-hyper-connections:parametrization=mup",
    "pre-norm:parametrization=mup,scale_embedding=True,embedding_size=32,position=sinusoidal",
    "bert-style:parametrization=mup,scale_embedding=True,type_vocab_size=8",
    "pre-norm:initializer=xavier-uniform,scale_embedding=True,embedding_size=16",
    "pre-norm:initializer=t5,attention_scale=none,attention=latent,tie_word_embeddings=True",
    "pre-norm:initializer=t5,feed_forward=moe,embedding_size=16",
    "ltg-bert-style:parallel_residual=True",
    "ltg-bert-style:feed_forward=moe-shared,num_hidden_layers=3",
    "ltg-bert-style:feed_forward=moe-sigmoid,num_hidden_layers=3",
]
"""Initial values of a part that depend on the scheme of the others."""


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.nightly) for name in list_variants()),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in PARTS if "initializer" in name),
        *WHERE_SCHEMES_MEET_PARTS,
    ],
)
def test_new_weights_are_drawn_as_in_the_zoo(name, tmp_path):
    """The deviation of each tensor is the zoo's."""
    task = describe(name.partition(":")[0]).tasks[0]
    model = zoo.build(name.replace(":", "@tiny:", 1) if ":" in name else f"{name}@tiny", task, seed=0)
    (tmp_path / "model.py").write_text(text_of(model.config, task, name), encoding="utf-8")
    found = runpy.run_path(str(tmp_path / "model.py"), run_name="ejected")
    torch.manual_seed(0)
    drawn = dict(found[MODELS[task]](found["Config"]()).named_parameters())
    for key, weight in model.named_parameters():
        if weight.numel() > 200:
            assert drawn[key].std().item() == pytest.approx(weight.std().item(), rel=0.2, abs=1e-6), key
        elif weight.numel() > 1:
            assert (drawn[key].std() < 1e-6) == (weight.std() < 1e-6), key


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(200))
def test_random_mixes_of_parts_compute_the_same(seed):
    """A mix that cannot be built is drawn again."""
    draw = random.Random(seed)
    while True:
        drawn = {field: draw.choice([*registry.names()]) for field, registry in PART_FIELDS.items()}
        drawn["norm_placement"] = draw.choice(["pre", "post", "sandwich", "res-post", "deepnorm", "none"])
        drawn["residual_scaling"] = draw.choice([None, "layer-scale", "rezero"])
        drawn["qk_norm"] = draw.choice([None, "head", "full"])
        drawn["parallel_residual"] = draw.choice([False, True])
        drawn["sliding_window"] = draw.choice([None, 4])
        try:
            model = zoo.build("pre-norm@tiny", draw.choice(describe("pre-norm").tasks), seed=0, **drawn)
        except ZooError:
            continue
        break
    randomise(model)
    assert eject(model).differences["float64"] < 1e-12, drawn


@pytest.mark.thorough
def test_the_page_shows_the_files_as_they_are():
    ejected = runpy.run_path(str(ROOT / "scripts/site/ejected.py"))
    page = (ROOT / "docs/eject.md").read_text(encoding="utf-8")
    found = ejected["parts"](page)
    assert len(found) == 3
    for command, text in found.items():
        assert replace_part(page, command, text) == page, "run python scripts/site/ejected.py"


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "most"), LINES.items())
def test_files_are_short(name, most):
    lines = source(name).splitlines()
    assert len(lines) + 2 <= most, "two more state how exact it is"
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(("a", "b", "fewer"), [("pre-norm", "post-norm", 15), ("gpt2-style", "llama-style", 70)])
def test_differences_are_small(a, b, fewer):
    difference = code_difference(a, b)
    assert 0 < difference.changed < fewer
    assert difference.text.startswith(f"--- {a}\n+++ {b}\n")
    assert "<pre>" in difference._repr_html_()


@pytest.mark.parametrize(
    ("a", "b", "sizes"),
    [
        ("pre-norm:hidden_size=64", "post-norm:dropout=0.2", []),
        ("pre-norm:hidden_size=64", "post-norm:num_hidden_layers=3", ["num_hidden_layers"]),
        ("pre-norm@tiny:max_position_embeddings=32", "post-norm@tiny", []),
        ("pre-norm", "saved", ["vocab_size", "max_position_embeddings"]),
    ],
)
def test_the_second_has_sizes_of_the_first_unless_its_name_gives_them(a, b, sizes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    zoo.build("pre-norm", vocab_size=97, max_position_embeddings=32).save_pretrained("./saved")
    text = code_difference(a, f"./{b}" if b == "saved" else b).text
    assert sorted(set(re.findall(r"^[-+]    (\w+): int =", text, flags=re.MULTILINE))) == sorted(sizes)


def test_sizes_that_the_second_cannot_have_are_named():
    with pytest.warns(ZooWarning, match="keeps its own sizes, .*head_dim=3"):
        code_difference("gpt2-style:hidden_size=36,num_attention_heads=12", "llama-style:position=rotary")


def test_nothing_that_the_configuration_does_not_use_is_in_a_file():
    text = source("llama-style")
    others = ("dropout", "LayerNorm", "memory", "if config.", "if self.config.", "zeros_", "width: int")
    assert not [word for word in others if word in text]
    assert "FeedForward(config)" in text, "a setting is read where it is used"
    assert "save_file" not in source("gpt2-style", "feature-extraction"), "it has no training to save after"
    assert "def chosen" not in source("mixtral-style"), "a variable has the name of a function"


def test_a_mask_that_an_original_does_not_read_may_be_given():
    text = source("explicando+padding-is-attended")
    assert "attention_mask: Tensor | None = None" in text.partition("class Seq2SeqLM")[2].partition("def generate")[0]


def test_trees_of_earlier_files_are_not_kept():
    assert names.cache_info().maxsize is not None


def test_quirks_are_commented_at_their_lines_and_a_model_that_keeps_nothing_has_no_cache():
    text = source("vanilla+faithful", "seq2seq-lm")
    assert not [word for word in ("cache", "start: int", "memory: Tensor | None = None) -> tuple") if word in text]
    assert text.count("# The original's defect") >= 7
    assert "cross attention uses the weights of self-attention" in text
    assert text.count("attention_mask is None") == 2, "the encoder, and the decoder's view of it"
    assert "real is None" not in text and "real is not None" not in text and "(real)" not in text


def test_a_model_stays_as_it_is():
    model = zoo.build("gpt2-style@tiny", seed=0, dtype=torch.bfloat16).train()
    eject(model)
    assert model.dtype == torch.bfloat16 and model.training


def test_a_wrong_file_is_refused_by_what_differs(tmp_path):
    file = tmp_path / "model.py"
    model = zoo.build("pre-norm@tiny", "causal-lm", seed=0)
    text = text_of(model.config, "causal-lm", "pre-norm")
    file.write_text(text.replace("self.config.head_dim**-0.5", "self.config.head_dim**-1.0"), encoding="utf-8")
    with pytest.raises(UnsupportedOperationError, match=r"outputs torch\.float32 of the file would be"):
        prove(file, model, "causal-lm", is_new=True)


def test_a_file_that_ends_its_process_without_a_word_is_refused(tmp_path, monkeypatch):
    monkeypatch.undo()
    file = tmp_path / "model.py"
    file.write_text("import os\n\nos._exit(3)\n", encoding="utf-8")
    with pytest.raises(UnsupportedOperationError, match="does not run: its process ended with 3"):
        prove(file, zoo.build("pre-norm@tiny", "causal-lm", seed=0), "causal-lm", is_new=True)


def test_a_name_may_be_longer_than_that_of_a_file():
    with pytest.raises(ZooError, match="xxx"):
        eject("x" * 300)


def test_a_part_without_a_plain_form_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(NORMS, "_items", dict(NORMS._items))
    NORMS.register("my-norm")(RMSNorm)
    with pytest.raises(UnsupportedOperationError, match=r"norm='my-norm' has no plain form.*docs/plugins"):
        source("pre-norm:norm=my-norm")


PLAIN = '''
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ScaleNorm(nn.Module):
    """Vectors of one learned length (Nguyen and Salazar 2019)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.full((1,), sqrt(width))), eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * F.normalize(x, dim=-1, eps=self.eps)
'''
"""A plugin's plain form."""


@pytest.mark.parametrize("wrong", [False, True])
def test_a_plugin_gives_a_plain_form(tmp_path, monkeypatch, wrong):
    """zoo.testing checks it; one that computes something else is refused."""
    text = PLAIN.replace("F.normalize(x", "2 * F.normalize(x") if wrong else PLAIN
    (tmp_path / "scale_norm_plain.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(NORMS, "_items", dict(NORMS._items))

    @NORMS.register("scale-norm")
    class ScaleNorm(torch.nn.Module):
        plain = "scale_norm_plain:ScaleNorm"

        def __init__(self, width, config):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((1,), width**0.5))
            self.eps = config.layer_norm_eps

        def forward(self, hidden_states):
            return self.weight * torch.nn.functional.normalize(hidden_states, dim=-1, eps=self.eps)

    subject = new_subject("pre-norm:norm=scale-norm", "causal-lm")
    if wrong:
        with pytest.raises(AssertionError, match="nothing was written"):
            check_plain_forms_of_plugins_compute_the_same(subject)
        return
    check_plain_forms_of_plugins_compute_the_same(subject)
    ejected = eject("pre-norm@tiny:norm=scale-norm", task="causal-lm").text
    assert "class ScaleNorm(nn.Module):  # Vectors of one learned length (Nguyen and Salazar 2019).\n" in ejected
    assert text.strip().rpartition("def ")[2] in ejected
    assert "from math import sqrt\n" in ejected


def test_a_plain_form_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(NORMS, "_items", dict(NORMS._items))

    @NORMS.register("no-form")
    class NoForm(RMSNorm):
        plain = "no_such_module:Norm"

    with pytest.raises(RegistrationError, match="there is no module 'no_such_module'"):
        source("pre-norm:norm=no-form")


def test_a_file_is_not_replaced_unless_forced(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(OutputExistsError, match="--force"):
        eject("pre-norm@tiny", file)
    assert file.read_text(encoding="utf-8") == "mine"


@pytest.mark.slow
def test_there_is_nothing_to_force_without_a_file():
    result = CliRunner().invoke(cli, ["eject", "gpt2-style@tiny", "--force"])
    assert result.exit_code == 2 and "--force replaces the file that -o names" in result.output


def test_a_changed_file_trains_and_its_weights_go_back(tmp_path):
    """As a user would: another activation, training on a text, the weights in a model of the zoo."""
    file, weights, text = (
        tmp_path / "model.py",
        tmp_path / "weights.safetensors",
        Path(zoo.__file__).parent / "data/tasks/data/phrases/train.tsv",
    )
    eject("gpt2-style@tiny:vocab_size=256", file)
    changed = file.read_text(encoding="utf-8").replace(
        'F.gelu(self.up_proj(x), approximate="tanh")', "F.relu(self.up_proj(x))"
    )
    file.write_text(changed, encoding="utf-8")
    asked = run_python([str(file), "--help"], env=os.environ)
    assert "python model.py --train TEXT" in " ".join(asked.stderr.split()) and "Traceback" not in asked.stderr
    done = run_python([str(file), "--train", str(text), "--save", str(weights)], env=os.environ)
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    assert len(losses) == 100 and losses[-1] < losses[0] / 2
    model = zoo.build("gpt2-style@tiny:vocab_size=256,hidden_act=relu", "causal-lm")
    missing, unexpected = model.load_state_dict(load_file(weights), strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    ids = torch.tensor(list(text.read_bytes()[: 64 * 64])).view(64, 64)
    with torch.no_grad():
        assert model(ids, labels=ids).loss.item() < losses[0] / 2
