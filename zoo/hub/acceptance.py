"""Files that a pull accepts: safetensors, no code that was not allowed, no path that leaves its folder."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import Any

from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

from zoo.base.errors import ZooWarning, enumerate_names
from zoo.base.files import leaves_its_folder
from zoo.base.formats import installed_version

from .addresses import Address
from .client import LIBRARY
from .errors import HubError, RemoteCodeError, UnsafeWeightsError
from .folders import PICKLES, WEIGHTS

CODE = "*.py"

DISTRIBUTION = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?")
"""The name of a distribution on PyPI."""

NOT_PULLED = (
    *PICKLES,
    *("*.bin", "*.onnx*", "*.gguf", "*.ot", "*.npz", "*.tflite", "*.mlmodel", "*.mlpackage/**", ".git*"),
)
"""Formats that the zoo does not read; a repository may hold one copy of the weights in each."""


class MissingPluginWarning(ZooWarning):
    """A model was pulled that a plugin is needed for."""


PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin")
"""Weights as transformers wrote them before there were safetensors."""


def files_to_pull(listed: dict[str, Any], *, with_code: bool, with_pickles: bool = False) -> list[str]:
    for path in listed:
        if leaves_its_folder(path) or "\\" in path:
            raise HubError(f"the Hub lists a file that would leave its folder: {path!r}")
    ignored = NOT_PULLED if with_code else (*NOT_PULLED, CODE)
    wanted = set(filter_repo_objects(listed, ignore_patterns=list(ignored)))
    if with_pickles and not matching(listed, WEIGHTS):
        wanted.update(matching(listed, *PICKLED_WEIGHTS))
    return sorted(wanted)


def matching(files: Iterable[str], *patterns: str) -> list[str]:
    return list(filter_repo_objects(list(files), allow_patterns=list(patterns)))


def require_weights(address: Address, files: Iterable[str], *, with_pickles: bool = False) -> None:
    """Require weights in the safetensors format."""
    if not matching(files, WEIGHTS, *(PICKLED_WEIGHTS if with_pickles else ())):
        pickles = matching(files, *PICKLES, "*.bin")
        held = f"; it has {enumerate_names(pickles)}, which could run code when read" if pickles else ""
        raise UnsafeWeightsError(f"{address} has no weights in the safetensors format{held}")


def refuse_code(address: Address, config: dict[str, Any], *, trust_remote_code: bool) -> bool:
    """Refuse a model that needs code from its repository, unless that is allowed."""
    classes = config.get("auto_map") or {}
    if config.get("model_type") == LIBRARY or not classes:
        return False
    if not trust_remote_code:
        named = sorted({str(name[0] if isinstance(name, list) else name) for name in classes.values()})
        raise RemoteCodeError(
            f"{address} needs code from the Hub, which would run on this machine: {enumerate_names(named)}; read it, "
            "and allow it with trust_remote_code=True (--trust_remote_code) if you trust it"
        )
    return True


def is_distribution(name: Any) -> bool:
    """Whether something is the name of a distribution, so that a command to install it can be shown."""
    return isinstance(name, str) and DISTRIBUTION.fullmatch(name) is not None


def warn_of_missing_plugin(config: dict[str, Any]) -> None:
    """Name the plugin that a model needs, where it is not installed."""
    provider = config.get("provider") if config.get("model_type") == LIBRARY else None
    if provider and installed_version(str(provider)) is None:
        install = f"; `pip install {provider}` before the model is loaded" if is_distribution(provider) else ""
        warnings.warn(
            f"variant {config.get('variant')!r} comes from the plugin {provider!r}, which is not installed{install}",
            MissingPluginWarning,
            stacklevel=3,
        )
