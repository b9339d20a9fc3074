"""M2M-100 and NLLB: BART's code before whose layers norms stand, with computed positions that count no padding."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig

from ...errors import NoCounterpartError
from ...symmetries.base import State
from ...symmetries.route import Needs
from ..base import native_format
from ..common import COUNTS_TOKENS, drop
from ..encoder_decoders import BartLike, bart_classes
from ..fairseq import fairseq_table, table_obstacles


@native_format
class M2M100(BartLike):
    """M2M-100 and NLLB (Fan et al. 2020): pre-norm, fairseq's sinusoidal positions, which are read as a table."""

    name = "m2m_100"
    model_types = ("m2m_100",)
    variant = "pegasus-style"
    classes = bart_classes("M2M100")
    placement = "pre"
    output_bias = False
    reasons = {**BartLike.reasons, "lm_head_bias": "its output projection has no bias"}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Padding takes no positions. Arguments as in the base class."""
        if native.pad_token_id is None:
            raise NoCounterpartError(self.name, ["pad_token_id is None, from which positions are counted"])
        return {**super().read_config(native, task), "position": "learned-unpadded"}

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Tables of either kind. Arguments as in the base class."""
        return {**super().needs(config, task), "position": ("learned-unpadded", "learned")}

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Add the table that is computed. Arguments as in the base class."""
        padding = native.pad_token_id  # positions are counted from the number after it
        rows = fairseq_table(native.max_position_embeddings, native.d_model, padding + 1, padding)
        rows = rows.to(state["model.encoder.embed_tokens.weight"])
        return {**state, **{name: rows.clone() for name in self.tables}}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Leave it out. Arguments as in the base class."""
        return drop(super().write_weights(config, state, task), *self.tables)

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Find what keeps a model from fitting. Arguments as in the base class."""
        padding = config.pad_token_id
        if padding is None:
            return ["pad_token_id is None, from which positions are counted"]
        return super().obstacles(config, state, task) or table_obstacles(state, padding + 1, padding)

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        """Describe how positions are counted. Arguments as in the base class."""
        return [] if config.position == "learned-unpadded" else [COUNTS_TOKENS]
