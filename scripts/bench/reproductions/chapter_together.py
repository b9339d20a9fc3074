"""The chapter's code and the zoo's, trained from the same weights with the same random numbers, step by step.

    python scripts/bench/reproductions/chapter_together.py --data PAIRS --package originals --chapter CLASSES.py

The arguments are those of chapter.py. Dropout is PyTorch's own in both. The recipe `d2l` differs from
the chapter in three things: the loss is a mean over tokens, the limit of the gradients' norm follows it, and the fused
AdamW replaces Adam.
"""

from __future__ import annotations

import torch
from chapter import parser_of, read_pairs
from original_chapter import BATCH_SIZE, NUM_STEPS, load_original, new_net

import zoo
from zoo.fast.switches import fast_paths
from zoo.training.recipe import load_recipe

LEARNING_RATE, MEAN_LIMIT = (load_recipe("d2l").arguments[name] for name in ("learning_rate", "max_grad_norm"))
LIMIT = 1.0


def main() -> None:
    arguments = parser_of(__doc__, epochs=20, threads=1).parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    pairs = read_pairs(arguments.data, arguments.rows)
    d2l, classes = load_original(arguments.package, arguments.chapter)
    d2l.__dict__["read_data_nmt"] = lambda: "\n".join("\t".join(pair) for pair in pairs)
    batches, source_vocab, target_vocab = d2l.load_data_nmt(BATCH_SIZE, NUM_STEPS, num_examples=None)
    theirs = new_net(d2l, classes, len(source_vocab), len(target_vocab)).train()
    begin, padding = target_vocab["<bos>"], target_vocab["<pad>"]
    ours = zoo.convert(
        theirs.state_dict(), "d2l", num_attention_heads=4, dropout=0.1, attention_dropout=0.1, pad_token_id=padding
    ).train()
    criterion, adam = d2l.MaskedSoftmaxCELoss(), torch.optim.Adam(theirs.parameters(), lr=LEARNING_RATE)
    fused = torch.optim.AdamW(ours.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    step = 0
    print("| epoch | the chapter's code | zoo | the losses of its first step differ by |\n|---:|---:|---:|---:|")
    for epoch in range(arguments.epochs):
        sums, tokens, first = [0.0, 0.0], 0, None
        for sources, source_lengths, targets, lengths in batches:
            number, step = int(lengths.sum()), step + 1
            inputs = torch.cat((torch.full((len(targets), 1), begin), targets[:, :-1]), dim=1)

            torch.manual_seed(step)
            loss = criterion(theirs(sources, inputs, source_lengths)[0], targets, lengths).sum()
            adam.zero_grad()
            loss.backward()
            d2l.grad_clipping(theirs, LIMIT)
            adam.step()

            mask = torch.arange(NUM_STEPS) < source_lengths[:, None]
            labels = targets.masked_fill(torch.arange(NUM_STEPS) >= lengths[:, None], -100)
            torch.manual_seed(step)
            with fast_paths(quick_dropout="never"):
                mean = ours(input_ids=sources, attention_mask=mask.long(), decoder_input_ids=inputs, labels=labels).loss
            fused.zero_grad()
            mean.backward()
            torch.nn.utils.clip_grad_norm_(ours.parameters(), MEAN_LIMIT)
            fused.step()

            per_token = loss.item() * NUM_STEPS / number
            first = abs(per_token - mean.item()) if first is None else first
            sums = [sums[0] + per_token * number, sums[1] + mean.item() * number]
            tokens += number
        print(f"| {epoch + 1} | {sums[0] / tokens:.4f} | {sums[1] / tokens:.4f} | {first:.0e} |", flush=True)


if __name__ == "__main__":
    main()
