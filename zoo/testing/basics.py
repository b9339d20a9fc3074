"""Checks of what every model does: run, save, load, count, repeat."""

import tempfile
import warnings
from pathlib import Path

import torch
import transformers
from accelerate import cpu_offload
from accelerate.hooks import attach_execution_device_hook
from torch import Tensor

from zoo.base.errors import InputError, UnsupportedOperationError
from zoo.base.manifest import MANIFEST_FILE
from zoo.building.builder import build, count_parameters
from zoo.fast.preallocated_cache import CACHE_NAME
from zoo.models import ATTENTIONS, TASK_CLASSES
from zoo.models.parts import PART_FIELDS, POSITIONS

from .cases import assert_different, assert_equal, assert_finite, assert_same_weights, check
from .subjects import BATCH_SIZE, NUM_LABELS, TARGET_LENGTH, Subject, token_ids


@check()
def check_plain_forms_of_plugins_compute_the_same(subject: Subject) -> None:
    """A model with a plugin's part that names a plain form is ejected, and the file computes what the model does."""
    parts = {field: (registry, getattr(subject.config, field)) for field, registry in PART_FIELDS.items()}
    foreign = [registry.get(name) for registry, name in parts.values() if not registry.origin(name).built_in]
    if foreign and all(hasattr(part, "plain") for part in foreign):
        from zoo.analysis.eject import eject

        try:
            eject(subject.copy())
        except UnsupportedOperationError as error:
            raise AssertionError(str(error)) from error


MASK = torch.tensor(
    [
        [1, 1, 1, 1, 0, 0, 1, 1, 0, 1, 0],
        [0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1],
        [1, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    ],
    device="cpu",
)
"""Padding before, after and between the tokens of a row."""

TURNS = ((11,), (6, 5), (3, 1, 5, 1, 1))  # How many positions are read at once

POSITIONS_OF_DOCUMENTS = torch.tensor(
    [[0, 1, 2, 3, 0, 0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0, 1, 0, 1, 2, 0, 0, 1, 2, 0, 1]],
    device="cpu",
)
"""Positions of documents that are packed into rows."""


@check(stacks=("decoder",), once_per_stack=True)
def check_gaps_in_a_mask_change_nothing(subject: Subject) -> None:
    """Real tokens give what they give without the padding between them, read at once and in turns on a cache."""
    config = subject.config
    if config.sliding_window is not None or POSITIONS.get(config.position).has_bias:
        return  # both count places, padding included
    mask = MASK.to(subject.model.device)
    ids = token_ids(len(mask), mask.shape[1], config.vocab_size, seed=0)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    alone = [hidden(subject, input_ids=row[real][None])[0] for row, real in zip(ids, mask.bool(), strict=True)]
    for uses_cache, turns in ((False, TURNS[0]), *((True, turns) for turns in TURNS)):
        read, cache, seen = [], None, 0
        for piece, positions in zip(ids.split(turns, dim=1), places.split(turns, dim=1), strict=True):
            seen += piece.shape[1]
            given = {"attention_mask": mask[:, :seen], "position_ids": positions, "past_key_values": cache}
            with torch.no_grad():
                outputs = subject.body(input_ids=piece, use_cache=uses_cache, **given)
            cache = getattr(outputs, CACHE_NAME)
            read.append(outputs.last_hidden_state)
        for row, (states, real) in enumerate(zip(torch.cat(read, dim=1), mask.bool(), strict=True)):
            what = f"row {row} with gaps, read in turns of {turns}{', cached' if uses_cache else ''} = without gaps"
            assert_equal(states[real], alone[row], what, rounding(alone[row]))


@check(stacks=("decoder",), once_per_stack=True)
def check_packed_documents_equal_separate_ones(subject: Subject) -> None:
    """Documents separated by position ids give what each gives alone, in training and by default."""
    places = POSITIONS_OF_DOCUMENTS.to(subject.model.device)
    ids = token_ids(len(places), places.shape[1], subject.config.vocab_size, seed=0)
    for use_cache in (False, None):
        packed = hidden(subject, input_ids=ids, position_ids=places, use_cache=use_cache)
        for row, positions in enumerate(places):
            lengths = (positions == 0).nonzero()[:, 0].tolist()
            lengths = [end - start for start, end in zip(lengths, [*lengths[1:], len(positions)], strict=True)]
            documents = zip(ids[row].split(lengths), packed[row].split(lengths), strict=True)
            for number, (document, states) in enumerate(documents):
                alone = hidden(subject, input_ids=document[None])[0]
                what = f"document {number} of row {row}, packed with use_cache={use_cache} = alone"
                assert_equal(states, alone, what, rounding(alone))


def hidden(subject: Subject, **inputs: Tensor | bool | None) -> Tensor:
    """The last hidden state. *Shape:* (batch_size, seq_len, hidden_size)."""
    with torch.no_grad():
        states: Tensor = subject.body(**inputs).last_hidden_state
    return states


def rounding(states: Tensor) -> float:
    """How far rounded angles of rotary positions and sums in another order may take states."""
    return 1e-9 * max(1.0, float(states.abs().max()))


LABELLED = tuple(task for task in TASK_CLASSES if task != "feature-extraction")


@check()
def check_output_has_its_documented_shape(subject: Subject) -> None:
    """Logits or hidden states are finite and have the documented shape, also where tuples are asked for."""
    config = subject.config
    language_model = (BATCH_SIZE, TARGET_LENGTH, subject.target_vocabulary)
    expected = {
        "feature-extraction": (BATCH_SIZE, TARGET_LENGTH, config.hidden_size),
        "sequence-classification": (BATCH_SIZE, NUM_LABELS),
        "token-classification": (BATCH_SIZE, TARGET_LENGTH, NUM_LABELS),
    }.get(subject.task, language_model)
    output = subject.run()
    assert tuple(output.shape) == expected, f"the output has shape {tuple(output.shape)}, documented is {expected}"
    assert_finite(output, "the output")
    with torch.no_grad():
        outputs = subject.model(**subject.inputs(), return_dict=False)
    assert isinstance(outputs, tuple), f"return_dict=False gave a {type(outputs).__name__}"
    assert_equal(outputs[0], output, "the first of the tuple is the output", 0.0)


@check(tasks=LABELLED)
def check_loss_is_cross_entropy(subject: Subject) -> None:
    """The loss is the mean cross-entropy of the labels that are not -100, shifted where the next token is predicted."""
    labels = subject.labels()
    assert labels is not None
    with torch.no_grad():
        outputs = subject.model(**subject.inputs(), labels=labels)
    logits = outputs.logits
    if subject.task == "causal-lm" or (subject.task == "masked-lm" and subject.config.masked_next_token):
        logits, labels = logits[:, :-1], labels[:, 1:]
    log_probabilities = logits.log_softmax(-1).reshape(-1, logits.shape[-1])
    rows = zip(log_probabilities, labels.flatten().tolist(), strict=True)
    chosen = [row[label] for row, label in rows if label != -100]
    assert_equal(outputs.loss, -torch.stack(chosen).mean(), "loss = mean cross-entropy", 1e-6)


@check(tasks=("seq2seq-lm",))
def check_labels_become_decoder_inputs(subject: Subject) -> None:
    """Without decoder inputs, labels shifted right after the start token are decoded."""
    labels = subject.labels()
    assert labels is not None
    inputs = subject.inputs()
    config = subject.config
    assert config.decoder_start_token_id is not None, "decoder_start_token_id is None"
    assert config.pad_token_id is not None, "pad_token_id is None"
    start = torch.full((BATCH_SIZE, 1), config.decoder_start_token_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    shifted[shifted == -100] = config.pad_token_id
    given = subject.run(input_ids=inputs["input_ids"], decoder_input_ids=shifted)
    made = subject.run(input_ids=inputs["input_ids"], labels=labels)
    assert_equal(made, given, "decoder inputs made from labels = labels shifted right")


@check()
def check_every_parameter_gets_a_finite_gradient(subject: Subject) -> None:
    """The loss depends on every parameter, except where mathematics cancels it."""
    model = subject.copy()
    subject.loss(model).backward()
    if any(parameter.grad is None for parameter in model.parameters()):
        subject.loss(model.train()).backward()  # which some parameters are for
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} gets no gradient: nothing reads it"
        assert_finite(parameter.grad, f"the gradient of {name}")
        # A constant added to all keys adds one number to all scores of a query, which the softmax takes away again.
        if not name.endswith("k_proj.bias"):
            assert parameter.grad.abs().max() > 0, f"the gradient of {name} is zero everywhere"


@check()
def check_saves_and_reloads_bit_equal(subject: Subject) -> None:
    """save_pretrained writes safetensors only, and the Auto class loads every bit of every weight, and none besides."""
    auto_class = getattr(transformers, TASK_CLASSES[subject.task][0])
    with tempfile.TemporaryDirectory() as folder:
        subject.model.save_pretrained(folder)
        files = {path.name for path in Path(folder).iterdir()}
        reloaded, info = auto_class.from_pretrained(folder, output_loading_info=True, dtype="auto")
    expected = {MANIFEST_FILE, "config.json", "generation_config.json", "model.safetensors"}
    assert files <= expected, f"saving wrote {sorted(files)}"
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not info.get(kind), f"loading reports {kind}: {sorted(map(str, info[kind]))}"
    assert type(reloaded) is type(subject.model), f"{type(reloaded).__name__} was loaded"
    assert reloaded.config.to_diff_dict().keys() == subject.config.to_diff_dict().keys(), "the configuration changed"
    assert_same_weights(reloaded, subject.model, "reloaded model = saved model")
    assert_equal(subject.run(reloaded), subject.run(), "reloaded model = saved model")
    assert _sharing(reloaded) == _sharing(subject.model), "other parameters are tied after loading"


@check(once_per_stack=True)
def check_offloaded_weights_compute_the_same(subject: Subject) -> None:
    """Weights that are brought to the device when a module is called, and only then, give the same output."""
    model = cpu_offload(subject.copy(), execution_device=subject.model.device)
    # As device_map does: modules without parameters have hooks, too.
    attach_execution_device_hook(model, subject.model.device)
    try:
        output = subject.run(model)
    except RuntimeError as error:
        message = "offloaded weights cannot be used; only a module's own forward may read its parameters"
        raise AssertionError(f"{message}: {error}") from error
    assert_equal(output, subject.run(), "offloaded model = model in memory")


def _sharing(model: torch.nn.Module) -> set[frozenset[str]]:
    """Sets of names of one parameter."""
    names: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    return {frozenset(group) for group in names.values()}


@check(tasks=LABELLED)
def check_body_and_head_load_from_each_other(subject: Subject) -> None:
    """The body loads from a head's checkpoint, and the head from a body's, missing only itself."""
    auto_class = getattr(transformers, TASK_CLASSES[subject.task][0])
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        subject.model.save_pretrained(folder)
        body, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True, dtype="auto")
        assert not info["missing_keys"], f"the head's checkpoint lacks {sorted(info['missing_keys'])} of the body"
        body.save_pretrained(folder)
        head, info = auto_class.from_pretrained(folder, output_loading_info=True, dtype="auto")
    assert not info["unexpected_keys"], f"the head has no place for {sorted(info['unexpected_keys'])} of the body"
    missing = {name for name in info["missing_keys"] if name.startswith("model.")}
    assert not missing, f"the body's checkpoint lacks {sorted(missing)} of the head's body"
    with torch.no_grad():
        expected = subject.body(**subject.inputs()).last_hidden_state
        for what, loaded in (("body loaded = body saved", body), ("body in head = body saved", head.model)):
            assert_same_weights(loaded, subject.body, what)
            assert_equal(loaded(**subject.inputs()).last_hidden_state, expected, what)


@check()
def check_seed_makes_weights_reproducible(subject: Subject) -> None:
    """One seed gives the same weights twice, another gives others, and the caller's random numbers are left alone."""
    state = torch.get_rng_state()
    one, two, other = (build(subject.name, subject.task, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state), "building with a seed changed the global random numbers"
    differing = [name for name in one if not torch.equal(one[name], two[name])]
    assert not differing, f"seed=1 gave different weights twice: {differing}"
    assert any(not torch.equal(one[name], other[name]) for name in one), "seed=1 and seed=2 gave the same weights"
    for name, weight in one.items():
        assert_finite(weight, f"{name} of a new model")


@check()
def check_parameters_are_counted_without_building(subject: Subject) -> None:
    """count_parameters, which allocates nothing, equals the number of parameters of the real model."""
    real = sum(parameter.numel() for parameter in subject.model.parameters())
    counted = count_parameters(subject.name, subject.task)
    assert counted == real, f"counted {counted} parameters, the model has {real}"


@check()
def check_inputs_embeds_equal_input_ids(subject: Subject) -> None:
    """Giving the looked-up embeddings is the same as giving ids, or is refused where layers look up ids themselves."""
    inputs = subject.inputs()
    with torch.no_grad():
        embedded = {"inputs_embeds": subject.model.get_input_embeddings()(inputs["input_ids"])}
        if subject.stack == "encoder-decoder":
            embedded["decoder_inputs_embeds"] = subject.body.decoder.embed_tokens(inputs["decoder_input_ids"])
    if ATTENTIONS.get(subject.config.attention).reads_token_ids:
        try:
            subject.run(**embedded)
        except InputError:
            return
        raise AssertionError("inputs_embeds are taken although layers look up token ids, which they do not have")
    assert_equal(subject.run(**embedded), subject.run(**inputs), "inputs_embeds = input_ids")


@check()
def check_rows_do_not_depend_on_the_batch(subject: Subject) -> None:
    """A sequence gives the same alone as in a batch."""
    inputs = subject.inputs()
    together = subject.run(**inputs)
    for row in range(BATCH_SIZE):
        alone = subject.run(**{name: tensor[row : row + 1] for name, tensor in inputs.items()})
        assert_equal(alone[0], together[row], f"row {row} alone = row {row} in a batch")


@check(once_per_stack=True)
def check_token_order_matters(subject: Subject) -> None:
    """Swapping two tokens changes what a third one, which sees both, is turned into."""
    if subject.config.position == "none" and subject.stack == "encoder":
        return
    inputs = subject.inputs()
    hidden = subject.run(**inputs)
    for name, ids in inputs.items():
        swapped = ids.clone()
        swapped[:, [1, 2]] = ids[:, [2, 1]]
        after = subject.run(**{**inputs, name: swapped})
        last = (slice(None),) if hidden.ndim == 2 else (slice(None), -1)
        assert_different(after[last], hidden[last], f"swapping two tokens of {name} matters")


@check(tasks=("causal-lm", "masked-lm"))
def check_vocabulary_can_grow(subject: Subject) -> None:
    """resize_token_embeddings keeps the old ids' scores and adds new ids; what was tied stays tied."""
    model = subject.copy()
    size = subject.config.vocab_size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.resize_token_embeddings(size + 3)
    resized = subject.run(model, **subject.inputs())
    assert resized.shape[-1] == size + 3, f"the output has {resized.shape[-1]} logits for {size + 3} ids"
    assert_equal(resized[..., :size], subject.run(), "scores of the old ids after resizing")
    assert _sharing(model) == _sharing(subject.model), "other parameters are tied after resizing"
    assert_finite(subject.run(model, input_ids=torch.full((1, 3), size + 2)), "scores after a new id")
