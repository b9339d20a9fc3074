"""Run every decoder and encoder of the zoo in vLLM, and compare tokens, log-probabilities and hidden states.

scripts/serving/vllm makes the environment for it and runs it. Each model is served in its own process, forked once
vLLM is imported; models have random weights, float32. `python scripts/serving/vllm_models.py --table` prints what was
recorded as the table of docs/transformers.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "vllm.json"
SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
SHORT_WINDOW = 5
PROMPTS = [[5, 9, 17, 33, 2, 7], [40, 3, 3, 8], [*[11] * 9, 12, 13, 14]]
NEW_TOKENS = 16
CLOSE = 1e-4
"""How far log-probabilities and hidden states may be apart, which differ in the order of sums."""

SETTINGS = (
    "pre-norm:attention=gated",
    "pre-norm:attention=exclusive",
    "pre-norm:attention=sinks",
    "llama-style:attention=latent",
    "pre-norm:position=sinusoidal",
    "pre-norm:position=rotary,logit_scale=0.5,lm_head_bias=true",
    f"pre-norm:sliding_window={SHORT_WINDOW}",
)
BUNDLES = ("gpt2-style", "llama-style", "gemma2-style", "mixtral-style")
SLICED = ("llama-style", "qwen3-style", "gpt2-style")
STAGED = ("llama-style",)
PARALLEL = {"tensor-parallel": "tensor_parallel_size", "pipeline": "pipeline_parallel_size"}
"""Forms in which a folder is served by two processes."""

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # for make_room, which is given to the workers
    "HF_HUB_OFFLINE": "1",
}


def wanted() -> list[tuple[str, str, str]]:
    """List what is run: names, tasks, and "folder", "bundle" or one of PARALLEL."""
    import zoo

    decoders = [*zoo.list_variants(task="causal-lm"), *SETTINGS]
    encoders = [name for name in zoo.list_variants(task="masked-lm") if name not in decoders]
    return [
        *((name, "causal-lm", "folder") for name in decoders),
        *((name, "causal-lm", "bundle") for name in BUNDLES),
        *((name, "causal-lm", "tensor-parallel") for name in SLICED),
        *((name, "causal-lm", "pipeline") for name in STAGED),
        *((name, "feature-extraction", "folder") for name in [*encoders, f"bert-style:sliding_window={SHORT_WINDOW}"]),
    ]


def save(name: str, task: str, form: str, folder: str) -> Any:
    """Build a model with random weights, none of them zero or one, and save it."""
    import zoo
    from zoo.data.tokenizers import train_character
    from zoo.testing import randomize

    windows: dict[str, Any] = {"sliding_window": SHORT_WINDOW} if zoo.config(name, task, **SIZES).sliding_window else {}
    model = randomize(zoo.build(name, task, seed=0, **SIZES, **windows), std=0.05)
    if form == "bundle":
        zoo.export(model, folder, "bundle")
    else:
        model.save_pretrained(folder)
    train_character(["what vLLM wants a tokenizer for is not asked of it here"]).save_pretrained(folder)
    return model


def served(name: str, task: str, form: str) -> dict[str, Any]:
    """Serve one model: `largest` difference, and whether all greedy tokens are the `same`; or `refused`, why."""
    from vllm import LLM
    from vllm.config import PoolerConfig

    from zoo.base.errors import UnsupportedBackendError

    options = {"runner": "pooling", "pooler_config": PoolerConfig(task="token_embed")}
    pooling: dict[str, Any] = options if task == "feature-extraction" else {}
    parallel = {PARALLEL[form]: 2, "distributed_executor_backend": "mp"} if form in PARALLEL else {}
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(parent, "model")
        model = save(name, task, form, folder)
        # Before an engine exists: vLLM decorates the classes of its models, which other instances do not survive.
        expected: Any = states_of(model) if pooling else tokens_of(model)
        try:
            engine = LLM(
                folder,
                dtype="float32",
                enforce_eager=True,
                max_model_len=SIZES["max_position_embeddings"],
                max_num_seqs=4,
                max_num_batched_tokens=128,
                trust_remote_code=form == "bundle",
                **pooling,
                **parallel,
            )
        except UnsupportedBackendError as error:
            return {"refused": str(error).partition(" because of ")[2].partition("; valid")[0]}
        if form == "pipeline":
            engine.collective_rpc(make_room)
        return compare_states(engine, expected) if pooling else compare_tokens(engine, expected)


def make_room(worker: Any) -> None:
    """Make the place for what a stage is sent, which vLLM 0.32 makes on processors only where it compiles."""
    runner = worker.model_runner
    if runner.intermediate_tensors is None:
        make = runner.model.make_empty_intermediate_tensors
        sizes = {"batch_size": runner.max_num_tokens, "dtype": runner.model_config.dtype, "device": runner.device}
        runner.intermediate_tensors = make(**sizes)


def tokens_of(model: Any) -> list[tuple[list[int], list[float]]]:
    """Greedy tokens of the prompts, and log-probabilities of every token after the first."""
    import torch

    found = []
    for prompt in PROMPTS:
        given = torch.tensor([prompt])
        ids = model.generate(given, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0)
        with torch.no_grad():
            scores = model(ids[:, :-1]).logits[0].log_softmax(-1)
        found.append((ids[0].tolist(), scores.gather(1, ids[0, 1:, None])[:, 0].tolist()))
    return found


def states_of(model: Any) -> list[Any]:
    """Last hidden states of the prompts, of length one, as vLLM gives them."""
    import torch

    with torch.no_grad():
        states = [model(torch.tensor([prompt])).last_hidden_state[0] for prompt in PROMPTS]
    return [torch.nn.functional.normalize(state, dim=-1) for state in states]


def compare_tokens(engine: Any, expected: list[tuple[list[int], list[float]]]) -> dict[str, Any]:
    """Compare greedy tokens, and log-probabilities of prompts and of what was generated."""
    from vllm import SamplingParams

    options = SamplingParams(
        max_tokens=NEW_TOKENS, temperature=0, logprobs=0, prompt_logprobs=0, detokenize=False, ignore_eos=True
    )
    outputs = engine.generate([{"prompt_token_ids": ids} for ids in PROMPTS], options, use_tqdm=False)
    largest, same = 0.0, True
    for prompt, output, (ids, scores) in zip(PROMPTS, outputs, expected, strict=True):
        found = output.outputs[0]
        same &= [*prompt, *found.token_ids] == ids
        given = [*output.prompt_logprobs[1:], *found.logprobs]
        for token, score, by_token in zip(ids[1:], scores, given, strict=True):
            largest = max(largest, abs(by_token[token].logprob - score) if token in by_token else float("inf"))
    return {"largest": largest, "same": same}


def compare_states(engine: Any, expected: list[Any]) -> dict[str, Any]:
    import torch

    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    outputs = engine.encode(prompts, pooling_task="token_embed", use_tqdm=False)
    pairs = zip(outputs, expected, strict=True)
    return {"largest": max((torch.as_tensor(output.outputs.data) - ours).abs().max().item() for output, ours in pairs)}


def run(names: list[str]) -> int:
    """Run models in forked processes, and record what came of each."""
    os.environ.update(ENVIRONMENT)
    from importlib.metadata import version

    import vllm  # noqa: F401  imported once for all forks
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    record = json.loads(RECORD.read_text()) if names and RECORD.exists() else {"models": {}}
    record["versions"] = {name: version(name) for name in ("vllm-cpu", "transformers", "torch")}
    failed = 0
    for name, task, form in wanted():
        if names and name not in names:
            continue
        path = Path(tempfile.mkdtemp()) / "result.json"
        if (child := os.fork()) == 0:
            try:
                result = served(name, task, form)
            except BaseException as error:  # whatever vLLM may raise is its answer
                result = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"}
            path.write_text(json.dumps(result))
            os._exit(0)
        os.waitpid(child, 0)
        result = json.loads(path.read_text()) if path.exists() else {"error": "the process ended"}
        record["models"][f"{name} {task} {form}"] = result
        is_bad = "error" in result or result.get("largest", 0) > CLOSE or result.get("same") is False
        failed += is_bad
        print(name, task, form, result, flush=True)
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
    return int(failed > 0)


def table() -> str:
    record = json.loads(RECORD.read_text())
    lines = ["| model | saved as | in vLLM |", "|---|---|---|"]
    for key, result in record["models"].items():
        name, task, form = key.split(" ")
        if "refused" in result:
            outcome = f"refused: {result['refused']}"
        elif "error" in result:
            outcome = f"fails: {result['error']}"
        else:
            same = {True: "the same tokens, ", False: "**other tokens**, "}.get(result.get("same"), "hidden states ")
            outcome = f"{same}to {result['largest']:.1e}"
        form = {"tensor-parallel": "folder, sliced for two", "pipeline": "folder, in two stages"}.get(form, form)
        lines.append(f"| `{name}`{', encoder' if task == 'feature-extraction' else ''} | {form} | {outcome} |")
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    return "\n".join([f"{versions}:", "", *lines])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="variants, all by default")
    parser.add_argument("--table", action="store_true", help="print what was recorded")
    given = parser.parse_args()
    sys.exit(print(table()) if given.table else run(given.names))
