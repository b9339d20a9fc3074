"""How large the work is, and transformers' own configurations of that size."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import BertConfig, GPT2Config, MarianConfig


@dataclass(frozen=True)
class Scale:
    """How large the work is."""

    width: int = 512  # Hidden size; the feed-forward network is four times as wide
    heads: int = 8  # Number of attention heads
    layers: int = 4  # Number of layers of an encoder
    decoder_layers: int = 6  # Layers of a decoder-only model
    vocabulary: int = 16_000  # Number of token ids
    lengths: tuple[int, int, int] = (128, 256, 64)  # Positions of an encoder's, a decoder's and a translator's batch
    rows: tuple[int, int, int] = (16, 4, 24)  # Sequences of the same
    new_tokens: int = 128  # How many are generated


USUAL_DROPOUT = 0.1
"""Training settings of BERT, GPT-2, the paper's models and those of the documents."""

FULL = Scale()
TINY = Scale(32, 2, 2, 2, 100, (16, 16, 8), (4, 2, 4), 8)
SMALL = Scale(128, 4, 3, 2, 2_000, (20, 20, 20), (64, 64, 64), 20)
"""A translator as the zoo's recipe for two cores trains it, on as many sentences of that length."""
GPU = Scale(768, 12, 12, 12, 50_304, (512, 1024, 128), (64, 16, 64), 128)
"""BERT-base, a GPT-2 of 124M parameters with its vocabulary padded, a translator of the same width."""


def bert_config(scale: Scale, dropout: float = 0.0) -> BertConfig:
    """An encoder, by default without dropout, so that results can be compared."""
    return BertConfig(
        vocab_size=scale.vocabulary,
        hidden_size=scale.width,
        num_hidden_layers=scale.layers,
        num_attention_heads=scale.heads,
        intermediate_size=4 * scale.width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def gpt2_config(scale: Scale, dropout: float = 0.0) -> GPT2Config:
    """A decoder, by default without dropout."""
    return GPT2Config(
        vocab_size=scale.vocabulary,
        n_embd=scale.width,
        n_layer=scale.decoder_layers,
        n_head=scale.heads,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )


def marian_config(scale: Scale, layers: int, dropout: float = 0.0) -> MarianConfig:
    """A translator, by default without dropout."""
    return MarianConfig(
        vocab_size=scale.vocabulary,
        d_model=scale.width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=scale.heads,
        decoder_attention_heads=scale.heads,
        encoder_ffn_dim=4 * scale.width,
        decoder_ffn_dim=4 * scale.width,
        dropout=dropout,
        attention_dropout=dropout,
        pad_token_id=0,
        eos_token_id=2,
        forced_eos_token_id=None,
        decoder_start_token_id=0,
    )
