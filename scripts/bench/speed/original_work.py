"""The zoo compared with the five documents of its variants, with the same weights and the same results.

A document's training step ends in `torch.optim.Adam` as it comes, the zoo's in the fused one that `zoo train` uses;
"with fused Adam" shows how much of the difference that is. Text is written as the document does it itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from limits import bytes_a_token
from measuring import OURS, Peer, record_steps
from originals.d2l import D2L
from originals.explicando import Explicando
from originals.nlpt import Nlpt
from originals.odom import Odom
from originals.vanilla import Vanilla
from shapes import USUAL_DROPOUT, Scale
from torch import Tensor, nn
from torch.nn import functional as F

import zoo

START = 1
"""The id that a translation begins with."""

HARMLESS = (
    "scores-scaled-by-model-width",
    "cross-attention-reuses-self",
    "feed-forward-reuses-cross-norm",
    "dropout-on-the-skip",
)
"""Defects of vanilla that its weights and its training need; the others change nothing for real tokens of batches with
masks."""


@dataclass(frozen=True)
class Sizes:
    """How large a document's model and batch are."""

    model: tuple[int, int, int, int]  # Width, heads, inner width and depth of a stack
    vocabulary: int  # Number of token ids
    rows: int  # Sequences of a batch
    length: int  # Positions of each


CHAPTER = Sizes((32, 4, 64, 2), 200, 64, 10)
"""As the chapter of d2l trains it."""
BERT_BASE = Sizes((768, 12, 3072, 12), 30_522, 4, 64)
"""As nlpt takes it from bert-base-uncased."""
ODOM = Sizes((512, 4, 2048, 4), 0, 16, 64)
"""odom's defaults."""
PRINTABLE = Sizes((512, 8, 2048, 6), 103, 8, 64)
"""explicando's defaults: the printable characters and three special ids."""
MODERATE = Sizes((512, 8, 2048, 3), 16_000, 24, 64)
"""For documents that say no sizes, or tiny ones."""
TINY = Sizes((16, 2, 32, 2), 50, 3, 6)


class OriginalWork:
    """Builds the peers of every workload; tiny ones only show that it runs."""

    def __init__(self, scale: Scale, device: torch.device, *, tiny: bool) -> None:
        self.steps = scale.new_tokens
        self.device = device
        self.tiny = tiny

    def workloads(self) -> Iterator[tuple[str, Callable[[], list[Peer]]]]:
        """Every workload's name, and what builds its peers."""
        # Results cannot be compared where elements are dropped.
        for dropout, words in ((0.0, ""), (USUAL_DROPOUT, f", dropout {USUAL_DROPOUT}")):
            yield f"vanilla, training step{words}", partial(self.vanilla, self.sized(MODERATE), dropout)
            yield f"d2l, training step, the chapter's sizes{words}", partial(self.d2l, self.sized(CHAPTER), dropout)
            yield f"d2l, training step, moderate sizes{words}", partial(self.d2l, self.sized(MODERATE), dropout)
            yield f"nlpt, training step{words}", partial(self.nlpt, self.sized(BERT_BASE), dropout)
            yield f"odom, training step{words}", partial(self.odom, self.sized(ODOM), dropout)
        yield "explicando, training step", partial(self.explicando, self.sized(PRINTABLE))
        for rows in (1, 8):
            yield f"vanilla, generation, batch {rows}", partial(self.vanilla_writes, self.sized(MODERATE), rows)
        yield "d2l, generation, the chapter's sizes", partial(self.d2l_writes, self.sized(CHAPTER), 1)
        yield "d2l, generation, moderate sizes", partial(self.d2l_writes, self.sized(MODERATE), 1)

    def sized(self, sizes: Sizes) -> Sizes:
        return TINY if self.tiny else sizes

    def ids(self, sizes: Sizes, seed: int, rows: int | None = None) -> Tensor:
        """Random ids above the special ones. *Shape:* (rows, length)."""
        generator = torch.Generator().manual_seed(seed)
        high = min(sizes.vocabulary, 100 if sizes.vocabulary == PRINTABLE.vocabulary else sizes.vocabulary)
        return torch.randint(3, high, (rows or sizes.rows, sizes.length), generator=generator).to(self.device)

    def lengths(self, sizes: Sizes, seed: int, rows: int | None = None) -> Tensor:
        """Lengths that leave about 45 % padding, the first one whole. *Shape:* (rows,)."""
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, sizes.length + 1, (rows or sizes.rows,), generator=generator)
        lengths[0] = sizes.length
        return lengths.to(self.device)

    def training(
        self,
        theirs: nn.Module,
        their_loss: Callable[[], Tensor],
        ours: Any,
        our_loss: Callable[[], Tensor],
        dropout: float = 0.0,
    ) -> list[Peer]:
        """Peers that do a training step."""

        def peer(name: str, kind: str, model: nn.Module, loss: Callable[[], Tensor], *, fused: bool) -> Peer:
            model.to(self.device).train()
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=fused or None)

            def step() -> None:
                loss().backward()
                optimizer.step()
                optimizer.zero_grad()

            return Peer(name, step, kind, None if dropout else loss)

        return [
            peer("the document's", "stock", theirs, their_loss, fused=False),
            peer("the document's, with fused Adam", "other", theirs, their_loss, fused=True),
            peer("zoo", OURS, ours, our_loss, fused=True),
        ]

    def padded_pairs(self, sizes: Sizes) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Lengths of sources, targets with 0 for padding, and the inputs of a training step of ours."""
        lengths, places = self.lengths(sizes, 2), torch.arange(sizes.length, device=self.device)
        source_mask, target_mask = (places < each[:, None] for each in (lengths, self.lengths(sizes, 3)))
        target = self.ids(sizes, 1) * target_mask
        shifted = target.roll(1, dims=1)
        shifted[:, 0] = START
        inputs = {"input_ids": self.ids(sizes, 0) * source_mask, "attention_mask": source_mask.long()}
        # Positions after a sequence's last token are neither learnt nor read.
        inputs |= {"decoder_input_ids": shifted * target_mask, "decoder_attention_mask": target_mask.long()}
        return lengths, target, {**inputs, "labels": target.masked_fill(~target_mask, -100), "skip_logits": True}

    def vanilla(self, sizes: Sizes, dropout: float) -> list[Peer]:
        theirs = Vanilla(sizes.vocabulary, sizes.model, sizes.length + 1, dropout).to(self.device)
        ours = zoo.convert(theirs, quirks=HARMLESS, decoder_start_token_id=START)
        _, target, inputs = self.padded_pairs(sizes)

        def their_loss() -> Tensor:
            logits = theirs(inputs["input_ids"], inputs["decoder_input_ids"])
            return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)

        return self.training(theirs, their_loss, ours, lambda: ours(**inputs).loss, dropout)

    def d2l(self, sizes: Sizes, dropout: float) -> list[Peer]:
        theirs = D2L(sizes.vocabulary, sizes.model, dropout).to(self.device)
        ours = zoo.convert(theirs, quirks=(), decoder_start_token_id=START, pad_token_id=0)
        lengths, target, inputs = self.padded_pairs(sizes)
        mask = inputs["decoder_attention_mask"]

        def their_loss() -> Tensor:
            logits = theirs(inputs["input_ids"], inputs["decoder_input_ids"], lengths)
            losses = F.cross_entropy(logits.permute(0, 2, 1), target, reduction="none")
            return (losses * mask).sum() / mask.sum()

        return self.training(theirs, their_loss, ours, lambda: ours(**inputs).loss, dropout)

    def nlpt(self, sizes: Sizes, dropout: float) -> list[Peer]:
        """A step of the classifier; the document knows no padding."""
        theirs = Nlpt(sizes.vocabulary, sizes.model, 512, dropout).to(self.device)
        ours = zoo.convert(theirs, num_attention_heads=sizes.model[1])
        ids, labels = self.ids(sizes, 0), torch.arange(sizes.rows, device=self.device) % 3
        return self.training(
            theirs,
            lambda: F.cross_entropy(theirs(ids), labels),
            ours,
            lambda: ours(input_ids=ids, labels=labels).loss,
            dropout,
        )

    def odom(self, sizes: Sizes, dropout: float) -> list[Peer]:
        """A step from features to features."""
        theirs = Odom(sizes.model, dropout).to(self.device)
        ours = zoo.convert(theirs)
        generator = torch.Generator().manual_seed(0)
        shape = (sizes.rows, sizes.length, sizes.model[0])
        source, target, wanted = (torch.randn(shape, generator=generator).to(self.device) for _ in range(3))

        def our_loss() -> Tensor:
            # The document changes its inputs in place, and so does its likeness.
            output = ours(inputs_embeds=source.clone(), decoder_inputs_embeds=target.clone())
            return F.mse_loss(output.logits, wanted)

        return self.training(theirs, lambda: F.mse_loss(theirs(source, target), wanted), ours, our_loss, dropout)

    def explicando(self, sizes: Sizes) -> list[Peer]:
        """A step from characters to as many characters."""
        theirs = Explicando(sizes.vocabulary, sizes.vocabulary - 3, sizes.model).to(self.device)
        heads = sizes.model[1]
        ours = zoo.convert(
            theirs,
            num_attention_heads=heads,
            decoder_attention_heads=heads,
            input_characters=None,
            output_characters=None,
        )
        ids, labels = self.ids(sizes, 0), self.ids(sizes, 1) - 3
        return self.training(
            theirs,
            lambda: F.cross_entropy(theirs(ids).flatten(0, 1), labels.flatten()),
            ours,
            lambda: ours(input_ids=ids, labels=labels, skip_logits=True).loss,
        )

    def vanilla_writes(self, sizes: Sizes, rows: int) -> list[Peer]:
        """Greedy translations."""
        theirs = Vanilla(sizes.vocabulary, sizes.model, max(self.steps, sizes.length) + 2).to(self.device).eval()
        with torch.no_grad():
            theirs.decoder.fc.bias[0] = -1e4  # the document takes padding that it wrote itself for padding
        ours = zoo.convert(theirs, quirks=HARMLESS, decoder_start_token_id=START).to(self.device)
        source = self.ids(sizes, 0, rows)
        return self.generating(partial(theirs.generate, source, START, self.steps), ours, source)

    def d2l_writes(self, sizes: Sizes, rows: int) -> list[Peer]:
        """Greedy translations, every token at position zero."""
        theirs = D2L(sizes.vocabulary, sizes.model).to(self.device).eval()
        quirks = ("every-step-is-position-zero",)
        ours = zoo.convert(theirs, quirks=quirks, decoder_start_token_id=START, pad_token_id=0).to(self.device)
        source = self.ids(sizes, 0, rows)
        lengths = torch.full((rows,), sizes.length, device=self.device)
        return self.generating(partial(theirs.generate, source, lengths, START, self.steps), ours, source)

    def generating(self, theirs: Callable[[], Tensor], ours: Any, source: Tensor) -> list[Peer]:
        """Peers that write; no token ends a text, so that all write as many."""
        mask = torch.ones_like(source)
        options: dict[str, Any] = {"max_new_tokens": self.steps, "num_beams": 1, "do_sample": False}
        options |= {"eos_token_id": None, "pad_token_id": 0}
        writes = partial(ours.generate, source, attention_mask=mask, **options)
        without_gradients = torch.no_grad()(theirs)
        record_steps(writes)
        return [
            Peer("the document's", without_gradients, "stock", without_gradients),
            Peer("zoo", writes, OURS, writes, weights=self.steps * bytes_a_token(ours)),
        ]
