"""Records of weights: read from their folder, written into it, and compared with what is there."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zoo.base.errors import CheckpointError, RegistrationError, enumerate_names
from zoo.base.files import read_json, write_json
from zoo.base.folders import EVALUATIONS_FILE, RECORD_FILE
from zoo.base.manifest import MANIFEST_FILE, Written, changed_files, describe
from zoo.registry import WEIGHTS, FileDigest, RecordedScore, Weights

MAKERS = ("transformer-zoo", "torch", "transformers", "tokenizers")  # Distributions with versions in a record
SHARED = Path(__file__).parent / "shared"  # Files that several weights that ship have, each once, called by its SHA-256

HERE = ("source", "scores", "generation")
"""Facts of a record that are not in its file: its folder, and contents of another file."""


def read_record(folder: Path) -> Weights:
    """Read what is known about the weights in a folder.

    Args:
        folder: A folder that `zoo weights make` wrote.

    Raises:
        CheckpointError: When the record is missing or damaged.
    """
    file = folder / RECORD_FILE
    try:
        fields: dict[str, Any] = read_json(file)
        files = {name: FileDigest(**digest) for name, digest in fields.pop("files").items()}
        lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return Weights(**{**fields, **lists}, source=str(folder), files=files, scores=read_scores(folder))
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename} is missing, so the weights there cannot be checked") from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{file}, the record of these weights, is damaged: {error}") from error
    except RegistrationError as error:
        raise CheckpointError(f"{file}: {error}") from error


def read_scores(folder: Path) -> dict[str, RecordedScore]:
    file = folder / EVALUATIONS_FILE
    return scores_of(read_json(file)["evaluations"][0]) if file.is_file() else {}


def scores_of(evaluation: Mapping[str, Any]) -> dict[str, RecordedScore]:
    scores = {}
    for key, score in evaluation["scores"].items():
        interval = None if score["interval"] is None else tuple(score["interval"])
        scores[key] = RecordedScore(score["name"], score["value"], interval, score["signature"])
    return {**scores, "loss": RecordedScore("Loss", evaluation["loss"])}


def write_record(folder: Path, weights: Weights) -> Weights:
    """Write the record of the weights in a folder, with the hashes of all files that are there.

    Args:
        weights: The record.

    Returns:
        The same, with the files.
    """
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    kept = [name for name in names if Path(name).name not in (RECORD_FILE, MANIFEST_FILE)]
    digests = {name: describe(folder / name) for name in kept}
    files = {name: FileDigest(digest.size, digest.sha256) for name, digest in digests.items()}
    recorded = replace(weights, source=str(folder), files=files, scores=read_scores(folder))
    fields = {name: value for name, value in asdict(recorded).items() if name not in HERE}
    write_json(folder / RECORD_FILE, fields)
    return recorded


def shared_files(folder: Path, weights: Weights) -> dict[str, Path]:
    """Find the stored files of weights that ship; several weights may share one."""
    if folder.parent.parent != SHARED.parent:
        return {}
    missing = {name: digest for name, digest in weights.files.items() if not (folder / name).is_file()}
    stored = {name: SHARED / f"{digest.sha256}{Path(name).suffix}" for name, digest in missing.items()}
    return {name: file for name, file in stored.items() if file.is_file()}


def check_files(folder: Path, weights: Weights) -> None:
    """Require the files of weights to be what they were when these were made."""
    missing = [name for name in weights.files if not (folder / name).is_file()]
    if missing or not weights.files:
        what = enumerate_names(missing) if missing else f"a record that can be read ({RECORD_FILE})"
        raise CheckpointError(f"{weights.name} is not whole: {folder} lacks {what}; {how_to_mend(weights)}")
    written = {name: Written(digest.size, digest.sha256) for name, digest in weights.files.items()}
    if changed := changed_files(folder, written):
        raise CheckpointError(
            f"{weights.name} is damaged: {enumerate_names(changed)} in {folder} is not what was recorded (SHA-256); "
            f"{how_to_mend(weights)}"
        )


def versions() -> dict[str, str]:
    return {distribution: version(distribution) for distribution in MAKERS}


def how_to_mend(weights: Weights) -> str:
    """Describe what to do about weights that are not what they should be."""
    if weights.on_hub:
        return "remove that folder, and they are fetched again"
    distribution = WEIGHTS.origin(weights.name).distribution if weights.name in WEIGHTS else None
    return f"install {distribution} again" if distribution else "have the folder made again"
