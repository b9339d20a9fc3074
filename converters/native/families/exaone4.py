"""EXAONE 4: norms on the branches' outputs, and on the queries and keys of each head."""

from __future__ import annotations

from ..base import native_format
from ..declared import Field
from ..decoders import WINDOWS_BY_LAYER, sliding_window, whole_text
from .llama import ATTENTION, GATED, QK_NORMS, LlamaLike
from .olmo import BRANCH_NORMS


@native_format
class Exaone4(LlamaLike):
    """EXAONE 4 (LG AI Research 2025): where some layers have a window, the others have no positions."""

    name = "exaone4"
    variant = "olmo2-style"
    fields = {
        **LlamaLike.fields,
        **WINDOWS_BY_LAYER,
        "sliding_window": Field("sliding_window", sliding_window),
        "nope_layers": Field(
            "layer_types",
            lambda native: None if native.sliding_window is None else whole_text(native.layer_types),
            lambda config: config.types_of_layers(),
            has=lambda config: None if config.sliding_window is None else whole_text(config.types_of_layers()),
        ),
    }
    always = {**LlamaLike.always, "norm_placement": "res-post", "qk_norm": "head"}
    layer = {**ATTENTION, **QK_NORMS, **GATED, **BRANCH_NORMS}
