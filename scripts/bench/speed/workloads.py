"""The work: batches, and the models that do it with the same weights."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from limits import bytes_a_token
from measuring import OURS, Peer, of_first_texts, record_steps
from others import eager, in_engines, x_transformers
from plain import PlainDecoder, PlainEncoder, TorchEncoder, TorchSeq2Seq
from shapes import SMALL, TINY, USUAL_DROPOUT, Scale, bert_config, gpt2_config, marian_config
from torch import Tensor, nn
from transformers import (
    BertForSequenceClassification,
    BertModel,
    CompileConfig,
    GPT2LMHeadModel,
    MarianMTModel,
    PreTrainedModel,
)

import zoo
from zoo.base.errors import UnsupportedBackendError
from zoo.fast.switches import fast_paths
from zoo.models import ZooPreTrainedModel

BIASED = ("llama-style", "alibi-decoder", "gemma2-style")
"""Without a bias on the scores, with one, and with soft-capping and windows."""

BACKENDS = ("sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3")


class Work:
    """Builds the peers of every workload.

    Training has autocast to `dtype`, inference is in it as a whole; `backend` is that of torch.compile, None for none.
    """

    def __init__(self, scale: Scale, device: torch.device, dtype: torch.dtype, backend: str | None) -> None:
        self.scale = scale
        self.device = device
        self.dtype = dtype
        self.backend = backend
        self.quantises = device.type == "cpu" and dtype == torch.float32 and backend is None

    def workloads(self) -> Iterator[tuple[str, Callable[[], list[Peer]]]]:
        """Every workload's name, and what builds its peers."""
        yield "encoder inference, 45 % padding", partial(self.encoder, padded=True)
        yield "encoder inference, no padding", partial(self.encoder, padded=False)
        # Results cannot be compared where elements are dropped.
        for dropout, words in ((0.0, ""), (USUAL_DROPOUT, f", dropout {USUAL_DROPOUT}")):
            yield f"classifier training step, padded{words}", partial(self.classifier, dropout)
            yield f"causal LM training step{words}", partial(self.causal_lm, dropout)
            yield f"seq2seq training step, padded pairs{words}", partial(self.seq2seq, dropout)
        yield "seq2seq training step from labels alone, padded pairs", partial(self.seq2seq, 0.0, masked=False)
        for rows in (1, 8):
            yield f"generation, batch {rows}", partial(self.generation, rows)
            yield f"first texts, batch {rows}", partial(self.texts, rows, prepared=False)
            yield f"prepared texts, batch {rows}", partial(self.texts, rows, prepared=True)
        small = Work(SMALL, self.device, self.dtype, self.backend)
        yield f"seq2seq training step of 1.2 M parameters, padded pairs{words}", partial(small.seq2seq, USUAL_DROPOUT)
        yield "translation, greedy, batch 8", partial(self.translation, 1)
        yield "translation, beam 4, batch 8", partial(self.translation, 4)

    def graphs(self) -> Iterator[tuple[str, Callable[[], list[Peer]]]]:
        """Workloads that an accelerator alone gains by: a decode step that is recorded once and replayed."""
        for rows in (1, 8):
            yield f"generation, static cache and graphs, batch {rows}", partial(self.static_generation, rows)

    def backends(self) -> Iterator[tuple[str, Callable[[], list[Peer]]]]:
        """Workloads that compare back ends of attention: the same model with the same weights on each."""
        for name in BIASED:
            yield f"back ends, {name} training step", partial(self.training_by_backend, name)

    def ready(self, model: nn.Module, train: bool = False) -> Any:
        model = model.to(self.device).train(train)
        if not train:
            model = model.to(self.dtype)
        return torch.compile(model, backend=self.backend) if self.backend else model

    def ids(self, rows: int, length: int, seed: int = 0) -> Tensor:
        """Random token ids. *Shape:* (rows, length)."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(3, self.scale.vocabulary, (rows, length), generator=generator).to(self.device)

    def mask(self, rows: int, length: int, share: float, seed: int = 1) -> Tensor:
        """A padding mask, 1 for this share of all positions; the first sequence is whole. *Shape:* (rows, length)."""
        generator = torch.Generator().manual_seed(seed)
        lengths = (length * torch.rand(rows, generator=generator)).clamp(min=1)
        lengths[0] = 0
        lengths = (lengths * (share * rows - 1) * length / lengths.sum()).round().clamp(1, length)
        lengths[0] = length
        return (torch.arange(length) < lengths[:, None]).long().to(self.device)

    def inference(self, name: str, model: Any, kind: str, **inputs: Any) -> Peer:
        """A peer that runs a model without gradients."""

        def result() -> Tensor:
            output = model(**inputs)
            output = output if isinstance(output, Tensor) else output[0]
            mask = inputs.get("attention_mask")
            return output if mask is None or output.ndim == 2 else output * mask[..., None]

        return Peer(name, torch.inference_mode()(lambda: model(**inputs)), kind, result)

    def training(self, name: str, model: nn.Module, kind: str, dropout: float, **inputs: Any) -> Peer:
        """A peer that does a training step: forward, backward, fused AdamW."""
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

        def loss() -> Tensor:
            with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
                output = model(**inputs)
            return output if isinstance(output, Tensor) else output.loss

        def step() -> None:
            loss().backward()
            optimizer.step()
            optimizer.zero_grad()

        return Peer(name, step, kind, None if dropout else loss)

    def encoder(self, padded: bool) -> list[Peer]:
        """Hidden states of a BERT."""
        rows, length = self.scale.rows[0], self.scale.lengths[0]
        inputs = {"input_ids": self.ids(rows, length)}
        if padded:
            inputs["attention_mask"] = self.mask(rows, length, 0.55)
        theirs = BertModel(bert_config(self.scale), add_pooling_layer=False).eval()
        ours = zoo.convert(theirs)
        peers = [
            self.inference("BertModel, sdpa", self.ready(theirs), "stock", **inputs),
            self.inference("BertModel, eager", self.ready(eager(theirs)), "stock", **inputs),
            self.inference("nn.TransformerEncoder", self.ready(TorchEncoder(theirs)), "stock", **inputs),
            self.inference("a head at a time", self.ready(PlainEncoder(theirs)), "other", **inputs),
            self.inference("zoo", self.ready(ours), OURS, **inputs),
        ]
        if importlib.util.find_spec("x_transformers"):
            peers.append(self.inference("x-transformers", self.ready(x_transformers(self.scale)), "other", **inputs))
        if self.device.type == "cpu":
            others = in_engines(ours, "openvino", "onnx").items()
            peers += [replace(self.inference(name, model, "other", **inputs), flops=0) for name, model in others]
        if self.quantises:
            peers.append(replace(self.inference("zoo, int8", zoo.to_int8(ours), "other", **inputs), flops=0))
        return [*peers, *self.without_fast_paths(peers)]

    def classifier(self, dropout: float) -> list[Peer]:
        """A step of a BERT that classifies sequences."""
        rows, length = self.scale.rows[0], self.scale.lengths[0]
        inputs = {
            "input_ids": self.ids(rows, length),
            "attention_mask": self.mask(rows, length, 0.55),
            "labels": torch.arange(rows, device=self.device) % 2,
        }
        theirs = BertForSequenceClassification(bert_config(self.scale, dropout))
        ours = zoo.convert(theirs)
        torch_encoder = TorchEncoder(theirs.bert, theirs)
        peers = [
            self.training("BertForSequenceClassification", self.ready(theirs, train=True), "stock", dropout, **inputs),
            self.training("nn.TransformerEncoder", self.ready(torch_encoder, train=True), "stock", dropout, **inputs),
            self.training("zoo", self.ready(ours, train=True), OURS, dropout, **inputs),
        ]
        return [*peers, *self.without_fast_paths(peers)]

    def causal_lm(self, dropout: float) -> list[Peer]:
        """A step of a GPT-2."""
        ids = self.ids(self.scale.rows[1], self.scale.lengths[1])
        theirs = GPT2LMHeadModel(gpt2_config(self.scale, dropout))
        ours = zoo.convert(theirs)
        inputs = {"input_ids": ids, "labels": ids}
        peers = [
            self.training("GPT2LMHeadModel", self.ready(theirs, train=True), "stock", dropout, **inputs),
            self.training("plain loop", self.ready(PlainDecoder(theirs), train=True), "stock", dropout, **inputs),
            self.training("zoo", self.ready(ours, train=True), OURS, dropout, skip_logits=True, **inputs),
            self.training("zoo, with logits", self.ready(ours, train=True), "other", dropout, **inputs),
        ]
        return [*peers, *self.without_fast_paths(peers)]

    def seq2seq(self, dropout: float, *, masked: bool = True) -> list[Peer]:
        """A step of a Marian translator; `DataCollatorForSeq2Seq` leaves out the target's mask (`masked=False`)."""
        rows, length = self.scale.rows[2], self.scale.lengths[2]
        source, target = self.mask(rows, length, 0.54), self.mask(rows, length, 0.54, seed=2)
        labels = self.ids(rows, length, seed=2).masked_fill(target == 0, -100)
        inputs = {"input_ids": self.ids(rows, length), "attention_mask": source, "labels": labels}
        if masked:
            inputs["decoder_attention_mask"] = target
        theirs = MarianMTModel(marian_config(self.scale, self.scale.layers - 1, dropout))
        ours = zoo.convert(theirs)
        options = {"skip_logits": True} if masked else {}  # without a mask, the call that any loop makes
        peers = [
            self.training("MarianMTModel", self.ready(theirs, train=True), "stock", dropout, **inputs),
            self.training("zoo", self.ready(ours, train=True), OURS, dropout, **options, **inputs),
        ]
        if masked:
            plain = self.ready(TorchSeq2Seq(theirs), train=True)
            peers.insert(1, self.training("nn.Transformer", plain, "stock", dropout, **inputs))
        return [*peers, *self.without_fast_paths(peers)]

    def generation(self, rows: int) -> list[Peer]:
        """Greedy continuation with a cache."""
        theirs = GPT2LMHeadModel(gpt2_config(self.scale)).eval()
        ids = self.ids(rows, max(2, self.scale.lengths[1] // 8))
        return self.generators("GPT2LMHeadModel", theirs, 1, ("ctranslate2", "openvino", "gguf"), input_ids=ids)

    def texts(self, rows: int, *, prepared: bool) -> list[Peer]:
        """Greedy continuation by models of PyTorch alone, ours prepared or without a recorded step."""
        theirs = GPT2LMHeadModel(gpt2_config(self.scale)).eval()
        model, ours = self.ready(theirs), self.ready(zoo.convert(theirs))
        inputs = {"input_ids": self.ids(rows, max(2, self.scale.lengths[1] // 8))}
        peer = self.generating("zoo", ours, 1, **inputs)
        return [
            self.generating("GPT2LMHeadModel", model, 1, **inputs),
            self.generating("GPT2LMHeadModel, static cache", model, 1, {"cache_implementation": "static"}, **inputs),
            peer if prepared else replace(peer, run=of_first_texts(ours, peer.run)),
        ]

    def translation(self, num_beams: int) -> list[Peer]:
        """Greedy or beam search translation."""
        theirs = MarianMTModel(marian_config(self.scale, self.scale.decoder_layers)).eval()
        inputs = {
            "input_ids": self.ids(8, self.scale.lengths[2]),
            "attention_mask": self.mask(8, self.scale.lengths[2], 0.7),
        }
        return self.generators("MarianMTModel", theirs, num_beams, ("ctranslate2", "openvino"), **inputs)

    def static_generation(self, rows: int) -> list[Peer]:
        """Greedy continuation, with a growing and with a static cache; tiny steps are traced only."""
        theirs = GPT2LMHeadModel(gpt2_config(self.scale)).to(self.device, self.dtype).eval()
        ours, ids = zoo.convert(theirs), self.ids(rows, max(2, self.scale.lengths[1] // 8))
        compiled = CompileConfig(mode="reduce-overhead", fullgraph=True, dynamic=False)
        if self.scale is TINY:
            compiled = CompileConfig(backend="eager", mode="default", fullgraph=True, dynamic=False)
            compiled._compile_all_devices = True
        static = {"cache_implementation": "static", "compile_config": compiled}
        given: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "do_sample": False}
        given["max_new_tokens"] = self.scale.new_tokens

        def peer(name: str, kind: str, model: Any, **options: Any) -> Peer:
            model.generation_config.eos_token_id = None  # no model stops early
            run = partial(model.generate, ids, **given, **options)
            # In bfloat16 one close decision may fall otherwise, and all that follows.
            return Peer(name, run, kind, run if self.dtype == torch.float32 else None, flops=0)

        return [
            peer("GPT2LMHeadModel, dynamic cache", "stock", theirs),
            peer("GPT2LMHeadModel, static cache", "other", theirs, **static),
            peer("zoo, dynamic cache", "other", ours),
            peer("zoo, static cache", OURS, ours, **static),
        ]

    def training_by_backend(self, name: str) -> list[Peer]:
        """A forward and backward pass on each back end that is installed and that the variant can run on."""
        scale, found = self.scale, list[Peer]()
        sizes = {"hidden_size": scale.width, "num_hidden_layers": scale.decoder_layers, "vocab_size": scale.vocabulary}
        sizes |= dict.fromkeys(("num_attention_heads", "num_key_value_heads"), scale.heads)
        settings: dict[str, Any] = {**sizes, "intermediate_size": 4 * scale.width, "seed": 0}
        settings |= {"attention_dropout": 0.0, "dropout": 0.0}
        ids = self.ids(scale.rows[1], scale.lengths[1])

        def step(model: Any) -> None:
            with torch.autocast(self.device.type, dtype=self.dtype):
                loss = model(input_ids=ids, labels=ids, skip_logits=True).loss
            loss.backward()
            model.zero_grad()

        for backend in BACKENDS:
            if backend == "flex_attention" and self.device.type == "cpu":
                continue  # which has no backward pass there
            try:
                model = zoo.build(name, attn_implementation=backend, **settings).to(self.device).train()
            except (ImportError, UnsupportedBackendError, ValueError):
                continue  # what is not installed, or cannot do what the variant needs, has no row
            found.append(Peer(backend, partial(step, model), OURS if found else "stock"))
        return found

    def generators(
        self, name: str, theirs: nn.Module, num_beams: int, engines: tuple[str, ...], **inputs: Tensor
    ) -> list[Peer]:
        """A native model, ours, and ours in those of these engines that are installed."""
        ours = zoo.convert(theirs)
        models = {name: self.ready(theirs), "zoo": self.ready(ours)}
        if self.device.type == "cpu":
            models |= in_engines(ours, *engines)
        peers = [self.generating(peer, model, num_beams, **inputs) for peer, model in models.items()]
        if self.quantises:
            quantised = zoo.to_int8(ours)
            peer = self.generating("zoo, int8", quantised, num_beams, **inputs)
            peers.append(replace(peer, flops=0, agreement=partial(agreement, ours, quantised, inputs["input_ids"])))
        return peers

    def generating(self, name: str, model: Any, num_beams: int, more: Any = None, **inputs: Tensor) -> Peer:
        """A peer that generates, with more options than the usual ones."""
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
        tokens = self.scale.new_tokens
        options = {"num_beams": num_beams, "do_sample": False, "max_new_tokens": tokens, **(more or {})}
        if isinstance(model, PreTrainedModel):
            model.generation_config.eos_token_id = None  # no model stops early
        elif "llama.cpp" not in name:  # which can be kept from ending by no option, and does not end here
            options["min_new_tokens"] = tokens
        run = torch.inference_mode()(lambda: model.generate(**inputs, **options))
        kind = {"zoo": OURS}.get(name, "other" if name.startswith("zoo") else "stock")
        assert "llama.cpp" not in name or run().shape[1] == inputs["input_ids"].shape[1] + tokens
        # Of weights in eight bits other tokens may come.
        is_exact = not name.endswith(("int8", "q8_0"))
        weights = tokens * bytes_a_token(model) if isinstance(model, nn.Module) and is_exact else 0
        if isinstance(model, ZooPreTrainedModel):
            mask = inputs["attention_mask"]
            model.prepare_for_generation(len(mask), padded=not bool(mask.all()), num_beams=num_beams)
            record_steps(run)
        return Peer(name, run, kind, run if is_exact else None, weights=weights)

    def without_fast_paths(self, peers: list[Peer]) -> list[Peer]:
        """Our own peer again, with everything switched off that makes it faster."""
        ours = next(peer for peer in peers if peer.kind == OURS)

        def plainly(run: Callable[[], Any]) -> Any:
            with fast_paths(unpadding="never", chunked_loss="never", quick_dropout="never"):
                return run()

        result = None if ours.result is None else partial(plainly, ours.result)
        return [Peer("zoo, fast paths off", partial(plainly, ours.run), "other", result)]


@torch.inference_mode()
def agreement(exact: Any, other: Any, input_ids: Tensor) -> float:
    """Share of the positions of a text, written by the exact model, where both models would write the same next."""
    text = exact.generate(input_ids, attention_mask=torch.ones_like(input_ids), do_sample=False, max_new_tokens=64)
    read = (
        {"input_ids": input_ids, "decoder_input_ids": text} if exact.config.is_encoder_decoder else {"input_ids": text}
    )
    return float((exact(**read).logits.argmax(-1) == other(**read).logits.argmax(-1)).float().mean())
