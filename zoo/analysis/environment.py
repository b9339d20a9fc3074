"""Versions, plugins and devices, for bug reports."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from datetime import date
from typing import TYPE_CHECKING, Any

from zoo.base.formats import installed_version
from zoo.base.processor import processor_facts
from zoo.registry import VARIANTS
from zoo.registry.plugins import SWITCH, admitted, installed

if TYPE_CHECKING:
    import torch

REPORTED = ("transformer-zoo", "torch", "transformers", "huggingface-hub")
"""Distributions that a bug report cannot do without."""

PACKAGES = (*REPORTED, "tokenizers", "safetensors", "accelerate", "datasets", "sacrebleu", "numpy")


def version_line() -> str:
    """Describe the environment in one line, without importing any of it."""
    versions = [f"{package} {installed_version(package) or 'not installed'}" for package in REPORTED]
    return ", ".join([*versions, f"Python {platform.python_version()}", platform.platform()])


def environment() -> dict[str, dict[str, str | None]]:
    """Collect versions, plugins and devices. Errors are part of the report and do not end it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sections: dict[str, dict[str, str | None]] = {
            "versions": {package: installed_version(package) for package in PACKAGES},
            "system": {
                "python": platform.python_version(),
                "executable": sys.executable,
                "platform": platform.platform(),
            },
            "devices": devices(),
            "plugins": plugins(),
        }
    warned = dict.fromkeys((warning.category.__name__, str(warning.message)) for warning in caught)
    for place, (kind, message) in enumerate(warned, 1):
        sections.setdefault("warnings", {})[f"{place} {kind}"] = message
    return sections


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    return processor_facts().get("model name") or platform.processor() or platform.machine()


def circumstances(device: str | None = None) -> dict[str, Any]:
    """Describe where and when this process computes, which decides speed and the last bits of results."""
    import torch

    return {
        "zoo": installed_version("transformer-zoo") or "",
        "torch": torch.__version__,
        "transformers": installed_version("transformers") or "",
        "python": platform.python_version(),
        "machine": device_name(torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0,
        "date": date.today().isoformat(),
    }


def devices() -> dict[str, str | None]:
    try:
        import torch

        found: dict[str, str | None] = {"cpu": f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"}
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            found[f"cuda:{index}"] = f"{properties.name}, {properties.total_memory / 2**30:.1f} GiB"
        if torch.backends.mps.is_available():
            found["mps"] = "Apple Metal"
    except Exception as error:
        return {"torch": f"cannot be used: {type(error).__name__}: {error}"}
    return found


def plugins() -> dict[str, str | None]:
    try:
        number = len(VARIANTS)  # loads them, so that errors in one are reported
    except Exception as error:
        return {"variants": f"cannot be loaded: {type(error).__name__}: {error}"}
    found: dict[str, str | None] = {"variants": f"{number}, with those of plugins"}
    loaded = {(plugin.name, plugin.value) for plugin in admitted(installed())}
    for plugin in installed():
        origin = f"{plugin.dist.name} {plugin.dist.version}" if plugin.dist else "an unknown distribution"
        state = "" if (plugin.name, plugin.value) in loaded else f" (switched off by {SWITCH})"
        found[plugin.name] = f"{plugin.value} of {origin}{state}"
    return found
