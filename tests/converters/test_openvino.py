"""Exports to OpenVINO compute and write what the model does, with the cache inside of the engine."""

import shutil
import subprocess
import sys

import pytest
import torch
from native_models import zoo_model
from transformers.cache_utils import DynamicCache

import zoo
from zoo.base.errors import (
    CheckpointError,
    InputError,
    SequenceTooLongError,
    UnsupportedOperationError,
    UnwritableError,
)
from zoo.converters.errors import ExportError, MissingExtraError
from zoo.training.generation.engines import load_for

openvino = pytest.importorskip("openvino")
# One export serves most tests, in the process of tests that has imported what exports import.
pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.xdist_group("engines")]

ALONE = """
import sys
import numpy as np
import openvino

run = openvino.Core().compile_model(sys.argv[1], "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"}).create_infer_request()
ids = seen = np.array([[5, 9, 3, 11]])
for length in range(4, 10):
    places = np.arange(length - ids.shape[1], length)[None]
    given = {"input_ids": ids, "attention_mask": np.ones((1, length), np.int64), "position_ids": places}
    ids = run.infer(given | {"beam_idx": np.zeros(1, np.int32)})["logits"][:, -1:].argmax(-1)
    seen = np.concatenate([seen, ids], 1)
assert not {"torch", "transformers", "zoo"} & set(sys.modules)
print(*seen[0])
"""


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """A decoder whose window is shorter than its cache, its folder, and the report."""
    model = zoo_model("llama-style", dtype=torch.float32, sliding_window=3, num_hidden_layers=1)
    folder = tmp_path_factory.mktemp("decoder") / "out"
    return model, folder, zoo.export(model, folder, "openvino")


def test_the_cache_is_inside(decoder):
    model, folder, report = decoder
    assert report.difference.float32 < 1e-5
    assert report.difference.greedy and report.difference.beams
    graph = openvino.Core().read_model(str(folder / "openvino_model.xml"))
    assert {port.any_name for port in graph.inputs} == {"input_ids", "attention_mask", "position_ids", "beam_idx"}
    assert [port.any_name for port in graph.outputs] == ["logits"]
    loaded, ids = load_for(folder), torch.randint(3, 17, (2, 6))
    with torch.no_grad():
        ours = model(ids).logits
        for how in ({"labels": ids}, {"labels": ids, "shift_labels": ids.roll(-1, 1)}):
            assert float(loaded(ids, **how).loss) == pytest.approx(float(model(ids, **how).loss), abs=1e-5)
    first = loaded(ids[:, :4])
    second = loaded(ids[:, 4:], past_key_values=first.past_key_values)
    assert second.past_key_values.get_seq_length() == 6
    assert float((torch.cat([first.logits, second.logits], 1) - ours).abs().max()) < 1e-5
    cache = DynamicCache()
    cache.update(torch.zeros(2, 2, 3, 4), torch.zeros(2, 2, 3, 4), 0)
    with pytest.raises(UnsupportedOperationError, match="goes on from none but its own"):
        loaded(ids, past_key_values=cache)
    with pytest.raises(UnsupportedOperationError, match="forgets no positions"):
        second.past_key_values.crop(1)


def test_openvino_alone_runs_it(decoder):
    """In a process that imports neither torch nor the zoo."""
    model, folder, _ = decoder
    command = [sys.executable, "-I", "-c", ALONE, str(folder / "openvino_model.xml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    settings = dict(do_sample=False, max_new_tokens=6, eos_token_id=None)
    ours = model.generate(torch.tensor([[5, 9, 3, 11]]), **settings)
    assert [int(number) for number in done.stdout.split()] == ours[0].tolist()


def test_a_damaged_export_is_refused(decoder, tmp_path):
    damaged = shutil.copytree(decoder[1], tmp_path / "damaged")
    (damaged / "openvino_model.xml").write_text("<net")
    with pytest.raises(CheckpointError, match="OpenVINO cannot load"):
        load_for(damaged)


def test_a_full_disk_is_one_line(decoder, tmp_path):
    from zoo.converters.openvino.stateful import save

    graph = openvino.Core().read_model(str(decoder[1] / "openvino_model.xml"))
    (tmp_path / "graph.xml").symlink_to("/dev/full")
    with pytest.raises(UnwritableError, match="graph.xml cannot be written; is the disk full"):
        save(graph, tmp_path / "graph.xml")


def test_what_it_cannot_hold_is_refused(tmp_path, monkeypatch):
    latent = zoo.build("llama-style@tiny:attention=latent,vocab_size=20")
    with pytest.raises(
        ExportError,
        match="openvino cannot express this model: the zoo has no writer yet: attention='latent' caches no keys",
    ):
        zoo.export(latent, tmp_path / "out", "openvino")
    plain = zoo.build("gpt2-style@tiny")
    with pytest.raises(ExportError, match="valid for openvino: float32, float16, int8"):
        zoo.export(plain, tmp_path / "out", "openvino", dtype="int4")
    monkeypatch.setitem(sys.modules, "nncf", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'transformer-zoo\[nncf\]'"):
        zoo.export(plain, tmp_path / "out", "openvino", dtype="int8")
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'transformer-zoo\[openvino\]'"):
        zoo.export(plain, tmp_path / "out", "openvino")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "task", "dtype"),
    [
        ("bert-style", "feature-extraction", None),
        ("bert-style", "sequence-classification", None),
        ("t5-style", "seq2seq-lm", None),
        ("vanilla", "feature-extraction", None),
        ("alibi-decoder", "causal-lm", None),
        ("mixtral-style", "causal-lm", None),
        ("gpt2-style", "causal-lm", "float16"),
        ("gpt2-style", "causal-lm", "int8"),
    ],
)
def test_every_kind_of_graph(name, task, dtype, tmp_path):
    if dtype == "int8":
        pytest.importorskip("nncf")
    model = zoo_model(name, task, dtype=torch.float32, num_hidden_layers=1, type_vocab_size=2)
    report = zoo.export(model, tmp_path / "out", "openvino", dtype=dtype)
    if dtype is None:
        assert report.difference.float32 < 1e-5 * max(1.0, report.difference.largest)
    else:
        assert 1e-5 < report.difference.float32 < 0.2
        assert f"stored as {dtype}" in (tmp_path / "out" / "README.md").read_text()


def test_a_graph_checks_its_tables_and_stores_its_options(tmp_path):
    """In any program, with the options that the graph stores."""
    model = zoo_model("gpt2-style", dtype=torch.float32, num_hidden_layers=1, max_position_embeddings=8, vocab_size=17)
    zoo.export(model, tmp_path / "out", "openvino", fresh_process=False)
    core = openvino.Core()
    graph = core.read_model(str(tmp_path / "out" / "openvino_model.xml"))
    stored = graph.get_rt_info(["runtime_options"]).value
    plain, told = core.compile_model(graph, "CPU"), core.compile_model(graph, "CPU", stored)
    assert plain.get_property("KV_CACHE_PRECISION").get_type_name() == "f32"
    assert told.get_property("EXECUTION_MODE_HINT").name == "ACCURACY"

    def run_alone(ids, last):
        positions = torch.arange(last + 1 - len(ids), last + 1)[None].numpy()
        given = {"input_ids": torch.tensor([ids]).numpy(), "position_ids": positions}
        given["attention_mask"] = torch.ones(1, len(ids), dtype=torch.long).numpy()
        return told({**given, "beam_idx": torch.zeros(1, dtype=torch.int32).numpy()})["logits"]

    ids = list(range(3, 11))
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits
    assert float((torch.from_numpy(run_alone(ids, 7)) - expected).abs().max()) < 1e-5
    for wrong in 2 * [(ids, 8), ([*ids[1:], 17], 7), ([*ids[1:], -1], 7), ([3], 8)]:
        with pytest.raises(RuntimeError, match="ids or positions outside of 0 to"):
            run_alone(*wrong)
    loaded = load_for(tmp_path / "out")
    with pytest.raises(SequenceTooLongError, match="9 positions was given.*max_position_embeddings=8"):
        loaded(torch.tensor([[*ids, 3]]))
    with pytest.raises(InputError, match="OpenVINO refuses these inputs: ids or positions outside of 0 to"):
        loaded(torch.tensor([[17]]))
