"""Checkpoints with the generation settings of real ones are exported, and keep those settings as they are."""

import copy
import json

import pytest
import torch
import transformers
from native_models import BART, LLAMA, native_model

import zoo
from zoo.base.errors import ConfigError

pytestmark = pytest.mark.thorough

DECODER = {**LLAMA, "num_hidden_layers": 1}
REAL = {
    "bart-cnn": (
        "Bart",
        BART,
        dict(bos_token_id=0, eos_token_id=2, pad_token_id=1, decoder_start_token_id=2, early_stopping=True)
        | dict(forced_bos_token_id=0, forced_eos_token_id=2, length_penalty=2.0, max_length=14, min_length=5)
        | dict(no_repeat_ngram_size=3, num_beams=4),
    ),
    "opus-mt": (
        "Marian",
        {**BART, "pad_token_id": 22, "eos_token_id": 0, "decoder_start_token_id": 22, "scale_embedding": True},
        dict(bad_words_ids=[[22]], bos_token_id=0, decoder_start_token_id=22, eos_token_id=0, pad_token_id=22)
        | dict(forced_eos_token_id=0, max_length=15, num_beams=6, renormalize_logits=True),
    ),
    "pegasus": (
        "Pegasus",
        {**BART, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0},
        dict(eos_token_id=1, pad_token_id=0, decoder_start_token_id=0, forced_eos_token_id=1, length_penalty=0.8)
        | dict(max_length=12, num_beams=8),
    ),
    "mbart": (
        "MBart",
        BART,
        dict(bos_token_id=0, eos_token_id=2, pad_token_id=1, decoder_start_token_id=2, forced_bos_token_id=12)
        | dict(forced_eos_token_id=2, max_length=15, num_beams=5, early_stopping=True),
    ),
    "blenderbot": (
        "Blenderbot",
        {**BART, "pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1},
        dict(bos_token_id=1, eos_token_id=2, pad_token_id=0, decoder_start_token_id=1, forced_eos_token_id=2)
        | dict(encoder_no_repeat_ngram_size=3, length_penalty=0.65, max_length=16, min_length=6, num_beams=10),
    ),
    "llama3-instruct": (
        "Llama",
        {**DECODER, "bos_token_id": 18, "eos_token_id": [19, 20, 21], "pad_token_id": None},
        dict(bos_token_id=18, eos_token_id=[19, 20, 21], do_sample=True, temperature=0.6, top_p=0.9),
    ),
    "qwen2-instruct": (
        "Qwen2",
        {**DECODER, "bos_token_id": 18, "eos_token_id": 20},
        dict(bos_token_id=18, eos_token_id=[20, 18], pad_token_id=18, do_sample=True, repetition_penalty=1.05)
        | dict(temperature=0.7, top_p=0.8, top_k=20),
    ),
}
"""A class, its sizes, and settings of generation_config.json."""

HEADS = {"Marian": "MTModel", "Llama": "ForCausalLM", "Qwen2": "ForCausalLM"}


def native(name, dtype=torch.float32):
    family, sizes, generation = REAL[name]
    found = native_model(family, HEADS.get(family, "ForConditionalGeneration"), sizes, dtype)
    found.generation_config = transformers.GenerationConfig(**generation)
    return found


def require_settings(folder, name):
    saved = json.loads((folder / "generation_config.json").read_text())
    assert {key: saved.get(key) for key in REAL[name][2]} == REAL[name][2]


@pytest.mark.parametrize("name", REAL)
def test_real_settings_survive_exports(name, tmp_path):
    model = zoo.convert(native(name))
    for target in (None, "ctranslate2"):
        report = zoo.export(model, tmp_path / str(target), target, fresh_process=False)
        assert report.difference.greedy and report.difference.beams
        require_settings(tmp_path / str(target), name)
    unfollowed = {"forced_bos_token_id", "bad_words_ids", "forced_eos_token_id", "encoder_no_repeat_ngram_size"}
    shown = next((note for note in report.notes if "does not follow" in note), "")  # of CTranslate2, the last one
    assert all(field in shown for field in unfollowed & REAL[name][2].keys())
    assert bool(shown) == any(field in shown for field in REAL[name][2])
    assert model.generation_config.to_dict().items() >= REAL[name][2].items()


@pytest.mark.parametrize("name", REAL)
def test_real_settings_in_config_json_are_read(name, tmp_path):
    """Where checkpoints had them before generation_config.json."""
    model, generation = native(name), REAL[name][2]
    model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **generation}))
    assert zoo.convert(tmp_path).generation_config.to_dict().items() >= generation.items()


def test_settings_of_a_model_in_16_bits_are_kept():
    found = zoo.convert(native("bart-cnn", torch.bfloat16)).generation_config.to_dict()
    assert found.items() >= REAL["bart-cnn"][2].items()


@pytest.mark.slow
@pytest.mark.xdist_group("engines")
def test_real_settings_survive_onnx(decoder, tmp_path):
    model = copy.deepcopy(decoder)
    model.generation_config = transformers.GenerationConfig(**REAL["llama3-instruct"][2])
    report = zoo.export(model, tmp_path / "onnx", "onnx")
    assert report.difference.greedy and report.difference.beams
    require_settings(tmp_path / "onnx", "llama3-instruct")


def test_settings_that_transformers_would_not_write_are_carried_over(tmp_path):
    model = zoo.convert(native("llama3-instruct"))
    model.generation_config.do_sample = False  # next to a temperature
    zoo.export(model, tmp_path / "out", fresh_process=False)
    saved = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert saved["temperature"] == 0.6 and not saved.get("do_sample")
    with pytest.raises((ConfigError, ValueError)):
        model.generation_config.save_pretrained(tmp_path)
