"""Checks of what sees what: padding, causality, recorded weights."""

from typing import Any

import torch
from torch import Tensor

from zoo.models import ZooPreTrainedModel
from zoo.models.parts import ATTENTIONS, POSITIONS, RESIDUALS

from .cases import assert_different, assert_equal, assert_finite, check
from .subjects import BATCH_SIZE, FIRST_ORDINARY_ID, SOURCE_LENGTH, TARGET_LENGTH, Subject, token_ids

PADDING = 3  # How many positions of padding are added


def padded(ids: Tensor, vocabulary: int, side: str) -> tuple[Tensor, Tensor]:
    """Add arbitrary tokens on one side; returns ids and mask, (batch_size, seq_len + PADDING)."""
    hidden = token_ids(len(ids), PADDING, vocabulary, seed=9)
    halves = [(hidden, torch.zeros_like(hidden)), (ids, torch.ones_like(ids))]
    (first, first_mask), (last, last_mask) = halves if side == "left" else halves[::-1]
    return torch.cat([first, last], dim=1), torch.cat([first_mask, last_mask], dim=1)


@check()
def check_padding_on_the_right_changes_nothing(subject: Subject) -> None:
    """Tokens at masked positions after the input are not seen by real ones, nor pooled."""
    inputs = subject.inputs()
    plain = subject.run(**inputs)
    ids, mask = padded(inputs["input_ids"], subject.config.vocab_size, "right")
    output = subject.run(**{**inputs, "input_ids": ids, "attention_mask": mask})
    real = output if output.shape == plain.shape else output[:, :TARGET_LENGTH]
    assert_equal(real, plain, "with padding on the right = without")


@check()
def check_padding_on_the_left_changes_nothing(subject: Subject) -> None:
    """The same in front of the input, where positions are given or only distances count."""
    inputs = subject.inputs()
    plain = subject.run(**inputs)
    if subject.stack == "encoder-decoder":
        ids, mask = padded(inputs["decoder_input_ids"], subject.target_vocabulary, "left")
        changed: dict[str, Any] = {"decoder_input_ids": ids, "decoder_attention_mask": mask}
        changed["decoder_position_ids"] = _positions(mask)
        output = subject.run(**{**inputs, **changed})
        assert_equal(output[:, PADDING:], plain, "with padding on the left of the target = without")
    ids, mask = padded(inputs["input_ids"], subject.config.vocab_size, "left")
    padding = {"input_ids": ids, "attention_mask": mask}
    if subject.stack != "encoder-decoder":
        output = subject.run(**padding, position_ids=_positions(mask))
        real = output if output.shape == plain.shape else output[:, PADDING:]
        assert_equal(real, plain, "with padding on the left and positions = without", 1e-9)
    part = POSITIONS.get(subject.config.position)
    if part.has_bias or part.uses_rope_parameters or not part.counts_padding:
        output = subject.run(**{**inputs, **padding})
        real = output if output.shape == plain.shape else output[:, PADDING:]
        # A distance is the difference of two rounded angles in rotary embeddings.
        rounding = 1e-5 * max(1.0, float(plain.abs().max()))
        assert_equal(real, plain, "with padding on the left = without", rounding)


def _positions(mask: Tensor) -> Tensor:
    return (mask.cumsum(-1) - 1).clamp(min=0)


def _with_another_last_token(ids: Tensor, vocabulary: int) -> Tensor:
    changed = ids.clone()
    changed[:, -1] = (ids[:, -1] - FIRST_ORDINARY_ID + 1) % (vocabulary - FIRST_ORDINARY_ID) + FIRST_ORDINARY_ID
    return changed


@check(
    stacks=("decoder", "encoder-decoder"),
    tasks=("causal-lm", "seq2seq-lm", "token-classification", "feature-extraction"),
)
def check_decoder_is_causal(subject: Subject) -> None:
    """A decoder's token changes what is computed at its own and later positions, and never before."""
    inputs = subject.inputs()
    name = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    before = subject.run(**inputs)
    after = subject.run(**{**inputs, name: _with_another_last_token(inputs[name], subject.target_vocabulary)})
    assert_equal(after[:, :-1], before[:, :-1], "earlier positions do not see a later token")
    for row in range(BATCH_SIZE):
        assert_different(after[row, -1], before[row, -1], "a position sees its own token")


@check(
    stacks=("encoder", "encoder-decoder"),
    tasks=("masked-lm", "seq2seq-lm", "token-classification", "feature-extraction"),
)
def check_encoder_sees_both_directions(subject: Subject) -> None:
    """The first position depends on the last (source) token, and the last on the first."""
    if subject.config.sliding_window is not None and subject.stack == "encoder":
        return
    inputs = subject.inputs()
    before = subject.run(**inputs)
    ids, vocabulary = inputs["input_ids"], subject.config.vocab_size
    after = subject.run(**{**inputs, "input_ids": _with_another_last_token(ids, vocabulary)})
    reversed_back = _with_another_last_token(ids.flip(1), vocabulary).flip(1)
    first_changed = subject.run(**{**inputs, "input_ids": reversed_back})
    for row in range(BATCH_SIZE):
        assert_different(after[row, 0], before[row, 0], "the first position sees the last token")
        assert_different(first_changed[row, -1], before[row, -1], "the last position sees the first token")


@check()
def check_fully_masked_rows_are_finite(subject: Subject) -> None:
    """A sequence of padding only gives finite numbers and gradients, and leaves the other sequences alone."""
    inputs = subject.inputs()
    plain = subject.run(**inputs)
    mask = torch.ones_like(inputs["input_ids"])
    mask[1] = 0
    for backend in subject.model.supported_backends()[:2]:
        if backend not in ("eager", "sdpa"):
            continue
        model = subject.rebuilt(attn_implementation=backend)
        outputs = model(**inputs, attention_mask=mask)
        output = outputs["logits" if "logits" in outputs else "last_hidden_state"]
        assert_finite(output, f"output with a fully masked row ({backend})")
        assert_equal(output[0], plain[0], f"rows next to a fully masked one ({backend})")
        output.square().mean().backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                assert_finite(parameter.grad, f"gradient of {name} with a fully masked row ({backend})")


@check()
def check_hidden_states_have_their_documented_shapes(subject: Subject) -> None:
    """output_hidden_states gives the embeddings and every layer's output, of both stacks; the last is the output."""
    with torch.no_grad():
        outputs = subject.model(**subject.inputs(), output_hidden_states=True)
        body = subject.body(**subject.inputs())
    if subject.stack != "encoder-decoder":
        depth = subject.config.num_hidden_layers
        _assert_states(outputs.hidden_states, depth, TARGET_LENGTH, subject, "hidden_states")
        assert_equal(outputs.hidden_states[-1], body.last_hidden_state, "the last hidden state = the body's output")
        return
    depths = subject.config.num_hidden_layers, subject.config.decoder_layers
    _assert_states(outputs.encoder_hidden_states, depths[0], SOURCE_LENGTH, subject, "encoder_hidden_states")
    _assert_states(outputs.decoder_hidden_states, depths[1], TARGET_LENGTH, subject, "decoder_hidden_states")
    last = outputs.encoder_last_hidden_state
    assert_equal(outputs.encoder_hidden_states[-1], last, "the last encoder hidden state = the encoder's output")
    last = body.last_hidden_state
    assert_equal(outputs.decoder_hidden_states[-1], last, "the last decoder hidden state = the decoder's output")


def _assert_states(states: Any, depth: int, length: int, subject: Subject, what: str) -> None:
    assert states is not None, f"the output has no {what}"
    assert len(states) == depth + 1, f"the output has {len(states)} {what}, documented are {depth + 1}"
    plain = torch.empty(BATCH_SIZE, length, subject.config.hidden_size)
    stream = RESIDUALS.get(subject.config.residual).build_stream(subject.config)
    between = list(stream.open(plain).shape)
    for step, state in enumerate(states):
        if stream.grows and step < depth:
            between[-2] = max(between[-2], state.shape[-2])
        shape = tuple(plain.shape if step == depth else between)
        assert tuple(state.shape) == shape, f"{what}[{step}] has shape {tuple(state.shape)}, documented is {shape}"
    for step in range(depth):
        if states[step].shape == states[step + 1].shape:
            assert_different(states[step], states[step + 1], f"layer {step} changes {what}")


@check()
def check_attention_weights_have_their_documented_shapes(subject: Subject) -> None:
    """output_attentions gives a distribution over the visible keys for every layer, of both stacks and between them.

    It does so on any backend, the default one included. Layers without attention are left out.
    """
    model = subject.rebuilt(attn_implementation="eager")
    ids, mask = padded(subject.inputs()["input_ids"], subject.config.vocab_size, "right")
    inputs = {**subject.inputs(), "input_ids": ids, "attention_mask": mask}
    with torch.no_grad():
        outputs = model(**inputs, output_attentions=True)
        by_default = subject.model(**inputs, output_attentions=True)
    for kind in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions"):
        for step, weight in enumerate(outputs.get(kind) or ()):
            found = by_default.get(kind) or ()
            assert len(found) > step, f"the default backend gives {len(found)} {kind}, eager more"
            assert_equal(found[step], weight, f"{kind}[{step}] from the default backend = from eager")
    config = subject.config
    keys = mask.bool()[:, None, None, :]
    if subject.stack != "encoder-decoder":
        causal = subject.stack == "decoder"
        attending = sum(kind != config.mixer_layer_type for kind in config.types_of_layers())
        _assert_weights(outputs.attentions, attending, _visible(keys, ids.shape[1], causal), model, PADDING)
        return
    seen = _visible(keys, ids.shape[1], False)
    _assert_weights(outputs.encoder_attentions, config.num_hidden_layers, seen, model, PADDING)
    own = torch.ones(BATCH_SIZE, 1, 1, TARGET_LENGTH, dtype=torch.bool)
    _assert_weights(outputs.decoder_attentions, config.decoder_layers, _visible(own, TARGET_LENGTH, True), model)
    _assert_weights(outputs.cross_attentions, config.decoder_layers, _visible(keys, TARGET_LENGTH, False), model)


def _visible(keys: Tensor, num_queries: int, causal: bool) -> Tensor:
    """Which key which query may see. *Shape:* (batch_size, 1, num_queries, num_keys)."""
    visible = keys.expand(-1, -1, num_queries, -1)
    return visible.tril() if causal else visible


def _assert_weights(weights: Any, depth: int, visible: Tensor, model: ZooPreTrainedModel, padding: int = 0) -> None:
    """Check the weights of all queries but the last `padding` ones, which may see no token within a window."""
    assert weights is not None, "the output has no attention weights"
    assert len(weights) == depth, f"the output has attention weights of {len(weights)} layers, the stack has {depth}"
    heads = model.config.num_attention_heads
    shape = (BATCH_SIZE, heads, *visible.shape[2:])
    for step, weight in enumerate(weights):
        assert tuple(weight.shape) == shape, f"weights of layer {step} have shape {tuple(weight.shape)}, not {shape}"
        if ATTENTIONS.get(model.config.attention).weights_sum_to_one:
            ones = torch.ones(shape[:-1], dtype=weight.dtype)
            assert_equal(weight.sum(-1), ones, "weights of a query sum to one", 1e-6)
        real = slice(shape[2] - padding)
        hidden = weight[:, :, real].masked_select(~visible[:, :, real])
        assert_equal(hidden, torch.zeros_like(hidden), "what is masked has no weight", 0.0) if hidden.numel() else None
