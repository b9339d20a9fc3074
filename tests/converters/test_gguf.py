"""Exports to llama.cpp: what it computes, writes and tokenizes is what the model and its tokenizer do."""

import json
import os
import re
import resource
import sys
from dataclasses import replace
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest
import torch
from command_line import run
from native_models import other_sizes
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

import zoo
from zoo.base.errors import ConfigError, UnsupportedOperationError, UnwritableError
from zoo.converters.errors import ExportError, VerificationError
from zoo.converters.gguf import comparing, writing
from zoo.converters.gguf.architectures import ARCHITECTURES, SMALL_NORMS, TABLED
from zoo.converters.gguf.tokenizer import NORMAL, numbered, read_tokenizer
from zoo.converters.gguf.writing import UNWRITTEN, plan_gguf, write_gguf
from zoo.converters.native import NATIVE
from zoo.converters.planning import scrambled
from zoo.converters.target import ExportOptions
from zoo.converters.verification import log_probabilities
from zoo.data.tokenizers import Tokenizers, train_bpe, train_unigram, train_word
from zoo.training.evaluate import evaluate
from zoo.training.generation import generate, load_checkpoint
from zoo.training.generation.engines import IN_LLAMA_CPP

GGUFReader = pytest.importorskip("gguf").GGUFReader
pytest.importorskip("xllamacpp")

# One process of llama.cpp serves all architectures, and one export most other tests.
pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("gguf")]

SIZES = dict(
    vocab_size=67,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=48,
)
GELU = dict(hidden_act="gelu_new")
LINEAR = dict(rope_type="linear", factor=2.0, rope_theta=1e4)
FULL_FIRST = ["full_attention", "sliding_attention"]
GEMMA = "norm=zero-centered-rmsnorm,scale_embedding=True,tie_word_embeddings=True,hidden_act=gelu_pytorch_tanh"
DELTA = dict(
    layer_types=["linear_attention", "full_attention", "linear_attention"],
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    linear_conv_kernel_dim=3,
    shared_expert_intermediate_size=40,
)
GROUPS = dict(num_experts=8, num_experts_per_tok=2, n_group=4, topk_group=2)
LATENT = dict(attention="latent", position="rotary-interleaved", q_lora_rank=24, layer_norm_eps=1e-6, pad_token_id=None)
CASES = {
    "llama": ("llama-style", dict(num_key_value_heads=2)),
    "llama-biases": ("llama-style", dict(attention_bias=True, mlp_bias=True, head_dim=24)),
    "llama-experts": ("mixtral-style", {}),
    "qwen3": ("qk-norm", {}),
    "qwen3moe": ("qwen3-moe-style", dict(num_key_value_heads=2)),
    "smollm3": ("smollm3-style", dict(num_hidden_layers=4)),
    "olmo2": ("olmo2-style", {}),
    "olmo2-windows": ("olmo3-style", dict(num_hidden_layers=3, sliding_window=5)),
    "gemma": (f"llama-style:{GEMMA}", {}),
    "gemma2": ("gemma2-style", dict(sliding_window=5, attention_scale=6.0)),
    "gemma3": ("gemma3-style", dict(num_hidden_layers=3, sliding_window=5)),
    "gpt2": ("gpt2-style", {}),
    "gptneox": ("gpt-neox-style", GELU),
    "gptneox-in-turn": ("gpt-neox-style", dict(parallel_residual=False, **GELU)),
    "falcon": ("falcon-style", GELU),
    "falcon-groups": ("falcon-style", dict(num_key_value_heads=2, **GELU)),
    "bloom": ("bloom-style", {}),
    "phi2": ("gptj-style", GELU),
    "qwen3next": ("qwen3-next-style", dict(num_hidden_layers=4, num_key_value_heads=2)),
    "qwen3next-sizes": ("qwen3-next-style", dict(num_hidden_layers=3, **DELTA)),
    "lfm2": ("lfm2-style", dict(num_hidden_layers=4, num_key_value_heads=2, conv_L_cache=4)),
    "gpt-oss": (
        "gpt-oss-style",
        dict(num_hidden_layers=4, num_key_value_heads=2, sliding_window=5, intermediate_size=64),  # square experts
    ),
    "deepseek2": ("deepseek-v3-style", {}),
    "deepseek2-groups": ("deepseek-v3-style", dict(num_hidden_layers=3, **GROUPS)),
    "deepseek2-dense": ("llama-style", LATENT),
}
TEXTS = ["the cat sleeps on the mat", "a dog runs", "The dog isn't here: it's gone.", "O cão não está aqui, não é?"] * 5


def tiny(name, **settings):
    model = zoo.build(name, "causal-lm", seed=0, **{**other_sizes(name, SIZES), **settings})
    with torch.random.fork_rng():
        torch.manual_seed(0)  # llama.cpp rounds more in some models than in others
        return scrambled(model)


@pytest.mark.slow
@pytest.mark.parametrize("prompts", [16, pytest.param(comparing.PROMPTS, marks=pytest.mark.nightly)])
def test_every_architecture_computes_the_same(prompts, tmp_path, monkeypatch):
    """Log-probabilities of prompts, some longer than any window, and the tokens that llama.cpp takes."""
    monkeypatch.setattr(comparing, "PROMPTS", prompts)
    jobs, built = [], {}
    for case, (name, settings) in CASES.items():
        model = tiny(name, **settings)
        plan = plan_gguf("gguf", model)
        assert plan.exact, (case, plan.obstacles)
        assert plan.architecture.name == case.partition("-")[0] or plan.architecture.name == case
        write_gguf(model, tmp_path / f"{case}.gguf", plan, numbered(model.config), "f32")
        job = comparing.draw(model, None, writes=False)
        built[case] = model, plan, job
        jobs.append((tmp_path / f"{case}.gguf", job))
    answers = comparing.run(jobs, zoo.config("llama-style", **SIZES))
    for (case, (model, plan, job)), found in zip(built.items(), answers, strict=True):
        difference = comparing.judge(model, job, found, None, plan.architecture.tolerance)
        bound = {TABLED: 5e-3, SMALL_NORMS: 1e-4}.get(plan.architecture.tolerance, 1e-5)
        assert difference.float32 < bound * max(1.0, difference.largest), case
    assert {plan.architecture for _, plan, _ in built.values()} == set(ARCHITECTURES)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A language model with a tokenizer of byte-level BPE."""
    folder = tmp_path_factory.mktemp("gguf") / "saved"
    tokenizer = train_bpe(TEXTS, vocab_size=300)
    tokenizer.chat_template = {"default": "{{ messages }}", "tool_use": "{{ tools }}"}
    tiny("llama-style", vocab_size=len(tokenizer) + 3).save_pretrained(folder)
    Tokenizers(tokenizer, tokenizer).save(folder)
    return folder


@pytest.fixture(scope="module")
def quantised(saved):
    """The same with rounded weights, and what the export printed."""
    result = run("export", saved, "-o", saved.parent / "q8", "--as", "gguf", "--dtype", "q8_0")
    assert result.exit_code == 0, result.output
    return saved.parent / "q8", result.output


@pytest.mark.slow
def test_the_cost_of_rounded_weights_is_reported(saved, quantised):
    folder, printed = quantised
    assert "run in llama.cpp; differs by at most" in printed and "perplexity on 46 own tokens:" in printed, printed
    card = (folder / "README.md").read_text()
    assert "library_name: gguf" in card and "stored as q8_0" in card and "that of the rounded weights" in card
    # The embedding and the output are most of so small a model; a block of 32 weights takes 34 bytes for 128.
    sizes = [path.stat().st_size for path in (saved / "model.safetensors", folder / "model.gguf")]
    assert sizes[1] < 0.4 * sizes[0]
    assert (folder / "tokenizer.json").is_file() and (folder / "config.json").is_file()
    written = GGUFReader(folder / "model.gguf").fields
    assert written["tokenizer.chat_template"].contents() == "{{ messages }}"
    assert written["tokenizer.chat_template.tool_use"].contents() == "{{ tools }}"


@pytest.mark.slow
def test_generate_runs_in_llama_cpp(saved, quantised):
    options = dict(max_new_tokens=6, scores=True)
    ours, theirs = (generate(saved, TEXTS[:4], engine=engine, **options) for engine in ("torch", "llama.cpp"))
    for one, other in zip(ours, theirs, strict=True):
        assert one.candidates[0].text == other.candidates[0].text
        assert one.candidates[0].score == pytest.approx(other.candidates[0].score, abs=1e-4)
    model, tokenizers = load_checkpoint(quantised[0])
    sampling = dict(tokenizer=tokenizers, do_sample=True, num_return_sequences=2, max_new_tokens=5)
    first, again, other = (generate(model, TEXTS[0], seed=seed, **sampling)[0] for seed in (1, 1, 2))
    assert first == again != other and len({candidate.text for candidate in first.candidates}) == 2
    with pytest.raises(ConfigError, match="llama.cpp does not follow num_beams"):
        generate(model, TEXTS[0], tokenizer=tokenizers, num_beams=2)
    greedy = {"num_return_sequences": 2, "do_sample": False, "max_new_tokens": 5}
    with pytest.raises(ConfigError, match="num_return_sequences=2 was given without do_sample=True"):
        model.generate(torch.ones(1, 2, dtype=torch.long), **greedy)
    with pytest.raises(UnsupportedOperationError, match="llama.cpp returns no logits here"):
        model(torch.ones(1, 2, dtype=torch.long))


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["config", "generation_config", None])
def test_llama_cpp_ends_where_the_model_does(ends, tmp_path):
    """It stops at tokens of some names as well, and at token 11 of a model without an end."""
    tokenizer = train_bpe(TEXTS, vocab_size=300)
    tokenizer.add_tokens(["<|im_end|>"], special_tokens=True)
    model = tiny("llama-style", vocab_size=len(tokenizer), eos_token_id=2 if ends else None)
    named = tokenizer.convert_tokens_to_ids("<|im_end|>") if ends else 11
    ids, most = tokenizer("the", return_tensors="pt")["input_ids"][:, :1], dict(max_new_tokens=12)
    with torch.no_grad():
        model.lm_head.weight[named] = 1.2 * model.lm_head.weight[model.generate(ids, **most)[0, -1]]
    written = model.generate(ids, **most)[0, 1:].tolist()
    last = next(number for number in reversed(written) if number != named)
    assert named in written[: written.index(last)]
    for end in [2, [2, last]] if ends else [None]:
        model.generation_config.eos_token_id = end
        if ends == "config":
            model.config.eos_token_id = end
        IN_LLAMA_CPP.target.write(model, tmp_path, plan_gguf("gguf", model), ExportOptions())
        theirs = IN_LLAMA_CPP.target.load(tmp_path)
        expected = model.generate(ids, **most)
        found = theirs.generate(ids, output_scores=True, return_dict_in_generate=True, **most)
        assert found.sequences.tolist() == expected.tolist()
        scores = torch.cat(log_probabilities(model, expected.tolist()))[:-1].gather(1, expected[0, 1:, None])
        assert found.sequences_scores[0] == pytest.approx(float(scores.mean()), abs=1e-4)


@pytest.mark.slow
def test_the_server_of_llama_cpp_needs_its_key(quantised):
    """Its port is open to all processes of the machine, and to pages in a browser."""
    model, _ = load_checkpoint(quantised[0])
    for headers in ({}, {"Authorization": "Bearer none"}):
        asked = Request(f"{model.server._server.listening_address}/completion", b'{"prompt": "a"}', headers)
        with pytest.raises(HTTPError, match="401"):
            build_opener(ProxyHandler({})).open(asked)


@pytest.mark.slow
def test_evaluate_runs_in_llama_cpp(saved, quantised, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS[:4]), encoding="utf-8")
    given = dict(task="language-modeling", heldout=tmp_path / "texts.txt", n_bootstrap=1)
    ours, theirs = (evaluate(saved, engine=engine, **given) for engine in ("torch", "llama.cpp"))
    rounded = evaluate(quantised[0], **given)
    assert ours.target_tokens == theirs.target_tokens == rounded.target_tokens > 20
    assert theirs.loss == pytest.approx(ours.loss, rel=1e-5)
    assert 0 < abs(rounded.loss - ours.loss) < 0.05 * ours.loss


@pytest.mark.slow
def test_k_quants_are_written_by_llama_cpp_itself(tmp_path):
    """Rows of 256 weights are stored in the type, those of 96 in a finer one; without the former it is refused."""
    import gguf

    values = torch.randn(3, 512, generator=torch.Generator().manual_seed(0)).numpy()
    kinds = [gguf.GGMLQuantizationType[name] for name in writing.NARROWER]
    rounded = [gguf.quants.dequantize(writing.quantize(values, kind), kind) for kind in kinds]
    errors = [float(abs(found - values).mean()) for found in rounded]
    assert errors == sorted(errors) and errors[0] < 0.02 and errors[-1] < 0.3

    report = zoo.export(
        tiny("llama-style", hidden_size=256, num_key_value_heads=2), tmp_path / "out", "gguf", dtype="q4_k"
    )
    assert abs(report.difference.perplexities.rounded / report.difference.perplexities.original - 1) < 0.05
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "out" / "model.gguf").tensors}
    types = {name: tensor.tensor_type.name for name, tensor in tensors.items()}
    assert (types["blk.0.ffn_up.weight"], types["blk.0.ffn_down.weight"]) == ("Q4_K", "Q5_0")
    assert types["blk.0.ffn_norm.weight"] == "F32"
    for dtype, width, nearest in (("q4_k", 32, "q5_0"), ("q2_k", 32, "iq4_nl"), ("q4_k", 24, "f16")):
        sizes = {"hidden_size": width, "intermediate_size": width, "num_key_value_heads": 2, "num_attention_heads": 2}
        problem = "takes 256 weights of a row at a time, which divides the rows of no matrix"
        with pytest.raises(ExportError, match=f"{dtype} {problem}; the nearest is {nearest}"):
            zoo.export(tiny("llama-style", **sizes), tmp_path / "none", "gguf", dtype=dtype)
    with pytest.MonkeyPatch.context() as other:
        other.setattr(writing.ctypes, "CDLL", lambda library: object())
        with pytest.raises(ExportError, match="q2_k is written by llama.cpp alone, .*; valid there: f32"):
            writing.quantize(values, kinds[-1])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_a_wrong_file_is_found(saved, tmp_path):
    """A file that computes something else, one that cuts prompts otherwise, and one that llama.cpp does not load."""
    model, plan = zoo.load(saved), plan_gguf("gguf", zoo.load(saved))
    tokenizer = read_tokenizer(saved, model.config)
    with torch.no_grad():
        other = zoo.load(saved)
        other.model.layers[1].mlp.up_proj.weight += 0.01
    write_gguf(other, tmp_path / "other.gguf", plan, tokenizer, "f32")
    few = {**tokenizer, "token_merges": tokenizer["token_merges"][:5]}
    write_gguf(model, tmp_path / "cut.gguf", plan, few, "f32")
    plain = {**tokenizer, "token_types": [NORMAL for _ in tokenizer["token_types"]]}
    write_gguf(model, tmp_path / "plain.gguf", plan, plain, "f32")
    job = replace(comparing.draw(model, saved, writes=False), prompts=[[5, 6, 7]])
    jobs = [(tmp_path / f"{name}.gguf", job) for name in ("other", "cut", "plain")]
    wrong, cut, unmarked = comparing.run(jobs, model.config)
    with pytest.raises(VerificationError, match="llama.cpp makes other tokens of 'a <"):
        comparing.compare_prompts(job, unmarked, saved)
    with pytest.raises(VerificationError, match="llama.cpp differs by"):
        comparing.judge(model, job, wrong, saved, plan.architecture.tolerance)
    with pytest.raises(VerificationError, match="llama.cpp makes other tokens of '"):
        comparing.judge(model, job, cut, saved, plan.architecture.tolerance)
    (tmp_path / "torn.gguf").write_bytes((tmp_path / "cut.gguf").read_bytes()[:5000])
    with pytest.raises(VerificationError, match="llama.cpp fails: "):
        comparing.run([(tmp_path / "torn.gguf", job)], model.config)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt-neox-style", "as gptneox: hidden_act='gelu', it has 'gelu_new'"),
        ("llama-style:sliding_window=5", "sliding_window=5"),
        (f"gemma2-style:layer_types={FULL_FIRST},sliding_window=5", "all layers but every n-th"),
        ("gemma2-style:num_hidden_layers=46,sliding_window=5", "num_hidden_layers=46"),
        ("smollm3-style:nope_layers=[True, False]", "nope_layers"),
        (f"llama-style:rope_parameters={LINEAR}", "rope_type='linear'"),
        ("rezero", "norm_placement='none'"),
        ("qk-norm:attention_bias=True", "as qwen3: attention_bias=True, it has False"),
        ("qwen3-moe-style:attention_bias=True", "as qwen3moe: attention_bias=True, it has False"),
        ("smollm3-style:num_hidden_layers=4,mlp_bias=True", "as smollm3: mlp_bias=True, it has False"),
        ("olmo2-style:attention_bias=True", "as olmo2: attention_bias=True, it has False"),
        (f"llama-style:attention_bias=True,{GEMMA}", "this setting differs"),
        ("gemma2-style:attention_bias=True", "as gemma2: attention_bias=True, it has False"),
        ("gemma3-style:num_hidden_layers=3,attention_bias=True", "as gemma3: attention_bias=True, it has False"),
        ("olmo2-style:head_dim=32", "as olmo2: head_dim=32, it has 16"),
        ("lfm2-style:num_hidden_layers=4,head_dim=24", "as lfm2: head_dim=24, it has 16"),
        ("falcon-style:parallel_residual=False,hidden_act=gelu_new", "as falcon: parallel_residual=False, it has True"),
        ("gpt-oss-style:swiglu_limit=5.0", "this setting differs: as gpt-oss: swiglu_limit=5.0, it has 7.0"),
        ("lfm2-style:conv_bias=True", "as lfm2: conv_bias=True, it has False"),
        ("qwen3-moe-style:norm_topk_prob=False", "as qwen3moe: norm_topk_prob=False, it has True"),
        ("qwen3-next-style:linear_value_head_dim=8", "linear_value_head_dim=8, it has linear_key_head_dim=16"),
        ("deepseek-v3-style:q_lora_rank=0", "as deepseek2: q_lora_rank=0, it has a positive number"),
        ("deepseek-v3-style:position=rotary", "position='rotary', it has 'rotary-interleaved'"),
        ("deepseek-moe", "the zoo has no writer yet: as glm4moe, llama.cpp's name of glm4_moe"),
        ("kimi-linear-style", "the zoo has no writer yet: as kimi-linear"),
        ("diff-transformer", "the engine cannot: llama.cpp has no architecture like diffllama"),
    ],
)
def test_what_llama_cpp_gets_silently_wrong_is_refused(name, message):
    assert re.search(message, plan_gguf("gguf", tiny(name)).why_not)


def test_architectures_without_a_writer_are_llama_cpps_and_classes_of_ours():
    import gguf

    assert set(UNWRITTEN.values()) <= set(gguf.MODEL_ARCH_NAMES.values())
    assert set(UNWRITTEN) <= set(NATIVE)
    assert not set(UNWRITTEN) & {architecture.native for architecture in ARCHITECTURES}


def of(model, normalizer=None, pre_tokenizer=None):
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer or pre_tokenizers.ByteLevel(False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>")


def with_tokens(*tokens):
    tokenizer = train_bpe(TEXTS, vocab_size=300)
    tokenizer.add_tokens([*tokens])
    return tokenizer


TOKENIZERS = {
    "WordLevel": lambda: train_word(TEXTS),
    "pre-tokenizer ByteLevel": lambda: train_unigram(TEXTS, vocab_size=300),
    "normalizer Lowercase": lambda: train_bpe(TEXTS, vocab_size=300, lower_case=True),
    "normalizer NFC": lambda: of(models.BPE(), normalizers.NFC()),
    "pre-tokenizer Whitespace": lambda: of(models.BPE(), None, pre_tokenizers.Whitespace()),
    "continuing_subword_prefix='##'": lambda: of(models.BPE(continuing_subword_prefix="##")),
    "prepend_scheme='first'": lambda: of(models.Unigram(), None, pre_tokenizers.Metaspace(prepend_scheme="first")),
    "the token '<call>' with rstrip=True": lambda: with_tokens(AddedToken("<call>", rstrip=True)),
    "the token 'dog' with single_word=True": lambda: with_tokens(AddedToken("dog", single_word=True)),
}


@pytest.mark.parametrize("message", TOKENIZERS)
def test_tokenizers_that_llama_cpp_lacks_are_refused_by_name(message, tmp_path):
    TOKENIZERS[message]().save_pretrained(tmp_path)
    with pytest.raises(ExportError, match=f"cannot hold this tokenizer: .*{message}.*; valid: byte-level BPE"):
        read_tokenizer(tmp_path, zoo.config("llama-style"))


@pytest.mark.slow
def test_unigram_with_spaces_as_marks_makes_the_same_tokens(tmp_path):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<pad>", "<bos>", "<eos>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=specials, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>")
    model = tiny("llama-style", vocab_size=len(wrapped))
    wrapped.save_pretrained(tmp_path)
    write_gguf(model, tmp_path / "model.gguf", plan_gguf("gguf", model), read_tokenizer(tmp_path, model.config), "f32")
    job = replace(comparing.draw(model, tmp_path, writes=False), prompts=[], texts=TEXTS[:4])
    (found,) = comparing.run([(tmp_path / "model.gguf", job)], model.config)
    comparing.compare_prompts(job, found, tmp_path)


def test_a_full_disk_leaves_nothing(saved, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # as a disk that is full does, it takes a part
    try:
        with pytest.raises(UnwritableError, match="out cannot be written: No space left"):
            zoo.export(saved, tmp_path / "out", "gguf")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_plan_and_report_name_it(saved):
    plans = {plan["target"]: plan for plan in json.loads(run("export", saved, "--plan", "--json").stdout)}
    assert plans["gguf"]["exact"] and plans["gguf"]["notes"] == ["llama.cpp knows it as llama."]


def test_a_process_that_stops_computing_is_ended(monkeypatch):
    monkeypatch.setattr(comparing, "IDLE", 0.5)
    environment = dict(os.environ)
    assert comparing.finished([sys.executable, "-c", "import time; time.sleep(60)"], environment) is None
    works = "import time; end = time.time() + 1.5\nwhile time.time() < end: pass\nprint('done')"
    assert comparing.finished([sys.executable, "-c", works], environment).stdout == "done\n"
