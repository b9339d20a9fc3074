"""Measures the peak memory of converting a large, sharded checkpoint, in its own process.

    python scripts/bench/conversion_memory.py --gigabytes 2.2 --shard-gigabytes 0.5 --family gpt2 --dtype bfloat16

The checkpoint is random, written shard by shard, and deleted again. It prints the memory of the process beyond its
imports at its highest, compared with the model and 1.3 times the largest shard: anonymous pages, and mapped ones of the
checkpoint. Pages of libraries do not count: the system drops them and reads them again as other processes need memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

GIGABYTE = 2**30
FACTOR = 1.3
"""How often the largest shard may be in memory with the model."""

INTERVAL = 0.005
"""Seconds between two readings of the memory."""

WIDTH, TINY_WIDTH = 1024, 256
FAMILIES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "bert": "BertForMaskedLM"}
"""Classes of the models that are converted."""


def main() -> int:
    """Write a checkpoint, convert it in another process, and compare its peak with what is allowed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.2)
    parser.add_argument("--shard-gigabytes", type=float, default=0.5)
    parser.add_argument("--family", choices=FAMILIES, default="gpt2")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="bfloat16")
    parser.add_argument("--pickled", action="store_true", help="Write pytorch_model.bin files instead of safetensors.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument("--child", nargs=2, metavar=("FROM", "TO"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        convert(*options.child)
        return 0
    with tempfile.TemporaryDirectory() as workshop:
        source, target = Path(workshop) / "native", Path(workshop) / "zoo"
        source.mkdir()
        sizes = write_checkpoint(source, options)
        command = [sys.executable, __file__, "--child", str(source), str(target)]
        allowed = sizes["model"] + FACTOR * sizes["largest_shard"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 1
        measured = json.loads(done.stdout.splitlines()[-1])
    report = {**sizes, **measured, "allowed": allowed}
    report["holds"] = report["peak"] <= report["allowed"]
    if options.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:15}{value / GIGABYTE:9.3f} GiB" if name != "holds" else f"{name:15}{value}")
    return 0 if report["holds"] else 1


def write_checkpoint(folder: Path, options: argparse.Namespace) -> dict[str, int]:
    """Write a random checkpoint, a shard at a time; bytes of the model and of the largest shard."""
    import torch
    import transformers
    from safetensors.torch import save_file
    from torch import Tensor

    dtype = getattr(torch, options.dtype)
    model_class = getattr(transformers, FAMILIES[options.family])
    config = native_config(model_class.config_class, options)
    with torch.device("meta"):
        shell = model_class(config)
    tied = set(shell.all_tied_weights_keys)
    names = {name: tensor.shape for name, tensor in shell.state_dict().items() if name not in tied}
    config.dtype = dtype
    config.save_pretrained(folder)
    stem, ending = ("pytorch_model", "bin") if options.pickled else ("model", "safetensors")
    weight_map: dict[str, str] = {}
    shard: dict[str, Tensor] = {}
    sizes: list[int] = []

    def flush() -> None:
        file = f"{stem}-{len(sizes):05d}.{ending}"
        weight_map.update(dict.fromkeys(shard, file))
        sizes.append(sum(tensor.nbytes for tensor in shard.values()))
        if options.pickled:
            torch.save(shard, folder / file)
        else:
            save_file(shard, folder / file, metadata={"format": "pt"})
        shard.clear()

    for name, shape in names.items():
        shard[name] = torch.full(shape, 0.01, dtype=dtype)
        if sum(tensor.nbytes for tensor in shard.values()) >= options.shard_gigabytes * GIGABYTE:
            flush()
    if shard:
        flush()
    (folder / f"{stem}.{ending}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return {"model": sum(sizes), "largest_shard": max(sizes)}


def native_config(config_class: Any, options: argparse.Namespace) -> Any:
    """Configuration of a model of about the size that was asked for."""
    width = WIDTH if options.gigabytes > 0.1 else TINY_WIDTH
    bytes_each = 4 if options.dtype == "float32" else 2
    layers = max(2, round(options.gigabytes * GIGABYTE / (12 * width * width * bytes_each)))
    own = {
        "gpt2": {"n_positions": 64},
        "llama": {"intermediate_size": width * 8 // 3, "tie_word_embeddings": True},
        "bert": {"intermediate_size": 4 * width},
    }
    sizes = {"vocab_size": 512, "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 8}
    return config_class(**sizes, **own[options.family], architectures=[FAMILIES[options.family]])


def convert(source: str, target: str) -> None:
    import torch
    import transformers  # noqa: F401 - what it needs is no part of the measurement

    import zoo

    torch.set_num_threads(1)
    zoo.convert(zoo_sample())
    before = held(source)
    with watched(source) as peak:
        model = zoo.convert(source)
        converted = max(peak)
        model.save_pretrained(target)
    print(json.dumps({"imports": before, "converted": converted - before, "peak": max(peak) - before}))


def zoo_sample() -> Any:
    """A small model, converted first so that everything is imported."""
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=2))


@contextmanager
def watched(folder: str) -> Iterator[list[int]]:
    """Read the memory that this process holds again and again, into the list."""
    found, ended = [held(folder)], threading.Event()

    def read() -> None:
        while not ended.wait(INTERVAL):
            found.append(held(folder))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def held(folder: str) -> int:
    """Bytes of anonymous memory of this process, and of mapped files of a folder."""
    mapped = psutil.Process().memory_maps()
    return sum(one.rss if one.path.startswith(f"{folder}/") else one.anonymous for one in mapped)


if __name__ == "__main__":
    sys.exit(main())
