"""Kept choices of the fastest engine: a model that was measured on this machine once is not measured again.

A choice is kept in the user's cache, with the export that was chosen, under a hash of everything that it depends on:
weights and configuration, tokenizer, batch, processor and threads, sources of the zoo, installed distributions.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from zoo.analysis.environment import device_name
from zoo.base.errors import ZooError
from zoo.base.files import home_cache, read_json, write_file
from zoo.base.folders import TARGET_FOLDER, written_whole
from zoo.models import ZooPreTrainedModel
from zoo.registry import ENGINES

from .engines import ExportEngine

PACKAGES = ("zoo", "zoo.registry", "zoo.converters")
SOURCES = (".py", ".yaml", ".json", ".jinja", ".csv", ".tsv")


def cache_folder(name: str) -> Path | None:
    """Find the user's folder for what can be made again."""
    usual = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    cache = Path(usual) if usual else home_cache()
    return cache and cache / "transformer-zoo" / name


def sources() -> Iterator[Path]:
    """List the files of the zoo that decide what it does: code, definitions and records."""
    for package in PACKAGES:
        spec = find_spec(package)
        for root in (spec and spec.submodule_search_locations) or ():
            for folder, folders, names in os.walk(root):
                folders.sort()
                yield from (Path(folder, name) for name in sorted(names) if name.endswith(SOURCES))


def distributions() -> Iterator[str]:
    """List installed distributions with their versions, as their folders are named."""
    for folder in filter(os.path.isdir, sys.path):
        yield from sorted(name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info")))


FOLDER = "engines"
CHOICE, EXPORT = "choice.json", "export"

KEPT = 10  # How many choices stay, the latest used


@dataclass(frozen=True)
class Choice:
    """The engine that a trial chose."""

    engine: str  # Its name
    speed: float  # How many times as fast as PyTorch it was


def place_of_choice(
    model: ZooPreTrainedModel, inputs: Mapping[str, Tensor], source: Path | None, trial: Iterable[object]
) -> Path | None:
    from zoo.converters.native.files import TOKENIZER_FILES

    if (folder := cache_folder(FOLDER)) is None:
        return None
    digest = hashlib.sha256()
    threads = torch.get_num_threads()
    machine = (platform.platform(), platform.machine(), device_name(torch.device("cpu")), threads)
    settings = [model.config.to_json_string(use_diff=False)]
    if model.can_generate():
        settings.append(model.generation_config.to_json_string(use_diff=False))
    for part in (type(model).__name__, *settings, *machine, *distributions(), *trial):
        digest.update(f"{part}\0".encode("utf-8", "surrogatepass"))
    for name, tensor in (*model.state_dict().items(), *inputs.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    prefixes = ("", TARGET_FOLDER) if source is not None else ()
    tokenizers = (Path(source or "", prefix, name) for prefix in prefixes for name in TOKENIZER_FILES)
    for file in (*sources(), *filter(Path.is_file, tokenizers)):
        digest.update(f"{file.name}\0".encode("utf-8", "surrogatepass") + hashlib.sha256(file.read_bytes()).digest())
    return folder / digest.hexdigest()[:32]


def read_choice(place: Path, model: ZooPreTrainedModel, source: Path | None) -> tuple[Choice, PreTrainedModel] | None:
    """Load what was chosen before."""
    try:
        choice = Choice(**read_json(place / CHOICE))
        engine = ENGINES.get(choice.engine)
        own = model if engine.exact else copy.deepcopy(model)
        exported = engine.target.load(place / EXPORT) if isinstance(engine, ExportEngine) else None
        running = engine.run(own, source) if exported is None else exported
        (place / CHOICE).touch()
    except (OSError, ValueError, TypeError, LookupError, ZooError):
        return None
    return choice, running.eval()


def keep_choice(place: Path, choice: Choice, export: Path) -> None:
    """Keep a choice; where that cannot be, engines are measured again next time."""
    try:
        with written_whole(place, force=True) as made:
            if export.is_dir():
                shutil.copytree(export, made / EXPORT)
            write_file(made / CHOICE, json.dumps(asdict(choice)))
        kept = sorted(place.parent.glob(f"*/{CHOICE}"), key=lambda file: file.stat().st_mtime)
        for old in kept[:-KEPT]:
            shutil.rmtree(old.parent, ignore_errors=True)
    except (OSError, ValueError, ZooError):
        return
