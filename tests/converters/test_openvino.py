"""Exports to OpenVINO compute and write what the model does, with the cache inside of the engine."""

import os
import subprocess
import sys

import pytest
import torch
from native_models import zoo_model
from preloaded import run_python
from transformers.cache_utils import DynamicCache

import zoo
from zoo.base.errors import InputError, UnsupportedOperationError, UnwritableError
from zoo.converters.errors import VerificationError
from zoo.converters.weights import in_dtype
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


@pytest.fixture
def folder(exported_decoder):
    return exported_decoder("openvino")[0]


def test_the_cache_is_inside(decoder, folder):
    graph = openvino.Core().read_model(str(folder / "openvino_model.xml"))
    assert {port.any_name for port in graph.inputs} == {"input_ids", "attention_mask", "position_ids", "beam_idx"}
    assert [port.any_name for port in graph.outputs] == ["logits"]
    loaded, ids = load_for(folder), torch.randint(3, 17, (2, 6))
    with torch.no_grad():
        ours = decoder(ids).logits
        for how in ({"labels": ids}, {"labels": ids, "shift_labels": ids.roll(-1, 1)}):
            expected = decoder(ids, output_router_logits=False, **how).loss
            torch.testing.assert_close(loaded(ids, **how).loss, expected, rtol=0, atol=1e-5)
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


def test_masks_and_rows_that_do_not_fit_are_refused(decoder, folder):
    """The engine would stretch them and go on, or end the process."""
    loaded, ids = load_for(folder), torch.randint(3, 17, (3, 6))
    with torch.no_grad():
        wanted, cached = decoder(ids).logits, loaded(ids[:, :4]).past_key_values
    found = loaded(ids, attention_mask=torch.ones(1, 6, dtype=torch.long)).logits
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    for shape in ((3, 5), (3, 8), (2, 6), (3, 1, 6, 6)):
        with pytest.raises(InputError, match=r"valid: \(3, 6\), with 1 for real tokens"):
            loaded(ids, attention_mask=torch.ones(shape, dtype=torch.long))
    with pytest.raises(InputError, match=r"shape \(3, 2\) was given"):
        loaded(ids[:, 4:], past_key_values=cached, attention_mask=torch.ones(3, 2, dtype=torch.long))
    with pytest.raises(InputError, match="2 rows were given, but the cache holds 3"):
        loaded(ids[:2, 4:], past_key_values=cached)


def test_sources_have_a_target_each(openvino_folder):
    loaded, ids = load_for(openvino_folder), torch.full((2, 3), 5)
    with pytest.raises(InputError, match="1 sources were given for 2 targets"):
        loaded(ids[:1], decoder_input_ids=ids)


def test_openvino_alone_runs_it(decoder, folder):
    """In a process that imports neither torch nor the zoo."""
    command = [sys.executable, "-I", "-c", ALONE, str(folder / "openvino_model.xml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    settings = dict(do_sample=False, max_new_tokens=6, eos_token_id=None)
    ours = decoder.generate(torch.tensor([[5, 9, 3, 11]]), **settings)
    assert [int(number) for number in done.stdout.split()] == ours[0].tolist()


def test_signals_have_a_stack_when_sessions_are_gone(folder):
    """A handler runs after two sessions that ended in the order of their begin."""
    code = (
        "import signal, sys; from pathlib import Path; from zoo.converters.openvino.stateful import OpenVinoSession\n"
        "sessions = [OpenVinoSession(Path(sys.argv[1])) for _ in range(2)]; sessions.pop(0); sessions.pop(0)\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('handled')); signal.raise_signal(signal.SIGUSR1)"
    )
    done = run_python(["-c", code, str(folder / "openvino_model.xml")], env=os.environ)
    assert (done.returncode, done.stdout.split()) == (0, ["handled"]), done.stderr


def test_a_full_disk_is_one_line(folder, tmp_path):
    from zoo.converters.openvino.stateful import save

    graph = openvino.Core().read_model(str(folder / "openvino_model.xml"))
    (tmp_path / "graph.xml").symlink_to("/dev/full")
    with pytest.raises(UnwritableError, match="graph.xml cannot be written; is the disk full"):
        save(graph, tmp_path / "graph.xml")


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
        assert (tmp_path / "out" / "openvino_model.bin").stat().st_size < 2.5 * model.num_parameters()
        assert f"stored as {dtype}" in (tmp_path / "out" / "README.md").read_text()


def test_rounded_weights_are_all_that_is_rounded(tmp_path, monkeypatch):
    """Frequencies in float16 turn late positions by the wrong angle, which the rounding of weights would hide."""
    sizes = dict(max_position_embeddings=2048, vocab_size=40, num_hidden_layers=1, hidden_size=32)
    model = zoo_model("llama-style", "causal-lm", dtype=torch.float32, **sizes)
    zoo.export(model, tmp_path / "out", "openvino", dtype="float16", fresh_process=False)
    ids = torch.randint(3, 40, (1, 2000), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected, found = (one(ids).logits for one in (in_dtype(model.half(), "float32"), load_for(tmp_path / "out")))
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5 * float(expected.abs().max()))
    monkeypatch.setattr("zoo.converters.openvino.stateful.halve", rotate_wrongly)
    with pytest.raises(VerificationError, match="differs by"):
        zoo.export(model, tmp_path / "wrong", "openvino", dtype="float16", fresh_process=False)
    assert not (tmp_path / "wrong").exists()


def rotate_wrongly(graph):
    """Round inverse frequencies."""
    (table,) = (node for node in graph.get_ops() if node.get_friendly_name().endswith("inv_freq"))
    rounded = openvino.opset13.constant(table.data.astype("float16").astype("float32"))
    for reader in table.output(0).get_target_inputs():
        reader.replace_source_output(rounded.output(0))
