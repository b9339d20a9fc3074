"""Weights by name, made again: trained by the command that their record names, scored, and compared with the record."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import hypot
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from transformers import AutoConfig, GenerationConfig
from transformers.utils import CHAT_TEMPLATE_DIR, CHAT_TEMPLATE_FILE, GENERATION_CONFIG_NAME, SAFE_WEIGHTS_NAME

from zoo.base.errors import ConfigError, ZooError, enumerate_names
from zoo.base.files import write_json
from zoo.base.folders import RESULT_FILE, check_output, read_result, written_whole
from zoo.building.fingerprints import fingerprint
from zoo.building.loading import load
from zoo.building.weights import locate_weights, read_record, write_record
from zoo.building.weights.records import scores_of, versions
from zoo.data.corpora import is_here
from zoo.hub.records import keep_evaluation
from zoo.registry import CORPORA, RecordedScore, Weights, find_weights, list_weights
from zoo.training.evaluate import evaluate
from zoo.training.record import saved_run

STORED = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *(CHAT_TEMPLATE_FILE, CHAT_TEMPLATE_DIR, "target"),
)
"""Files of a trained folder that are copied unchanged, with the weights and the record of the run."""

NOT_KEPT = ("history", "evaluations", "scores", "heldout_loss", "weights")
"""Fields of a training report that are left out: curves, and numbers from before the weights were rounded."""

NOISE = 0.05  # How far, in parts of it, a score without an interval may be from the recorded one


class MakingError(ZooError, RuntimeError):
    """A training that did not succeed, or weights that do not verify."""

    exit_code = 1


@dataclass(frozen=True)
class ScoreComparison:
    """A score and the recorded one."""

    key: str
    found: RecordedScore
    recorded: RecordedScore | None  # The score then, None where none was recorded

    @property
    def same(self) -> bool | None:
        """Whether both are printed alike; None where nothing was recorded."""
        return None if self.recorded is None else str(self.found) == str(self.recorded)

    @property
    def within_noise(self) -> bool | None:
        """Whether they differ by no more than resampled held-out examples; None where nothing was recorded."""
        if self.recorded is None:
            return None
        intervals = (self.found.interval, self.recorded.interval)
        halves = [(high - low) / 2 for low, high in (interval for interval in intervals if interval is not None)]
        allowed = hypot(*halves) if len(halves) == len(intervals) else NOISE * abs(self.recorded.value)
        return abs(self.found.value - self.recorded.value) <= allowed

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "same": self.same, "within_noise": self.within_noise}


@dataclass(frozen=True)
class Verification:
    """Result of verifying weights."""

    name: str
    # Their scores now, with the recorded ones; none where only files and outputs were compared
    scores: tuple[ScoreComparison, ...] = ()
    problem: str | None = None  # Problem with files or outputs, None without one
    unchecked: str | None = None  # Checks that replaced the scores, if those could not be compared

    @property
    def holds(self) -> bool:
        """Whether files, outputs and scores are what was recorded."""
        return self.problem is None and all(score.same is not False for score in self.scores)

    def to_dict(self) -> dict[str, Any]:
        scores = [score.to_dict() for score in self.scores]
        return {"name": self.name, "holds": self.holds, "problem": self.problem, "scores": scores} | (
            {} if self.unchecked is None else {"unchecked": self.unchecked}
        )


def make_weights(
    name: str, output_dir: str | Path, *, trained: str | Path | None = None, force: bool = False
) -> tuple[Weights, tuple[ScoreComparison, ...]]:
    """Train weights again by their record, score them, and write a folder that can be registered."""
    recorded = find_weights(name)
    if not recorded.command:
        raise ConfigError(f"{recorded.name} has no record of its training; it comes from {recorded.source}")
    out = Path(output_dir)
    check_output(out, force=force)
    place = Path(trained) if trained is not None else train_again(recorded, Path(f"{out}-training"))
    with written_whole(out, force=force) as folder:
        scores = store(place, folder, recorded.generation)
        model = load(folder)
        dtypes = {str(one.dtype).removeprefix("torch.") for one in load_file(folder / SAFE_WEIGHTS_NAME).values()}
        measured = dict(num_parameters=model.num_parameters(), versions=versions(), dtype=" and ".join(sorted(dtypes)))
        parent = read_result(folder)["recipe"].get("init")
        made = write_record(folder, replace(recorded, **measured, parent=parent, fingerprint=fingerprint(model)))
    made = replace(made, source=str(out))
    return made, compare_scores(scores, recorded)


def train_again(weights: Weights, folder: Path) -> Path:
    if "report" in read_result(folder):
        return folder
    _, *arguments = weights.command
    command = [sys.executable, "-m", "zoo", *arguments, "--output", str(folder), "--resume"]
    if (status := subprocess.run(command, check=False, stdout=sys.stderr).returncode) != 0:
        raise MakingError(f"{weights.command_line} ended with status {status}; to go on with it, make them again")
    return folder


def store(trained: Path, folder: Path, generation: Mapping[str, object]) -> dict[str, RecordedScore]:
    """Write the files of weights from a trained model with its tokenizer, and return the scores of what was written."""
    for name in STORED:
        if (trained / name).is_dir():
            shutil.copytree(trained / name, folder / name)
        elif (trained / name).is_file():
            shutil.copyfile(trained / name, folder / name)
    if generation:
        if (folder / GENERATION_CONFIG_NAME).is_file():
            settings = GenerationConfig.from_pretrained(folder)
        else:  # a masked language model that is a decoder as well
            settings = GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder))
        settings.update(**generation)
        settings.save_pretrained(folder)
    result = read_result(trained)
    report = {key: value for key, value in result["report"].items() if key not in NOT_KEPT}
    write_json(folder / RESULT_FILE, {**result, "report": report})
    tensors = load_file(trained / SAFE_WEIGHTS_NAME)
    exact = evaluate(trained)
    save_file({key: value.half() for key, value in tensors.items()}, folder / SAFE_WEIGHTS_NAME, {"format": "pt"})
    found = evaluate(folder)
    before, after = (scores_of(evaluation.to_dict()) for evaluation in (exact, found))
    if [str(score) for score in before.values()] != [str(score) for score in after.values()]:
        save_file(tensors, folder / SAFE_WEIGHTS_NAME, {"format": "pt"})
        found, after = exact, before
    keep_evaluation(folder, found.to_dict(), found.data)
    return after


def compare_scores(found: Mapping[str, RecordedScore], recorded: Weights) -> tuple[ScoreComparison, ...]:
    return tuple(ScoreComparison(key, score, recorded.scores.get(key)) for key, score in found.items())


def verify_weights(names: Iterable[str] | None = None, *, scores: bool = True) -> list[Verification]:
    """Compare weights with their records: every file's hash, the outputs on a fixed input, and the scores."""
    given = list_weights() if names is None else list(names)
    found = [find_weights(name) for name in given]
    return [verify_one(weights, scores=scores) for weights in found if names is not None or not weights.on_hub]


def verify_one(weights: Weights, *, scores: bool) -> Verification:
    try:
        folder = locate_weights(weights)
        recorded = read_record(folder) if weights.on_hub else weights
        if not (scores and recorded.scores):
            load(folder)
            return Verification(weights.name)
        run = saved_run(folder)
        corpus = run.data.source.data if run is not None and run.data.source is not None else None
        if corpus is not None and corpus in CORPORA and not is_here(CORPORA.get(corpus)):
            load(folder)
            unchecked = f"files and outputs; the scores need `zoo data get {corpus}`"
            return Verification(weights.name, unchecked=unchecked)
        found = scores_of(evaluate(folder).to_dict())
        missing = sorted(recorded.scores.keys() - found.keys())
        problem = f"no score {enumerate_names(missing)} was computed, and its record has one" if missing else None
        return Verification(weights.name, compare_scores(found, recorded), problem)
    except ZooError as error:
        return Verification(weights.name, problem=str(error))
