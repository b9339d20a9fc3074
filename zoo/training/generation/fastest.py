"""Choice of the fastest engine for a model: each is tried on a batch and compared with PyTorch.

A choice is kept in the user's cache, with the export that was chosen, under a hash of everything that it depends on:
weights and configuration, tokenizer, batch, processor and threads, sources of the zoo, installed distributions.
"""

from __future__ import annotations

import copy
import hashlib
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.utils.logging import get_logger

from zoo.analysis.environment import device_name
from zoo.base.errors import InputError, InvalidChoiceError, ZooError
from zoo.base.files import home_cache, read_json, write_json
from zoo.base.folders import TARGET_FOLDER, scratch_folder, written_whole
from zoo.converters.errors import ExportError
from zoo.converters.verification import ROUNDING, distance, neutral_generation, sample_inputs
from zoo.fast.generation import CachedGenerationMixin
from zoo.models import ZooPreTrainedModel
from zoo.registry import ENGINES

from .engines import TORCH, Engine, ExportEngine

PAYS = 1.1  # How many times as fast another engine has to be: PyTorch's model can do more, and noise shall not decide

HOPELESS = 2
"""How many times as long as the quickest an engine may take in the first round to be measured in the others."""

LIMIT = 30.0  # Seconds after which no other engine is tried

ROUNDS = 5
NEW_TOKENS = 32
ROWS, LENGTH = 12, 64

logger = get_logger(__name__)


@dataclass(frozen=True)
class Trial:
    """Trial of an engine."""

    engine: str  # Its name
    model: PreTrainedModel | None  # The model in it, None where it cannot be
    seconds: float = float("inf")  # The median time of the work
    # Largest difference from PyTorch's outputs, relative to the largest; of generated text, the share of other tokens
    difference: float = float("inf")
    problem: str = ""  # Why it cannot be

    def __str__(self) -> str:
        if self.model is None:
            return f"{self.engine}: {self.problem}"
        return f"{self.engine}: {1000 * self.seconds:.1f} ms, {self.difference:.1g} from PyTorch"


def accelerate(
    model: ZooPreTrainedModel,
    inputs: Mapping[str, Tensor] | None = None,
    *,
    engines: Iterable[str] | None = None,
    exact: bool = True,
    source: Path | None = None,
    limit: float = LIMIT,
    kept: bool = False,
    tell: Callable[[str], object] = logger.info,
) -> PreTrainedModel:
    """Let a model run in the engine in which it is fastest: PyTorch, ONNX Runtime, OpenVINO, CTranslate2, llama.cpp.

    ```python
    import torch
    import zoo

    model = zoo.build("bert-style@tiny", "feature-extraction", seed=0)
    fast = zoo.accelerate(model, {"input_ids": torch.ones(8, 32, dtype=torch.long)}, engines=["onnx"])
    fast(torch.tensor([[7, 8, 9]])).last_hidden_state  # of a model that writes: fast.generate(...)
    ```

    Every engine that is installed and can express the model is tried, which takes some seconds each: on a batch, or on
    32 tokens that are written for it. An engine is left out if its results differ from PyTorch's by more than rounding,
    or if it is not at least 1.1 times as fast. Another engine's model returns results alone: no gradients,
    attention weights or hidden states.

    Args:
        model: A model of the zoo, on the CPU. In PyTorch it stays what it is.
        inputs: A batch like those to come, as arguments of the model; for one that writes, what `generate` reads. What
            is fastest depends on its size and padding. By default 12 random sequences of up to 64 tokens.
        engines: Which to try besides PyTorch, of `zoo.training.generation.ENGINES`; by default all.
        exact: Whether to leave out engines that round weights; False for the fastest of them all. Those that round
            nothing have to compute the same all the same.
        source: The folder of the model, for engines that want its tokenizer.
        limit: Seconds after which no other engine is tried; the one at that time is tried to its end.
        kept: Whether a choice that was made on this machine for the same model, batch and settings is taken again, with
            its export, from the user's cache (`~/.cache/transformer-zoo/engines`); and a new one kept there.
        tell: Takes a sentence about each trial.

    Returns:
        The model in the fastest engine, with the same interface, in evaluation mode.

    Raises:
        InputError: When the model is not one of the zoo's, or not on the CPU.
        InvalidChoiceError: When the engine is unknown.
    """
    names = tried_engines(model, engines, exact)
    place = place_of_choice(model, inputs or {}, source, [*names, exact, limit]) if kept else None
    if place is not None and (found := read_choice(place, model, source)) is not None:
        engine, speed, running = found
        faster = f"{speed:.2f} times as fast as {TORCH} when it was measured"
        tell(f"{engine} is taken, {faster}; remove {place} to measure again")
        return running
    with scratch_folder() as folder:
        exports = folder if place is not None else None
        trials = try_engines(model, inputs, engines=engines, exact=exact, source=source, limit=limit, exports=exports)
        for trial in trials:
            tell(str(trial))
        usual, *others = trials
        right = [trial for trial in others if trial.difference <= ROUNDING or not ENGINES.get(trial.engine).exact]
        best = min((one for one in right if one.model is not None), key=lambda trial: trial.seconds, default=usual)
        chosen = best if usual.seconds >= PAYS * best.seconds else usual
        assert chosen.model is not None, "PyTorch runs every model"
        speed = usual.seconds / chosen.seconds
        tell(f"{chosen.engine} is taken, {speed:.2f} times as fast as {usual.engine}")
        if place is not None:
            keep_choice(place, chosen.engine, speed, folder / chosen.engine)
    return chosen.model


def try_engines(
    model: ZooPreTrainedModel,
    inputs: Mapping[str, Tensor] | None = None,
    *,
    engines: Iterable[str] | None = None,
    exact: bool = True,
    source: Path | None = None,
    limit: float = LIMIT,
    exports: Path | None = None,
) -> list[Trial]:
    """Measure a model in one engine after the other. Other arguments and errors as of [`accelerate`][]."""
    names = tried_engines(model, engines, exact)
    work = Work.of(model, inputs)
    running: dict[str, PreTrainedModel] = {}
    results: dict[str, Tensor] = {}
    seconds: dict[str, list[float]] = {}
    problems: dict[str, str] = {}
    began = time.perf_counter()
    for name in names:
        if name != TORCH and time.perf_counter() - began > limit:
            problems[name] = f"not tried, since the others took more than {limit:g} s"
            continue
        try:
            running[name] = opened(model, name, source, exports)
            work.run(running[name])  # the first time is another one
            results[name], first = work.timed(running[name])
            seconds[name] = [first]
        except ZooError as error:
            problems[name] = str(error)
    quickest = min(found[0] for found in seconds.values())
    contenders = [name for name, (first,) in seconds.items() if first <= HOPELESS * quickest]
    for _ in range(ROUNDS - 1):
        for name in contenders:
            seconds[name].append(work.timed(running[name])[1])
    trials = {name: Trial(name, None, problem=problem) for name, problem in problems.items()}
    for name, times in seconds.items():
        difference = work.difference(results[TORCH], results[name])
        trials[name] = Trial(name, running[name], statistics.median(times), difference)
    return [trials[name] for name in names]


def tried_engines(model: ZooPreTrainedModel, engines: Iterable[str] | None, exact: bool) -> list[str]:
    """List the engines to try, PyTorch first. Arguments and errors as of [`accelerate`][]."""
    if not isinstance(model, ZooPreTrainedModel):
        raise InputError(f"a {type(model).__name__} was given; models of the zoo run in engines, zoo.convert makes one")
    if model.device.type != "cpu":
        raise InputError(f"the model is on {model.device}; engines are for the CPU: give model.cpu()")
    known = [name for name in ENGINES if not isinstance(ENGINES.get(name), Fastest)]
    names = list(known if engines is None else dict.fromkeys(engines))
    InvalidChoiceError.check(*names, valid=known, kind="engine")
    return [TORCH, *(name for name in names if name != TORCH and (ENGINES.get(name).exact or not exact))]


def opened(model: ZooPreTrainedModel, name: str, source: Path | None, exports: Path | None) -> PreTrainedModel:
    engine = ENGINES.get(name)
    if isinstance(engine, ExportEngine) and not (plan := engine.target.plan(model)).exact:
        raise ExportError(plan.why_not)
    if isinstance(engine, ExportEngine) and exports is not None:
        (exports / name).mkdir()
        return engine.run_in(exports / name, model, source).eval()
    # Rounding weights in PyTorch changes the model itself.
    return engine.run(model if engine.exact else copy.deepcopy(model), source).eval()


@dataclass(frozen=True)
class Work:
    """Workload that engines are measured by."""

    inputs: Mapping[str, Tensor]  # Arguments of the model, or of `generate`
    settings: GenerationConfig | None  # How it writes; None for a model that does not

    @classmethod
    def of(cls, model: ZooPreTrainedModel, inputs: Mapping[str, Tensor] | None) -> Work:
        most = model.config.max_position_embeddings
        tokens = min(NEW_TOKENS, most // 2)
        if inputs is None:
            batches = sample_inputs(model, longest=min(LENGTH, most - tokens))
            batch = batches.get("generate_greedy", batches["padded"])
            inputs = {name: tensor.repeat(ROWS // len(tensor), 1) for name, tensor in batch.items()}
        if not model.can_generate():
            return cls(inputs, None)
        greedy = neutral_generation(model.config)["generate_greedy"]
        if isinstance(model, CachedGenerationMixin):
            model.prepare_for_generation(len(inputs["input_ids"]))
        return cls(inputs, GenerationConfig(**greedy | {"max_new_tokens": tokens}))

    @torch.inference_mode()
    def run(self, model: PreTrainedModel) -> Tensor:
        """Outputs of real tokens, or generated tokens."""
        if self.settings is not None:
            # One that may end early has another amount of work in every engine, if it differs there.
            return model.generate(**self.inputs, generation_config=copy.deepcopy(self.settings))
        output = model(**self.inputs)
        found: Tensor = output.logits if "logits" in output else output.last_hidden_state
        mask = self.inputs.get("attention_mask")
        by_token = mask is not None and found.shape[:2] == mask.shape
        return found[mask.bool()] if by_token and mask is not None else found

    def timed(self, model: PreTrainedModel) -> tuple[Tensor, float]:
        began = time.perf_counter()
        return self.run(model), time.perf_counter() - began

    def difference(self, expected: Tensor, found: Tensor) -> float:
        if expected.shape != found.shape:
            return float("inf")
        if self.settings is not None:
            return float((expected != found).float().mean())
        return distance({"": expected}, {"": found}, [""]) / max(1.0, float(expected.abs().max()))


PACKAGES = ("zoo", "zoo.registry", "zoo.converters")
SOURCES = (".py", ".yaml", ".json", ".jinja", ".csv", ".tsv")
CHOICE, EXPORT = "choice.json", "export"

KEPT = 10  # How many choices stay, the latest used


def sources() -> Iterator[Path]:
    """List the files of the zoo that decide what it does: code, definitions and records."""
    for package in PACKAGES:
        for root in import_module(package).__path__:
            yield from (file for file in sorted(Path(root).rglob("*")) if file.suffix in SOURCES)


def place_of_choice(
    model: ZooPreTrainedModel, inputs: Mapping[str, Tensor], source: Path | None, trial: Iterable[object]
) -> Path | None:
    """The folder for a choice in the user's cache; None without a cache."""
    from zoo.converters.native.files import TOKENIZER_FILES

    usual = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    if (cache := Path(usual) if usual else home_cache()) is None:
        return None
    digest = hashlib.sha256()
    machine = (platform.platform(), platform.machine(), device_name(torch.device("cpu")), torch.get_num_threads())
    names = (name for folder in filter(os.path.isdir, sys.path) for name in sorted(os.listdir(folder)))
    installed = (name for name in names if name.endswith((".dist-info", ".egg-info")))  # with their versions
    settings = [model.config.to_json_string(use_diff=False)]
    if model.can_generate():
        settings.append(model.generation_config.to_json_string(use_diff=False))
    for part in (type(model).__name__, *settings, *machine, *installed, *trial):
        digest.update(f"{part}\0".encode("utf-8", "surrogatepass"))
    for name, tensor in (*model.state_dict().items(), *inputs.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    prefixes = ("", TARGET_FOLDER) if source is not None else ()
    tokenizers = (Path(source or "", prefix, name) for prefix in prefixes for name in TOKENIZER_FILES)
    for file in (*sources(), *filter(Path.is_file, tokenizers)):
        digest.update(f"{file.name}\0".encode("utf-8", "surrogatepass") + hashlib.sha256(file.read_bytes()).digest())
    return cache / "transformer-zoo" / "engines" / digest.hexdigest()[:32]


def read_choice(
    place: Path, model: ZooPreTrainedModel, source: Path | None
) -> tuple[str, float, PreTrainedModel] | None:
    """Load what was chosen before: the engine's name, how many times as fast as PyTorch it was, and the model in it."""
    try:
        choice = read_json(place / CHOICE)
        engine, speed = ENGINES.get(choice["engine"]), float(choice["speed"])
        if isinstance(engine, ExportEngine):
            running = engine.target.load(place / EXPORT)
        else:
            running = engine.run(model if engine.exact else copy.deepcopy(model), source)
        (place / CHOICE).touch()
    except (OSError, ValueError, TypeError, LookupError, ZooError):
        return None
    return choice["engine"], speed, running.eval()


def keep_choice(place: Path, engine: str, speed: float, export: Path) -> None:
    """Keep a choice; where that cannot be, engines are measured again next time."""
    try:
        with written_whole(place, force=True) as made:
            if export.is_dir():
                shutil.copytree(export, made / EXPORT)
            write_json(made / CHOICE, {"engine": engine, "speed": speed})
        kept = sorted(place.parent.glob(f"*/{CHOICE}"), key=lambda file: file.stat().st_mtime)
        for old in kept[:-KEPT]:
            shutil.rmtree(old.parent, ignore_errors=True)
    except (OSError, ValueError, ZooError):
        return


class Fastest(Engine):
    """The fastest of all exact ones, by a trial."""

    def run(self, model: ZooPreTrainedModel, source: Path | None) -> PreTrainedModel:
        """Try them, or take the choice that was made here before, and report it."""
        return accelerate(model, source=source, kept=True, tell=partial(print, file=sys.stderr))


IN_THE_FASTEST = Fastest()
