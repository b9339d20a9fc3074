"""Bundles: the code that a model needs, taken from the library's own files, which loads without the library."""

import ast
import builtins
import hashlib
import json
import os
import re
import sys
import textwrap
from functools import cache
from typing import NamedTuple

import pytest
import torch
from native_models import zoo_model
from preloaded import run_python

import zoo
from zoo.converters.bundle import auto_map, bundle_files, write_bundle
from zoo.converters.bundle_registry import Registry
from zoo.converters.tree_shaking import Shaker
from zoo.models import ZooConfig
from zoo.registry import VARIANTS, list_variants

pytestmark = pytest.mark.thorough

CASES = [(name, task) for name in list_variants() for task in VARIANTS.get(name).tasks[:1]]


@pytest.mark.parametrize(("name", "task"), CASES)
def test_code_is_flat_and_complete(name, task):
    """Every file compiles, imports only its neighbours and installed packages, and defines what others import."""
    modules = {
        file.removesuffix(".py"): read(text) for file, text in bundle_files(zoo_model(name, task).config).items()
    }
    for module, found in modules.items():
        for node in found.imports:
            if node.level:
                assert node.level == 1
                assert node.module in modules, f"{module} imports {node.module}"
                for alias in node.names:
                    assert alias.name in modules[node.module].defined, (
                        f"{module} imports {alias.name} from {node.module}"
                    )
            else:
                assert node.module.partition(".")[0] != "zoo"
        assert not found.unbound
    for target in auto_map(zoo_model(name, task).config).values():
        module, _, head = target.partition(".")
        assert head in modules[module].defined


class Read(NamedTuple):
    """What a file imports from where, defines, and takes from nowhere."""

    imports: list[ast.ImportFrom]
    defined: set[str]
    unbound: set[str]


@cache
def read(text):
    """Many variants bring the same files."""
    nodes = list(ast.walk(tree := ast.parse(text)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    defined = {name for node in tree.body for name in names_of(node)}
    inside = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    inside |= {name for node in imports for name in names_of(node)}
    constants = {node.id for node in names if node.id.isupper() and len(node.id) > 3}
    return Read(imports, defined, constants - defined - inside - set(dir(builtins)))


def names_of(node):
    if isinstance(node, ast.If):
        return [name for each in (*node.body, *node.orelse) for name in names_of(each)]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    single = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [target.id for target in single if isinstance(target, ast.Name)]


def test_only_what_is_needed_is_there():
    files = bundle_files(zoo_model("vanilla").config)
    code = "\n".join(files.values())
    assert {"vanilla.py", "modeling.py", "configuration.py", "registry.py"} <= set(files)
    assert "rotary.py" not in files
    for absent in (
        "AlibiPosition",
        "SinusoidalPosition",
        "RMSNorm(",
        "ZooForMaskedLM",
        "entry_points",
    ):
        assert absent not in code
    assert "class LearnedPosition" in code
    assert re.search(r"paper=.*Attention Is All You Need", code), "what the author says of the variant stays"


def test_code_is_the_librarys_own():
    from zoo.models import attention

    with open(attention.__file__, encoding="utf-8") as file:
        library = file.read()
    bundled = bundle_files(zoo_model("vanilla").config)["attention.py"]
    body = bundled[bundled.index("class Attention(") :]
    assert body.split("\n\n\n")[0] in library


def test_a_module_that_was_edited_is_read_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "edited_part.py"
    for name in ("first", "other"):
        file.write_text(f"{name}_name = 1  # {'again' if name == 'other' else 'at first'}\n")
        assert list(Shaker(["edited_part"], []).module("edited_part").definitions) == [f"{name}_name"]
    del sys.modules["edited_part"]


def test_configuration_and_manifest(tmp_path):
    model = zoo_model("vanilla", dtype=torch.float32)
    write_bundle(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["auto_map"]["AutoModelForSeq2SeqLM"] == "modeling.ZooForConditionalGeneration"
    assert config["auto_map"]["AutoConfig"] == "configuration.ZooConfig"
    manifest = json.loads((tmp_path / "bundle.json").read_text())
    assert manifest["variant"] == "vanilla"
    assert manifest["transformer-zoo"] == zoo.__version__
    for name, digest in manifest["sha256"].items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
    assert set(manifest["sha256"]) == {path.name for path in tmp_path.glob("*.py")}


def test_the_registry_of_a_bundle_says_what_it_lacks():
    registry = Registry("position")
    registry.register("learned", int)
    with pytest.raises(KeyError, match=r"no position 'rotary', only learned.*pip install transformer-zoo"):
        registry.get("rotary")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task", "settings"),
    [
        ("vanilla", "seq2seq-lm", dict(faithful=True)),
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


@pytest.mark.slow
@pytest.mark.xdist_group("preloaded")
def test_a_plugins_variant_brings_its_code(tmp_path):
    """A variant of another package, whose layer is its own, runs without that package."""
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
    script = (
        "import torch; torch.set_num_threads(1);"  # for the same bits, as in all of these tests
        "import outsider, zoo;"
        "sizes = dict(vocab_size=20, hidden_size=16, num_attention_heads=4, max_position_embeddings=20);"
        "model = zoo.build('outsider', **sizes);"
        "print(zoo.export(model, 'out', 'bundle').difference.float32)"
    )
    done = run_python(["-c", script], env=os.environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout.split()[-1] == "0.0"
    assert "FACTOR = 0.5" in (tmp_path / "out" / "outsider.py").read_text()


@pytest.mark.parametrize("name", ["gemma3-style", "modernbert-style"])
def test_bases_by_layer_are_all_that_a_configuration_says_of_rotation(name, monkeypatch):
    """transformers 5.17 puts another beside the layer types, and then takes its name for a layer type."""
    convert = ZooConfig.convert_rope_params_to_dict

    def convert_as_before(self, **kwargs):
        self.rope_parameters.setdefault("rope_theta", 10000.0)
        return convert(self, **kwargs)

    monkeypatch.setattr(ZooConfig, "convert_rope_params_to_dict", convert_as_before)
    assert set(zoo.config(name).rope_parameters) == {"full_attention", "sliding_attention"}
