"""Bundles: the code that a model needs, taken from the library's own files, which loads without the library."""

import ast
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import pytest
import torch
from every_variant import EVERY_PART
from native_models import ZOO, zoo_model
from preloaded import run_python
from ruff import find_ruff_bin

import zoo
from zoo.base.errors import CheckpointError
from zoo.converters.bundle import auto_map, bundle_files, code_section, write_bundle
from zoo.converters.errors import ExportError
from zoo.converters.tree_shaking import Shaker
from zoo.models import ZooConfig
from zoo.registry import VARIANTS, list_variants

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("in_forks")]

CASES = [
    pytest.param(name, VARIANTS.get(name).tasks[0], marks=() if name in EVERY_PART else pytest.mark.nightly)
    for name in list_variants()
]


MOST_LINES = 2611  # Most lines of a bundle, both files together


def test_the_document_names_the_limit_of_lines():
    text = (Path(__file__).parents[2] / "docs/converters.md").read_text(encoding="utf-8")
    assert f"at most {MOST_LINES:,} lines in all" in text


@cache
def files_of(name, task=None):
    return bundle_files(zoo.config(name, task or VARIANTS.get(name).tasks[0], **ZOO))


@pytest.mark.parametrize(("name", "task"), CASES)
def test_code_is_complete_and_short(name, task, tmp_path):
    """Both files read nothing that they lack, import nothing that they do not read, and have not too many lines."""
    files = files_of(name, task)
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    rules = ["--isolated", "--no-cache", "--select", "F4,F8", "--ignore", "F841"]
    found = subprocess.run([find_ruff_bin(), "check", *rules, tmp_path], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
    assert all("zoo" not in packages(text) for text in files.values())
    assert sum(len(text.splitlines()) for text in files.values()) <= MOST_LINES
    for target in auto_map(zoo.config(name, task, **ZOO)).values():
        module, _, head = target.partition(".")
        assert f"class {head}(" in files[f"{module}.py"]


def packages(text):
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {module.partition(".")[0] for module in modules}


def test_only_what_is_needed_is_there():
    files = files_of("vanilla")
    code = "\n".join(files.values())
    assert set(files) == {"configuration_zoo.py", "modeling_zoo.py"}
    parts = ("AlibiPosition", "SinusoidalPosition", "RMSNorm", "Router", "ZooForMaskedLM", "ParallelEncoderLayer")
    others = ("entry_points", "captured", "Unpadded", "int8", "class Experts", "DeltaNet", "reentrant")
    assert [word for word in (*parts, *others) if word in code] == []
    assert "class LearnedPosition" in code
    assert "    pass\n" not in code, "loops of nothing are left out"
    assert "Attention Is All You Need" in code, "the author's words about the variant stay"


def test_files_read_from_settings_to_heads():
    text = files_of("gpt2-style")["modeling_zoo.py"]
    order = ["LearnedPosition", "Attention", "FeedForward", "DecoderLayer", "ZooDecoder", "ZooForCausalLM"]
    places = [text.index(f"class {name}(") for name in ("Attention", "DecoderLayer", "ZooDecoder", "ZooForCausalLM")]
    assert places == sorted(places) and all(f"class {name}(" in text for name in order)


def test_code_is_the_librarys_own():
    from zoo.models import residual

    with open(residual.__file__, encoding="utf-8") as file:
        library = file.read()
    bundled = files_of("vanilla")["modeling_zoo.py"]
    forward = bundled.partition("class Residual(")[2].partition("        branch = self.branch(")[2].partition("\n\n")[0]
    assert forward in library


def test_a_module_that_was_edited_is_read_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "edited_part.py"
    for name in ("first", "other"):
        file.write_text(f"{name}_name = 1  # {'again' if name == 'other' else 'at first'}\n")
        assert list(Shaker(["edited_part"]).module("edited_part").definitions) == [f"{name}_name"]
    del sys.modules["edited_part"]


def test_configuration_and_record_of_code(tmp_path):
    model = zoo_model("vanilla", dtype=torch.float32)
    write_bundle(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["auto_map"]["AutoModelForSeq2SeqLM"] == "modeling_zoo.ZooForConditionalGeneration"
    assert config["auto_map"]["AutoConfig"] == "configuration_zoo.ZooConfig"
    record = json.loads((tmp_path / "bundle.json").read_text())
    assert record["variant"] == "vanilla"
    assert record["transformer-zoo"] == zoo.__version__
    for name, digest in record["sha256"].items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
        assert f"| `{name}` |" in code_section(tmp_path) and digest in code_section(tmp_path)
    assert set(record["sha256"]) == {path.name for path in tmp_path.glob("*.py")}


def test_edited_code_is_refused(tmp_path):
    """The zoo runs its own code, so that an edit would be without effect there, and nothing would be reported."""
    write_bundle(zoo_model("pre-norm", "causal-lm", dtype=torch.float32), tmp_path)
    zoo.load(str(tmp_path))
    before = code_section(tmp_path)
    file = tmp_path / "modeling_zoo.py"
    file.write_text(file.read_text().replace("scores.softmax(dim=-1)", "scores.sigmoid()"))
    assert hashlib.sha256(file.read_bytes()).hexdigest() not in before
    with pytest.raises(CheckpointError, match=r"not what was exported, by its bundle.json: modeling_zoo.py"):
        zoo.load(str(tmp_path))
    assert zoo.load(str(tmp_path), verify=False)


@pytest.mark.slow
def test_settings_without_their_code_are_refused_by_name(tmp_path):
    """A changed configuration works as far as the code reaches, and is refused beyond."""
    write_bundle(zoo_model("llama-style", "causal-lm", dtype=torch.float32), tmp_path)
    script = f"""
import sys; sys.modules["zoo"] = None
from transformers import AutoConfig, AutoModelForCausalLM
config = AutoConfig.from_pretrained({str(tmp_path)!r}, trust_remote_code=True)
config.sliding_window, config.num_hidden_layers = 4, 1
AutoModelForCausalLM.from_config(config, trust_remote_code=True)
for changes in (dict(position="alibi"), dict(qk_norm="head"), dict(hidden_act="relu"), dict(hidden_size=-1)):
    try:
        AutoConfig.from_pretrained({str(tmp_path)!r}, trust_remote_code=True, **changes)
    except ValueError as error:
        print(type(error).__name__, error)
try:
    config.final_logit_softcapping = 30.0
except ValueError as error:
    print(error)
"""
    done = run_python(["-c", script], env=os.environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-800:]
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["ConfigError"] * 4, lines
    named = ("position='alibi'", "qk_norm='head'", "'relu'", "hidden_size=-1", "softcapping=30.0")
    for line, words in zip(lines, named, strict=True):
        assert words in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task", "settings"),
    [
        ("vanilla", "seq2seq-lm", dict(faithful=True)),
        ("odom-style", "seq2seq-lm", dict(faithful=True)),
        ("explicando", "seq2seq-lm", dict(faithful=True)),
        ("gpt-bert-style", "masked-lm", {}),
        pytest.param("gemma2-style", "causal-lm", {}, marks=pytest.mark.nightly),
        pytest.param("nlpt-encoder", "sequence-classification", {}, marks=pytest.mark.nightly),
        ("llama-style", "sequence-classification", dict(classifier_positions=3, num_labels=5)),
    ],
)
def test_bundles_load_where_the_zoo_cannot_be_imported(name, task, settings, tmp_path):
    model = zoo_model(name, task, dtype=torch.float32, **settings)
    report = zoo.export(model, tmp_path / "out", "bundle")
    assert report.difference.float32 == 0.0
    assert report.difference.greedy in (None, True)


def code_of(folder: Path, plugin: str, built: str) -> str:
    """The code of the bundle of a model with a plugin's code, which is in a folder."""
    script = (
        "import torch; torch.set_num_threads(1);"  # for the same bits, as in all of these tests
        f"import {plugin}, zoo;"
        f"print(zoo.export(zoo.build({built}), 'out', 'bundle').difference.float64)"  # float32 has fast steps, too
    )
    done = run_python(["-c", script], env=os.environ, cwd=folder)
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout.split()[-1] == "0.0"
    return (folder / "out" / "modeling_zoo.py").read_text()


@pytest.mark.slow
def test_a_plugins_variant_brings_its_code(tmp_path):
    """A variant of another package, with a layer of its own, runs without that package."""
    (tmp_path / "outsider.py").write_text(
        textwrap.dedent(
            '''
            """A plugin."""
            from torch import nn
            from zoo.models import ACTIVATIONS, EncoderLayer, DecoderLayer, Transformer, ZooConfig
            from zoo.registry import register

            FACTOR = 0.5

            @ACTIVATIONS.register("cube")
            class Cube(nn.Module):
                """The third power."""

                def forward(self, x):
                    return x**3

            class HalvedLayer(DecoderLayer):
                """Halves its output."""

                def forward(self, hidden_states, *args, **kwargs):
                    return super().forward(hidden_states, *args, **kwargs) * FACTOR

            @register("outsider", tasks=("causal-lm",), source="nowhere", defaults={"hidden_act": "cube"})
            def outsider(config: ZooConfig) -> Transformer:
                """A decoder that halves."""
                return Transformer(decoder_layer=HalvedLayer)
            '''
        )
    )
    sizes = "vocab_size=20, hidden_size=16, num_attention_heads=4, max_position_embeddings=20"
    text = code_of(tmp_path, "outsider", f"'outsider', {sizes}")
    assert "FACTOR = 0.5" in text


@pytest.mark.slow
@pytest.mark.parametrize("package", ["", "outside"])
def test_a_plugins_part_brings_what_it_imports(package, tmp_path):
    """In a variant of the zoo, and where the plugin is installed, so that importing it would work here."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "__init__.py").write_text("from . import norms\n")
    (tmp_path / "outside" / "helpers.py").write_text("def halved(x):\n    return x * 0.5\n")
    (tmp_path / "outside" / "norms.py").write_text(
        textwrap.dedent(
            f"""
            from torch import nn
            from zoo.models import NORMS
            from {package}.helpers import halved

            @NORMS.register("halved")
            class Halved(nn.Module):
                def __init__(self, width, config):
                    super().__init__()

                def forward(self, hidden_states):
                    return halved(hidden_states)
            """
        )
    )
    text = code_of(tmp_path, "outside", "'pre-norm@tiny', 'causal-lm', vocab_size=20, norm='halved'")
    assert "def halved(x)" in text and "import halved" not in text


@pytest.mark.parametrize("line", ["from .deep import helpers", "import aloof.deep.helpers as helpers"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_module_that_a_plugins_part_reads_attributes_of_is_refused(line, inside, tmp_path, monkeypatch):
    (tmp_path / "aloof" / "deep").mkdir(parents=True)
    for folder in ("aloof", "aloof/deep"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "aloof" / "deep" / "helpers.py").write_text("def halved(x):\n    return x * 0.5\n")
    above, within = ("", f"    {line}\n") if inside else (f"{line}\n", "")
    code = f"{above}from .deep.helpers import halved\ndef whole(x):\n{within}    return helpers.halved(x)\n"
    (tmp_path / "aloof" / "parts.py").write_text(f"{code}def by_name(x):\n    return halved(x)\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("aloof", "aloof.deep", "aloof.deep.helpers", "aloof.parts"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    shaker = Shaker(("aloof",))
    shaker.keep("aloof.parts", "by_name")
    assert ("aloof.deep.helpers", "halved") in shaker.kept
    with pytest.raises(
        ExportError, match=r"aloof.parts uses the module aloof.deep.helpers.*import them by their names"
    ):
        shaker.keep("aloof.parts", "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"),
    [
        pytest.param("gpt2-style", "causal-lm", marks=pytest.mark.nightly),
        ("llama-style", "causal-lm"),
        ("vanilla", "seq2seq-lm"),
    ],
)
def test_bundles_do_what_models_of_transformers_do(name, task, tmp_path):
    """Caches, beams, checkpointing, Trainer, PEFT, saving and loading again, each where the zoo cannot be imported."""
    sizes = {"decoder_vocab_size": 18} if task == "seq2seq-lm" else {}
    write_bundle(zoo_model(name, task, dtype=torch.float32, **sizes), tmp_path / "bundle")
    done = run_python([str(Path(__file__).parent / "bundle_worker.py"), "bundle"], env=os.environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-1500:]
    assert done.stdout.splitlines()[-1] == "all of it"


PACKED = """
import sys; sys.modules["zoo"] = None
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("bundle", trust_remote_code=True).eval().double()
ids = torch.randint(3, 20, (2, 11), generator=torch.Generator().manual_seed(0))
places = torch.cat([torch.arange(6), torch.arange(5)])
with torch.no_grad():
    packed = model(ids, position_ids=places[None], use_cache=False).logits
    alone = torch.cat([model(ids[:, :6], use_cache=False).logits, model(ids[:, 6:], use_cache=False).logits], dim=1)
    print((packed - alone).abs().max().item() < 1e-10, (model(ids).logits - alone).abs().max().item() > 1e-3)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "lfm2-style",
        *(
            pytest.param(one, marks=pytest.mark.nightly)
            for one in ("llama-style", "qwen3-next-style", "kimi-linear-style")
        ),
    ],
)
def test_packed_documents_stay_apart(name, tmp_path):
    write_bundle(zoo_model(name, "causal-lm", dtype=torch.float32), tmp_path / "bundle")
    done = run_python(["-c", PACKED], env=os.environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-1500:]
    assert done.stdout.split() == ["True", "True"]


@pytest.mark.parametrize("name", ["gemma3-style", "modernbert-style"])
def test_a_configuration_of_rotation_has_bases_by_layer_alone(name, monkeypatch):
    """transformers 5.17 adds another key to the layer types, and then takes it for a layer type."""
    convert = ZooConfig.convert_rope_params_to_dict

    def convert_as_before(self, **kwargs):
        self.rope_parameters.setdefault("rope_theta", 10000.0)
        return convert(self, **kwargs)

    monkeypatch.setattr(ZooConfig, "convert_rope_params_to_dict", convert_as_before)
    assert set(zoo.config(name).rope_parameters) == {"full_attention", "sliding_attention"}
