"""Where a model runs: in torch, or as an export in another engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from transformers import PreTrainedModel

from zoo.base.errors import InvalidChoiceError
from zoo.base.folders import scratch_folder
from zoo.building.dispatch import load
from zoo.building.quantizing import to_int8
from zoo.building.weights import locate
from zoo.converters.target import TARGETS, EngineTarget, ExportOptions
from zoo.models import ZooPreTrainedModel
from zoo.registry import ENGINES

TORCH, TORCH_INT8 = "torch", "torch-int8"


class Engine(ABC):
    """An engine that runs models."""

    exact: bool = True  # Whether it computes what the model does, but for rounding in float32

    @abstractmethod
    def run(self, model: ZooPreTrainedModel, source: Path | None) -> PreTrainedModel:
        """Take a model; `source` is the folder it was loaded from, None for a model in memory."""


class Torch(Engine):
    """PyTorch, where every variant runs."""

    def run(self, model: ZooPreTrainedModel, source: Path | None) -> PreTrainedModel:
        return model


class TorchInt8(Engine):
    """PyTorch with int8 weights, which are faster on a CPU and change results."""

    exact = False

    def run(self, model: ZooPreTrainedModel, source: Path | None) -> PreTrainedModel:
        return to_int8(model, inplace=True)


class ExportEngine(Engine):
    """An engine that runs exports to a target; `dtype` is how weights are stored, None for the target's first."""

    def __init__(self, target: str, dtype: str | None = None) -> None:
        self._target = target
        self.dtype = dtype
        self.exact = dtype is None

    @property
    def target(self) -> EngineTarget:
        """The target, looked up when it is needed, as its module may be slow to import."""
        found = TARGETS.get(self._target)
        assert isinstance(found, EngineTarget), f"{self._target} is for no engine"
        return found

    def run(self, model: ZooPreTrainedModel, source: Path | None) -> PreTrainedModel:
        """Export it to where it is gone when it has been loaded."""
        with scratch_folder() as scratch:
            return self.run_in(scratch, model, source)

    def run_in(self, folder: Path, model: ZooPreTrainedModel, source: Path | None) -> PreTrainedModel:
        """Export a model to an empty folder, and load it. Other arguments and errors as for `run`."""
        from zoo.converters.exporting import choose

        self.target.write(model, folder, choose(model, self._target), ExportOptions(self.dtype, source))
        return self.target.load(folder)


IN_TORCH, IN_TORCH_INT8 = Torch(), TorchInt8()
IN_ONNX_RUNTIME = ExportEngine("onnx")
IN_CTRANSLATE2, IN_CTRANSLATE2_INT8 = ExportEngine("ctranslate2"), ExportEngine("ctranslate2", "int8")
IN_LLAMA_CPP, IN_LLAMA_CPP_Q8_0 = ExportEngine("gguf"), ExportEngine("gguf", "q8_0")
IN_OPENVINO, IN_OPENVINO_INT8 = ExportEngine("openvino"), ExportEngine("openvino", "int8")


def load_for(model: str | Path, engine: str | None = None) -> PreTrainedModel:
    """Load a checkpoint, or an export, for an engine; a checkpoint is exported first, in memory and unverified."""
    asked = ENGINES.get(engine or TORCH)
    folder = locate(model)
    made_for = engine_of(folder)
    if made_for is None:
        return asked.run(load(folder), folder)
    if engine not in (None, made_for[0]):
        raise InvalidChoiceError(str(engine), [made_for[0]], kind=f"engine for the export {folder.name}")
    return made_for[1].target.load(folder)


def is_exported(folder: Path, engine: str | None) -> bool:
    """Whether a folder is an export, or is exported for this engine."""
    return isinstance(ENGINES.get(engine or TORCH), ExportEngine) or engine_of(folder) is not None


def engine_of(folder: Path) -> tuple[str, ExportEngine] | None:
    if any(folder.glob("*.safetensors")):
        return None
    engines = ((name, ENGINES.get(name)) for name in ENGINES)
    exported = ((name, engine) for name, engine in engines if isinstance(engine, ExportEngine))
    return next(((name, engine) for name, engine in exported if engine.target.is_in(folder)), None)
