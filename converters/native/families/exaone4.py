"""EXAONE 4: norms on the branches' outputs, and on the queries and keys of each head."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig

from ...errors import NoCounterpartError
from ..base import native_format
from ..declared import Field
from ..decoders import WINDOWS_BY_LAYER, sliding_window
from .llama import ATTENTION, GATED, QK_NORMS, LlamaLike
from .olmo import BRANCH_NORMS


@native_format
class Exaone4(LlamaLike):
    """EXAONE 4 (LG AI Research 2025), where all layers rotate: those without a window do not if others have one."""

    name = "exaone4"
    variant = "olmo2-style"
    fields = {
        **LlamaLike.fields,
        **WINDOWS_BY_LAYER,
        "sliding_window": Field("sliding_window", sliding_window),
    }
    always = {**LlamaLike.always, "norm_placement": "res-post", "qk_norm": "head"}
    layer = {**ATTENTION, **QK_NORMS, **GATED, **BRANCH_NORMS}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Express a native configuration in the zoo's settings. Arguments as in the base class."""
        if native.sliding_window is not None and "full_attention" in native.layer_types:
            reason = f"sliding_window={native.sliding_window}: its layers without a window have no positions"
            raise NoCounterpartError(self.name, [f"{reason}, in the zoo all layers have them"])
        return super().read_config(native, task)

    def window_obstacles(self, config: ZooConfig) -> list[str]:
        """A window in all layers or in none. Arguments as in the base class."""
        mixed = len({config.window_of_layer(layer) for layer in range(config.num_hidden_layers)}) > 1
        return ["where some layers have a window, its others have no positions"] if mixed else []
