"""`torch.export` of every family, for any batch and any length."""

import torch
from torch import Tensor
from torch.export import Dim
from transformers_citizen.support import ASSORTED, ONE_OF_EACH, over, tiny


def inputs_of(subject, batch_size: int, length: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(batch_size * length)
    sizes = {"input_ids": length} | ({"decoder_input_ids": length - 1} if subject.stack == "encoder-decoder" else {})
    inputs = {
        name: torch.randint(3, subject.config.vocab_size, (batch_size, size), generator=generator)
        for name, size in sizes.items()
    }
    mask = torch.ones_like(inputs["input_ids"])
    mask[0, -2:] = 0
    return {**inputs, "attention_mask": mask}


@over(ASSORTED, ONE_OF_EACH[:1])
def test_one_exported_program_serves_every_batch_and_length(pair):
    subject = tiny(pair)
    batch, length, target = Dim("batch", min=2, max=64), Dim("length", min=4, max=60), Dim("target", min=3, max=60)
    model = subject.rebuilt(use_cache=False)
    example = inputs_of(subject, 3, 8)
    shapes = {name: {0: batch, 1: target if name.startswith("decoder") else length} for name in example}
    program = torch.export.export(model, (), example, dynamic_shapes=shapes, strict=False)
    run = program.module()
    for batch_size, new_length in ((3, 8), (2, 5), (7, 19)):
        inputs = inputs_of(subject, batch_size, new_length)
        logits = run(**inputs).logits
        torch.testing.assert_close(logits, subject.run(**inputs))
