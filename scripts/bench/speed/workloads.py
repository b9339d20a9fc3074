"""The work: shapes, batches, and everybody who does it with the same weights."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measuring import OURS, Peer
from plain import PlainDecoder, PlainEncoder, TorchEncoder, TorchSeq2Seq
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
)

import zoo
from zoo.converters.ctranslate2 import load_ctranslate2
from zoo.converters.exporting import write_ctranslate2_export
from zoo.models.fast_paths import fast_paths


@dataclass(frozen=True)
class Scale:
    """How large the work is.

    Args:
        width: Hidden size; the feed-forward network is four times as wide.
        heads: Number of attention heads.
        layers: Number of layers of an encoder.
        decoder_layers: Of a decoder that stands alone.
        vocabulary: Number of token ids.
        lengths: Positions of an encoder's, a decoder's and a translator's batch.
        rows: Sequences of the same.
        new_tokens: How many are generated.
    """

    width: int = 512
    heads: int = 8
    layers: int = 4
    decoder_layers: int = 6
    vocabulary: int = 16_000
    lengths: tuple[int, int, int] = (128, 256, 64)
    rows: tuple[int, int, int] = (16, 4, 24)
    new_tokens: int = 128


FULL = Scale()
TINY = Scale(32, 2, 2, 2, 100, (16, 16, 8), (4, 2, 4), 8)


class Work:
    """Builds the peers of every workload.

    Args:
        scale: How large the work is.
        device: Where it is done.
        dtype: float32, or what training runs in under autocast and inference in as a whole.
        compiled: Whether everybody's model goes through torch.compile.
    """

    def __init__(self, scale: Scale, device: torch.device, dtype: torch.dtype, compiled: bool) -> None:
        self.scale = scale
        self.device = device
        self.dtype = dtype
        self.compiled = compiled

    def workloads(self) -> Iterator[tuple[str, Callable[[], list[Peer]]]]:
        """Every workload's name, and what builds its peers."""
        yield "encoder inference, 45 % padding", partial(self.encoder, padded=True)
        yield "encoder inference, no padding", partial(self.encoder, padded=False)
        yield "classifier training step, padded", self.classifier
        yield "causal LM training step", self.causal_lm
        yield "seq2seq training step, padded pairs", self.seq2seq
        for rows in (1, 8):
            yield f"generation, batch {rows}", partial(self.generation, rows)
        yield "translation, greedy, batch 8", partial(self.translation, 1)
        yield "translation, beam 4, batch 8", partial(self.translation, 4)

    def ready(self, model: nn.Module, train: bool = False) -> Any:
        """Put a model where the work is done."""
        model = model.to(self.device).train(train)
        if not train:
            model = model.to(self.dtype)
        return torch.compile(model) if self.compiled else model

    def ids(self, rows: int, length: int, seed: int = 0) -> torch.Tensor:
        """Random token ids. *Shape:* (rows, length)."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(3, self.scale.vocabulary, (rows, length), generator=generator).to(self.device)

    def mask(self, rows: int, length: int, share: float, seed: int = 1) -> torch.Tensor:
        """A padding mask, 1 for this share of all positions; the first sequence is whole. *Shape:* (rows, length)."""
        generator = torch.Generator().manual_seed(seed)
        lengths = (length * torch.rand(rows, generator=generator)).clamp(min=1)
        lengths[0] = 0
        lengths = (lengths * (share * rows - 1) * length / lengths.sum()).round().clamp(1, length)
        lengths[0] = length
        return (torch.arange(length) < lengths[:, None]).long().to(self.device)

    def inference(self, name: str, model: Any, kind: str, **inputs: Any) -> Peer:
        """A peer that runs a model without gradients."""

        def result() -> torch.Tensor:
            output = model(**inputs)
            output = output if isinstance(output, torch.Tensor) else output[0]
            mask = inputs.get("attention_mask")
            return output if mask is None or output.ndim == 2 else output * mask[..., None]

        return Peer(name, torch.inference_mode()(lambda: model(**inputs)), kind, result)

    def training(self, name: str, model: nn.Module, kind: str, **inputs: Any) -> Peer:
        """A peer that does a training step: forward, backward, fused AdamW."""
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

        def loss() -> torch.Tensor:
            with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
                output = model(**inputs)
            return output if isinstance(output, torch.Tensor) else output.loss

        def step() -> None:
            loss().backward()
            optimizer.step()
            optimizer.zero_grad()

        return Peer(name, step, kind, loss)

    def encoder(self, padded: bool) -> list[Peer]:
        """Hidden states of a BERT."""
        rows, length = self.scale.rows[0], self.scale.lengths[0]
        inputs = {"input_ids": self.ids(rows, length)}
        if padded:
            inputs["attention_mask"] = self.mask(rows, length, 0.55)
        theirs = BertModel(self.bert_config(), add_pooling_layer=False).eval()
        ours = zoo.convert(theirs)
        peers = [
            self.inference("BertModel, sdpa", self.ready(theirs), "stock", **inputs),
            self.inference("BertModel, eager", self.ready(self.eager(theirs)), "stock", **inputs),
            self.inference("nn.TransformerEncoder", self.ready(TorchEncoder(theirs)), "stock", **inputs),
            self.inference("a head at a time", self.ready(PlainEncoder(theirs)), "other", **inputs),
            self.inference("zoo", self.ready(ours), OURS, **inputs),
        ]
        if importlib.util.find_spec("x_transformers"):
            peers.append(self.inference("x-transformers", self.ready(self.x_transformers()), "other", **inputs))
        return [*peers, *self.without_fast_paths(peers)]

    def classifier(self) -> list[Peer]:
        """A step of a BERT that classifies sequences."""
        rows, length = self.scale.rows[0], self.scale.lengths[0]
        inputs = {
            "input_ids": self.ids(rows, length),
            "attention_mask": self.mask(rows, length, 0.55),
            "labels": torch.arange(rows, device=self.device) % 2,
        }
        theirs = BertForSequenceClassification(self.bert_config())
        ours = zoo.convert(theirs)
        torch_encoder = TorchEncoder(theirs.bert, theirs)
        peers = [
            self.training("BertForSequenceClassification", self.ready(theirs, train=True), "stock", **inputs),
            self.training("nn.TransformerEncoder", self.ready(torch_encoder, train=True), "stock", **inputs),
            self.training("zoo", self.ready(ours, train=True), OURS, **inputs),
        ]
        return [*peers, *self.without_fast_paths(peers)]

    def causal_lm(self) -> list[Peer]:
        """A step of a GPT-2."""
        ids = self.ids(self.scale.rows[1], self.scale.lengths[1])
        theirs = GPT2LMHeadModel(self.gpt2_config())
        ours = zoo.convert(theirs)
        inputs = {"input_ids": ids, "labels": ids}
        return [
            self.training("GPT2LMHeadModel", self.ready(theirs, train=True), "stock", **inputs),
            self.training("plain loop", self.ready(PlainDecoder(theirs), train=True), "stock", **inputs),
            self.training("zoo", self.ready(ours, train=True), OURS, **inputs),
        ]

    def seq2seq(self) -> list[Peer]:
        """A step of a Marian translator."""
        rows, length = self.scale.rows[2], self.scale.lengths[2]
        source, target = self.mask(rows, length, 0.54), self.mask(rows, length, 0.54, seed=2)
        labels = self.ids(rows, length, seed=2).masked_fill(target == 0, -100)
        inputs = {"input_ids": self.ids(rows, length), "attention_mask": source, "labels": labels}
        inputs["decoder_attention_mask"] = target
        theirs = MarianMTModel(self.marian_config(self.scale.layers - 1))
        ours = zoo.convert(theirs)
        peers = [
            self.training("MarianMTModel", self.ready(theirs, train=True), "stock", **inputs),
            self.training("nn.Transformer", self.ready(TorchSeq2Seq(theirs), train=True), "stock", **inputs),
            self.training("zoo", self.ready(ours, train=True), OURS, **inputs),
        ]
        return [*peers, *self.without_fast_paths(peers)]

    def generation(self, rows: int) -> list[Peer]:
        """Greedy continuation with a cache."""
        theirs = GPT2LMHeadModel(self.gpt2_config()).eval()
        ids = self.ids(rows, max(2, self.scale.lengths[1] // 8))
        return self.generators("GPT2LMHeadModel", theirs, 1, input_ids=ids)

    def translation(self, num_beams: int) -> list[Peer]:
        """Greedy or beam search translation."""
        theirs = MarianMTModel(self.marian_config(self.scale.decoder_layers)).eval()
        inputs = {
            "input_ids": self.ids(8, self.scale.lengths[2]),
            "attention_mask": self.mask(8, self.scale.lengths[2], 0.7),
        }
        return self.generators("MarianMTModel", theirs, num_beams, **inputs)

    def generators(self, name: str, theirs: nn.Module, num_beams: int, **inputs: torch.Tensor) -> list[Peer]:
        """A native model, ours, and ours in CTranslate2 where that is installed."""
        ours = zoo.convert(theirs)
        models = {name: self.ready(theirs), "zoo": self.ready(ours)}
        if self.device.type == "cpu" and importlib.util.find_spec("ctranslate2"):
            models |= {f"zoo in CTranslate2, {dtype}": in_ctranslate2(ours, dtype) for dtype in ("float32", "int8")}
        return [self.generating(peer, model, num_beams, **inputs) for peer, model in models.items()]

    def generating(self, name: str, model: Any, num_beams: int, **inputs: torch.Tensor) -> Peer:
        """A peer that generates."""
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
        tokens = self.scale.new_tokens
        run = partial(
            model.generate, **inputs, num_beams=num_beams, do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens
        )
        kind = {"zoo": OURS}.get(name, "other" if name.startswith("zoo") else "stock")
        # Of int8 weights other tokens may come.
        return Peer(name, run, kind, None if name.endswith("int8") else run)

    def without_fast_paths(self, peers: list[Peer]) -> list[Peer]:
        """Our own peer again, with everything switched off that makes it faster."""
        ours = next(peer for peer in peers if peer.kind == OURS)

        def plainly(run: Callable[[], Any]) -> Any:
            with fast_paths(packing="never"):
                return run()

        result = None if ours.result is None else partial(plainly, ours.result)
        return [Peer("zoo, padding kept", partial(plainly, ours.run), "other", result)]

    def eager(self, model: Any) -> Any:
        """A copy of a native model on eager attention."""
        copy = type(model)._from_config(model.config, attn_implementation="eager")
        copy.load_state_dict(model.state_dict(), strict=False)
        return copy

    def bert_config(self) -> BertConfig:
        """An encoder without dropout, so that results can be compared."""
        scale = self.scale
        return BertConfig(
            vocab_size=scale.vocabulary,
            hidden_size=scale.width,
            num_hidden_layers=scale.layers,
            num_attention_heads=scale.heads,
            intermediate_size=4 * scale.width,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )

    def gpt2_config(self) -> GPT2Config:
        """A decoder without dropout."""
        scale = self.scale
        return GPT2Config(
            vocab_size=scale.vocabulary,
            n_embd=scale.width,
            n_layer=scale.decoder_layers,
            n_head=scale.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )

    def marian_config(self, layers: int) -> MarianConfig:
        """A translator without dropout."""
        scale = self.scale
        return MarianConfig(
            vocab_size=scale.vocabulary,
            d_model=scale.width,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=scale.heads,
            decoder_attention_heads=scale.heads,
            encoder_ffn_dim=4 * scale.width,
            decoder_ffn_dim=4 * scale.width,
            dropout=0.0,
            pad_token_id=0,
            eos_token_id=2,
            forced_eos_token_id=None,
            decoder_start_token_id=0,
        )

    def x_transformers(self) -> nn.Module:
        """Lucidrains' encoder of the same shape; its arithmetic is its own."""
        library, scale = importlib.import_module("x_transformers"), self.scale
        layers = library.Encoder(dim=scale.width, depth=scale.layers, heads=scale.heads, attn_flash=True)
        model = library.TransformerWrapper(
            num_tokens=scale.vocabulary, max_seq_len=scale.lengths[0], attn_layers=layers
        )

        class Adapter(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
                mask = None if attention_mask is None else attention_mask.bool()
                return self.model(input_ids, mask=mask, return_embeddings=True)

        return Adapter()


def in_ctranslate2(model: Any, dtype: str) -> Any:
    """A model as an export in CTranslate2, which holds it in memory."""
    with tempfile.TemporaryDirectory() as folder:
        write_ctranslate2_export(model, Path(folder), dtype, None)
        return load_ctranslate2(folder)
