"""Encoder-decoders that share BART's code: Marian, BART, MBart, Pegasus, Blenderbot, M2M100."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models import ZooConfig

from ...errors import NoCounterpartError
from ...symmetries.base import State
from ...symmetries.route import Needs
from ..common import COUNTED_FROM, COUNTS_TOKENS, fairseq_table, table_obstacles, without
from ..encoder_decoders import BartLike


class Marian(BartLike, name="marian", rank=10):
    """Marian (Junczys-Dowmunt et al. 2018): post-norm, sinusoidal; the only one with two vocabularies."""

    variant = "marian-style"
    placement = "post"
    sinusoidal = True

    def vocabulary_needs(self, config: ZooConfig) -> dict[str, Any]:
        return {}

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        return super().write_config(config, task) | {
            "share_encoder_decoder_embeddings": self.one_embedding(config),
            "decoder_vocab_size": config.decoder_vocab_size,
        }

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Two embeddings have no common name."""
        state = super().write_weights(config, state, task)
        return state if self.one_embedding(config) else without(state, "model.shared.weight")


class Bart(BartLike, name="bart", rank=110):
    """BART (Lewis et al. 2020): post-norm, learned positions, a norm on the embeddings."""

    variant = "post-norm"
    placement = "post"
    offset = 2
    embedding_norm = True


class Pegasus(BartLike, name="pegasus", rank=120):
    """Pegasus (Zhang et al. 2020): pre-norm, sinusoidal."""

    variant = "pegasus-style"
    placement = "pre"
    sinusoidal = True


class Blenderbot(BartLike, name="blenderbot", rank=130):
    """Blenderbot (Roller et al. 2021): pre-norm, learned positions."""

    variant = "pegasus-style"
    placement = "pre"

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        return super().write_config(config, task) | {"encoder_no_repeat_ngram_size": 0}


class BeginsWithLastLabel(BartLike):
    """A class that makes its decoder's inputs of labels by moving the last label to the front."""

    def differences(self, native: Any, read: Mapping[str, Any], config: ZooConfig) -> list[str]:
        begin = (
            f"decoder inputs made of labels begin with the last label in {self.name}, with decoder_start_token_id in "
            "the zoo: give decoder_input_ids for the same loss"
        )
        return [begin, *super().differences(native, read, config)]


class MBart(BeginsWithLastLabel, name="mbart", rank=140):
    """MBart (Liu et al. 2020): pre-norm, learned positions, a norm on the embeddings."""

    variant = "pegasus-style"
    placement = "pre"
    offset = 2
    embedding_norm = True


class PlBart(BeginsWithLastLabel, Bart, name="plbart"):
    """PLBART (Ahmad et al. 2021): BART for code, with scaled embeddings."""


class Mvp(Bart, name="mvp"):
    """MVP (Tang et al. 2022): BART's code without prompts."""

    only = {"use_prompt": False}


class M2M100(BartLike, name="m2m_100"):
    """M2M-100 and NLLB (Fan et al. 2020): pre-norm, fairseq's sinusoidal positions, which are read as a table."""

    variant = "pegasus-style"
    placement = "pre"
    output_bias = False
    padding = COUNTED_FROM
    untrained = "tables of positions"
    reasons = {**BartLike.reasons, "lm_head_bias": "its output projection has no bias"}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Padding takes no positions."""
        if native.pad_token_id is None:
            raise NoCounterpartError(self.name, [f"pad_token_id is None{COUNTED_FROM}"])
        return {**super().read_config(native, task), "position": "learned-unpadded"}

    def needs(self, config: ZooConfig, task: str) -> Needs:
        return {**super().needs(config, task), "position": ("learned-unpadded", "learned")}

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        padding = native.pad_token_id  # positions are counted from the number after it
        rows = fairseq_table(native.max_position_embeddings, native.d_model, padding + 1, padding)
        rows = rows.to(state["model.encoder.embed_tokens.weight"])
        return {**state, **{name: rows.clone() for name in self.tables}}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        return without(super().write_weights(config, state, task), *self.tables)

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        padding = config.pad_token_id or 0
        return super().obstacles(config, state, task) or table_obstacles(state, padding + 1, padding)

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        return [] if config.position == "learned-unpadded" else [COUNTS_TOKENS]
