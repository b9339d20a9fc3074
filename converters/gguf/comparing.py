"""Compares the results of llama.cpp for a file, in its own process, with the model's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import AutoTokenizer

from zoo.base.folders import TOKENIZER_FILE, scratch_folder
from zoo.models import ZooConfig, ZooPreTrainedModel

from .. import verification
from ..errors import VerificationError, require
from ..native.files import AWKWARD
from ..target import TargetPlan
from ..verification import ROUNDING, Answers, Difference, Perplexities, draw_tokens, ends_of, log_probabilities
from ..weights import in_dtype
from . import serving
from .architectures import FILE
from .tokenizer import numbered
from .writing import GgufPlan, write_gguf

EXACT = "f32"  # How weights are stored that are not rounded
PROMPTS = 100  # How many prompts are continued greedily, and how many texts are tokenized
IDLE = 60  # Seconds after which a process of llama.cpp that does not compute is ended

NEW_TOKENS = 4
MOST = 200  # How many log-probabilities of a step are compared, the largest ones
TEXT = 256  # Maximum number of tokens, written by the model itself, that its perplexity is measured on


def check_gguf(
    model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, dtype: str, source: Path | None
) -> Difference:
    """Compare a file with the original, and where weights were rounded first a file with those that were not."""
    assert isinstance(plan, GgufPlan)
    path, tolerance = folder / FILE, plan.architecture.tolerance
    rounds = dtype != EXACT
    job = draw(model, source, writes=rounds)
    if not rounds:
        (found,) = run([(path, job)], model.config)
        return judge(model, job, found, source, tolerance)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        exact, plain = Path(scratch) / FILE, replace(job, texts=[], text=[])
        write_gguf(model, exact, plan, numbered(model.config), EXACT)
        before, found = run([(exact, plain), (path, job)], model.config)
    judge(model, plain, before, None, tolerance)
    difference = judge(model, job, found, source, float("inf"))
    text = torch.tensor(job.text)
    ours = log_probabilities(in_dtype(model, "float32"), [job.text])[0][:-1].gather(1, text[1:, None]).mean()
    theirs = torch.tensor(found["expected"], dtype=torch.double).mean()
    cost = Perplexities(float((-ours).exp()), float((-theirs).exp()), len(job.text) - 1)
    return replace(difference, perplexities=cost)


@dataclass(frozen=True)
class Job:
    """A question to llama.cpp."""

    prompts: list[list[int]]  # Ids, some of them longer than any window
    texts: list[str]  # Prompts as text; none for a model without a tokenizer
    text: list[int]  # Output of the model, with every token to be scored; empty for none


def draw(model: ZooPreTrainedModel, source: Path | None, *, writes: bool, seed: int = 0) -> Job:
    config = model.config
    generator = torch.Generator().manual_seed(seed)
    longest = max(1, config.max_position_embeddings - NEW_TOKENS - 1)
    usual = min(24, longest)
    beyond = min(longest, (config.sliding_window or 0) + usual)
    lengths = [*torch.randint(1, usual + 1, (PROMPTS - 4,), generator=generator).tolist(), *([max(beyond, usual)] * 4)]
    special = {config.pad_token_id, *ends_of(config)}

    def ids(length: int) -> list[int]:
        return draw_tokens(length, config.vocab_size, special, generator)

    first = next(number for number in range(config.vocab_size) if number not in special)
    text = own_text(model, first, min(TEXT, config.max_position_embeddings - 1), seed) if writes else []
    texts: list[str] = []
    if source is not None and (source / TOKENIZER_FILE).is_file():
        tokenizer = AutoTokenizer.from_pretrained(source)
        drawn = [tokenizer.decode(ids(usual), skip_special_tokens=True) for _ in range(PROMPTS - len(AWKWARD))]
        texts = [*AWKWARD, *drawn, *(f"a {token} b{token}c" for token in tokenizer.get_added_vocab())]
    return Job([ids(length) for length in lengths], texts, text)


@torch.no_grad()
def own_text(model: ZooPreTrainedModel, start: int, length: int, seed: int) -> list[int]:
    config: ZooConfig = model.config
    pad, first = config.pad_token_id or 0, start if config.bos_token_id is None else config.bos_token_id
    # An end would end the text.
    special = {pad, first, *ends_of(config)} - {None, start}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        options = {"do_sample": True, "top_k": 0, "suppress_tokens": [*special] or None, "pad_token_id": pad}
        ids = torch.tensor([[first]], device=model.device)
        written = model.generate(ids, max_new_tokens=length - 1, use_cache=config.use_cache, **options)
    return [int(number) for number in written[0]]


def run(jobs: list[tuple[Path, Job]], config: ZooConfig) -> list[dict[str, Any]]:
    require("gguf", "xllamacpp")
    with scratch_folder() as place:
        alike = {"context": config.max_position_embeddings, "new_tokens": NEW_TOKENS}
        alike["most"] = min(MOST, config.vocab_size)
        request: list[dict[str, Any]] = []
        for number, (path, job) in enumerate(jobs):
            files = {"file": str(path.absolute()), "results": str(place / f"results{number}.json")}
            request.append({**files, **alike, **vars(job)})
        (place / "request.json").write_text(json.dumps({"jobs": request}), encoding="utf-8")
        command = [sys.executable, "-I", serving.__file__, str(place / "request.json")]
        environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
        done = finished(command, environment) or finished(command, environment)
        if done is None:
            raise VerificationError(f"llama.cpp fails: twice it has done nothing for {IDLE} seconds")
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "rror" in line or "GGML_ASSERT" in line]
            raise VerificationError(f"llama.cpp fails: {' '.join(errors[-1:]) or f'exit status {done.returncode}'}")
        return [json.loads(Path(one["results"]).read_text(encoding="utf-8")) for one in request]


def finished(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command to its end; None if it stops computing: threads of llama.cpp may block each other at the start."""
    used = -1.0
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace"
    ) as process:
        while True:
            try:
                out, err = process.communicate(timeout=IDLE)
                return subprocess.CompletedProcess(command, process.returncode, out, err)
            except subprocess.TimeoutExpired:
                before, used = used, sum(psutil.Process(process.pid).cpu_times()[:2])
                if used - before < 0.01 * IDLE:
                    process.kill()
                    return None


def judge(
    model: ZooPreTrainedModel, job: Job, found: dict[str, Any], source: Path | None, tolerance: float
) -> Difference:
    """Compare log-probabilities, up to a tolerance relative to the largest, tokens and prompts."""
    answers = list(zip(job.prompts, found["steps"], strict=True))
    texts = [[*prompt, *(taken for taken, _ in steps)] for prompt, steps in answers]

    @cache
    def ours(dtype: str) -> Answers:
        rows = log_probabilities(in_dtype(model, dtype), texts)
        rows = [row[len(prompt) - 1 : -1] for row, (prompt, _) in zip(rows, answers, strict=True)]
        return {"log-probabilities": torch.cat(rows)}

    mine = ours("float32")["log-probabilities"]
    theirs = mine.clone()  # which llama.cpp reports the largest of
    steps = [step for _, steps in answers for step in steps]
    for row, (_, tops) in zip(theirs, steps, strict=True):
        row[[int(number) for number in tops]] = torch.tensor(list(tops.values()))
    difference = verification.judge(ours, {"float32": {"log-probabilities": theirs}}, "llama.cpp", tolerance)
    taken = torch.tensor([taken for taken, _ in steps])[:, None]
    apart = float((theirs.max(1, keepdim=True).values - theirs.gather(1, taken)).max())
    if apart > 2 * ROUNDING * max(1.0, difference.largest):
        raise VerificationError(f"llama.cpp takes tokens that it finds {apart:.2g} less likely")
    compare_prompts(job, found, source)
    return replace(difference, batches=len(job.prompts), greedy=bool((mine.argmax(1) == taken[:, 0]).all()))


def compare_prompts(job: Job, found: dict[str, Any], source: Path | None) -> None:
    """Require of llama.cpp's tokenizer what ours does with every text."""
    if not job.texts:
        return
    tokenizer = AutoTokenizer.from_pretrained(source)
    for text, theirs in zip(job.texts, found["ids"], strict=True):
        ours = tokenizer(text)["input_ids"]
        ours = ours[:-1] if ours and ours[-1] == tokenizer.eos_token_id else ours
        if ours != theirs:
            raise VerificationError(f"llama.cpp makes other tokens of {text!r}: {theirs[:12]}, not {ours[:12]}")
