"""What tests of several engines export."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from command_line import run
from native_models import scramble, zoo_model

import zoo
from zoo.converters import ExportReport
from zoo.converters.onnx import graphs
from zoo.converters.transformers_js import graphs as browser_graphs
from zoo.data.tokenizers import Tokenizers, train_word
from zoo.models import ZooPreTrainedModel

Exported = Callable[[str], tuple[Path, ExportReport]]

TEXTS = ["the cat sleeps", "dog", "a dog runs the cat", "sleeps the"]
PAIRS = ["the cat sleeps\tle chat dort", "a dog runs\tun chien court", "the dog sleeps\tle chien dort"]


@pytest.fixture(scope="session")
def traced_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """To trace a graph takes seconds: exports of one model to several engines share it."""
    traced, write = tmp_path_factory.mktemp("graphs"), graphs.write_graph

    def write_once(graph: graphs.Graph, folder: Path, variant: str) -> None:
        config = next(module.config for module in graph.module.modules() if hasattr(module, "config"))
        weights = [(name, tensor.numpy().tobytes()) for name, tensor in graph.module.state_dict().items()]
        about = (type(graph.module), config.to_json_string(use_diff=False), weights, graph.axes, graph.input_names)
        name, file = f"{graph.name}{graphs.GRAPH_ENDING}", traced / hashlib.sha256(repr(about).encode()).hexdigest()
        if not file.exists():
            write(graph, folder, variant)
            shutil.copy(folder / name, file)
        shutil.copy(file, folder / name)

    with pytest.MonkeyPatch.context() as patch:
        for module in (graphs, browser_graphs):
            patch.setattr(module, "write_graph", write_once)
        yield


def save_translator(folder: Path, name: str) -> Path:
    """Save a translator with a tokenizer for either side, and its texts in `pairs.tsv` next to it."""
    source, target = (train_word([pair.split("\t")[side] for pair in PAIRS], min_frequency=1) for side in (0, 1))
    sizes = dict(vocab_size=len(source), decoder_vocab_size=len(target), hidden_size=16, num_attention_heads=4)
    ids = dict(pad_token_id=target.pad_token_id, bos_token_id=target.bos_token_id, eos_token_id=target.eos_token_id)
    model = zoo.build(name, num_hidden_layers=1, intermediate_size=24, max_position_embeddings=20, **sizes, **ids)
    scramble(model, seed=3).save_pretrained(folder)
    Tokenizers(source, target).save(folder)
    (folder.parent / "pairs.tsv").write_text("".join(f"{pair}\n" for pair in PAIRS))
    return folder


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a translator."""
    return save_translator(tmp_path_factory.mktemp("translator") / "saved", "vanilla")


@pytest.fixture(scope="session")
def unlimited(tmp_path_factory: pytest.TempPathFactory, traced_once: None) -> Path:
    """The folder of a translator with positions that are computed."""
    return save_translator(tmp_path_factory.mktemp("unlimited") / "saved", "vanilla:position=sinusoidal")


@pytest.fixture(scope="session")
def onnx_folder(unlimited: Path) -> Path:
    """A translator in ONNX, with the verb's report checked."""
    result = run("export", unlimited, "-o", unlimited.parent / "onnx", "--as", "onnx", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout[result.stdout.index("{") :])
    assert report["difference"]["float32"] < 1e-5
    assert report["difference"]["greedy"] and report["difference"]["beams"]
    files = {"encoder_model.onnx", "decoder_model.onnx", "tokenizer.json", "target/tokenizer.json"}
    assert files <= set(report["files"])
    return unlimited.parent / "onnx"


@pytest.fixture(scope="session")
def openvino_folder(unlimited: Path) -> Path:
    """The same one in OpenVINO."""
    pytest.importorskip("openvino")
    return export_by_verb(unlimited, "openvino", "OpenVINO")


@pytest.fixture(scope="session")
def ctranslate2_folder(translator: Path) -> Path:
    """A translator in CTranslate2."""
    return export_by_verb(translator, "ctranslate2", "CTranslate2")


def export_by_verb(translator: Path, target: str, engine: str) -> Path:
    """Export the translator, with the verb's report checked, and return the folder."""
    result = run("export", translator, "-o", translator.parent / target, "--as", target)
    assert result.exit_code == 0, result.output
    assert f"run in {engine}; differs by at most" in result.output
    assert "same tokens greedily and with beams" in result.output
    return translator.parent / target


@pytest.fixture(scope="session")
def decoder(traced_once: None) -> ZooPreTrainedModel:
    """A decoder with a window that is shorter than its cache, and with experts that reports its router logits."""
    experts = dict(output_router_logits=True, num_experts=2, num_experts_per_tok=1)  # each is traced by itself
    sizes = dict(sliding_window=3, num_hidden_layers=1, vocab_size=23)
    return zoo_model("mixtral-style", dtype=torch.float32, **sizes, **experts)


@pytest.fixture(scope="session")
def exported_decoder(decoder: ZooPreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Exports the decoder to an engine: its folder, and the report."""

    @cache
    def export(target: str) -> tuple[Path, ExportReport]:
        folder = tmp_path_factory.mktemp("decoder") / target
        return folder, zoo.export(decoder, folder, target)

    return export


@pytest.fixture(scope="session")
def encoder(traced_once: None) -> ZooPreTrainedModel:
    """An encoder with 16 positions."""
    sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, type_vocab_size=2)
    return zoo.build("bert-style", "feature-extraction", vocab_size=20, max_position_embeddings=16, seed=0, **sizes)
