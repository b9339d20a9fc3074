"""Every mistake that one call can make gets one clear error of the project's own."""

import re
from typing import Any

import pytest
import torch

import zoo
from zoo.base import errors
from zoo.fast import fast_paths
from zoo.models import ZooConfig
from zoo.models.fields import Fields
from zoo.models.validation import TYPES

SMALL: dict[str, Any] = {"vocab_size": 20, "max_position_embeddings": 8}


def build(name: str = "pre-norm@tiny", task: str | None = None, **settings: Any) -> Any:
    return zoo.build(name, task, **{**SMALL, **settings})


CONV, HYPER, MANIFOLD = "mixer=short-conv", "residual=hyper-connections", "residual=manifold-hyper-connections"
MUP, TABLES = "parametrization=mup", "attention=value-embeddings"
WRONG: dict[type[errors.ZooError], list[tuple[str, dict[str, Any], str]]] = {
    errors.UnknownVariantError: [
        ("vanila", {}, "did you mean 'vanilla'?"),
        ("llama", {}, "did you mean 'llama-style'?"),
    ],
    errors.UnknownTaskError: [("vanilla seq2seq", {}, "did you mean 'seq2seq-lm'?")],
    errors.UnsupportedTaskError: [
        ("bert-style causal-lm", {}, "'bert-style' does not support task 'causal-lm'; valid: mask"),
        ("llama-style seq2seq-lm", {}, "valid: causal-lm, sequence-classification"),
        ("vanilla token-classification", {}, "did you mean 'sequence-classification'?"),
    ],
    errors.UnknownQuirkError: [
        ("vanilla", {"quirks": ["cross-attention-reuses-itself"]}, "mean 'cross-attention-reuses-self'?"),
        ("pre-norm+faithfull", {}, "quirk 'faithfull' of variant 'pre-norm'; valid: none"),
    ],
    errors.UnknownPresetError: [
        ("pre-norm@tinny", {}, "of variant 'pre-norm'; valid: tiny, small, base; did you mean 'tiny'?")
    ],
    errors.UnknownOverrideError: [
        ("pre-norm", {"hiden_size": 64}, "did you mean 'hidden_size'?"),
        ("pre-norm:n_heads=4", {}, "unknown setting 'n_heads' of variant 'pre-norm'"),
        ("pre-norm", {"variant": "post-norm"}, "unknown setting 'variant' of variant 'pre-norm'"),
        ("vanilla:quirks=[a]", {}, "unknown setting 'quirks' of variant 'vanilla'"),
        ("pre-norm", {"providers": {"norm": "a"}}, "unknown setting 'providers' of variant 'pre-norm'"),
        ("pre-norm", {"num_streams": 2}, "num_streams"),
    ],
    errors.NameSyntaxError: [("pre-norm@", {}, "valid: NAME[@PRESET]")],
    errors.UnsupportedBackendError: [
        ("pre-norm:attention=sinks", {"attn_implementation": "flex_attention"}, "valid: sdpa, eager"),
        ("vanilla+masked-rows-are-uniform", {"attn_implementation": "sdpa"}, "valid: eager"),
    ],
    errors.UnknownNameError: [
        ("pre-norm", {"position": "rotery"}, "unknown position 'rotery'; valid: alibi"),
        ("pre-norm", {"position": "rotery"}, "did you mean 'rotary'?"),
        ("pre-norm", {"norm": "rms-norm"}, "did you mean 'rmsnorm'?"),
        ("pre-norm", {"feed_forward": "gatd"}, "did you mean 'gated'?"),
        ("pre-norm", {"attention": "multihead"}, "did you mean 'multi-head'?"),
        ("pre-norm", {"initializer": "xavier"}, "did you mean 'xavier-uniform'?"),
        ("pre-norm", {"mixer": "short-con"}, "did you mean 'short-conv'?"),
        ("pre-norm", {"residual": "hyper-conections"}, "did you mean 'hyper-connections'?"),
    ],
    errors.InvalidChoiceError: [
        ("pre-norm", {"norm_placement": "respost"}, "did you mean 'res-post'?"),
        ("pre-norm", {"norm_placement": "before"}, "valid: post, pre, sandwich, res-post, deepnorm, none"),
        ("pre-norm", {"classifier_pooling": "avg"}, "unknown classifier_pooling 'avg'; valid: cls, mean"),
        ("pre-norm", {"qk_norm": "heads"}, "did you mean 'head'?"),
        ("pre-norm", {"residual_scaling": "re-zero"}, "did you mean 'rezero'?"),
        ("pre-norm", {"attention_scale": "headdim"}, "did you mean 'head-dim'?"),
        ("pre-norm", {"hidden_act": "swich"}, "did you mean 'swish'?"),
        ("pre-norm", {"classifier_pooler_act": "than"}, "did you mean 'tanh'?"),
        ("pre-norm", {"layer_types": ["sliding"]}, "did you mean 'sliding_attention'?"),
        ("llama-style", {"rope_parameters": {"rope_type": "yarm"}}, "did you mean 'yarn'?"),
        ("gpt2-style", {"parametrization": "mupp"}, "did you mean 'mup'?"),
        ("pre-norm", {"sizes": "grow"}, "follow, fixed"),
    ],
    errors.ConfigError: [
        *(
            ("vanilla", {"quirks": quirks}, "must be names of quirks")
            for quirks in (3, None, ["torch-initialization", 3])
        ),
        ("pre-norm", {"layer_types": ["sliding_attention"]}, "sliding_window is None"),
        ("pre-norm", {"layer_types": ["full_attention"] * 9}, "9 entries for num_hidden_layers=6"),
        ("pre-norm", {"sliding_window": 0}, "must be at least 1"),
        ("pre-norm", {"num_attention_heads": 7}, "nearest number that does is 8"),
        ("pre-norm", {"num_attention_heads": 0}, "at least 1 and at most 10,000"),
        ("pre-norm", {"num_key_value_heads": 3}, "num_key_value_heads=3 does not divide num_attention_heads=8"),
        ("vanilla", {"decoder_attention_heads": 3}, "decoder_attention_heads=3 does not divide"),
        ("pre-norm", {"dropout": 1.5}, "dropout=1.5 was given; it must be at least 0 and at most 1"),
        ("pre-norm", {"attention_scale": -1.0}, "must be positive"),
        ("pre-norm", {"vocab_size": 0}, "vocab_size=0 was given; it must be at least 1"),
        ("pre-norm", {"seed": 2**64}, f"seed={2**64} is not valid; valid: {-(2**63)} to"),
        ("pre-norm", {"num_hidden_layers": 0}, "num_hidden_layers=0"),
        ("pre-norm", {"num_hidden_layers": -1}, "num_hidden_layers=-1 was given; it must be at least 1"),
        ("pre-norm", {"num_key_value_heads": 0}, "num_key_value_heads=0 was given; it must be at"),
        ("pre-norm", {"head_dim": 0}, "head_dim=0 was given; it must be at least 1"),
        ("pre-norm", {"hidden_size": 10**9 + 1}, "at least 1 and at most 1,048,576"),
        ("pre-norm", {"hidden_size": 2**20, "num_attention_heads": 9999}, "that does is 8192"),
        ("pre-norm", {"layer_norm_eps": float("nan")}, "layer_norm_eps=nan was given; it must be a fin"),
        ("pre-norm", {"attention_scale": float("nan")}, "must be positive and finite"),
        ("pre-norm", {"logit_scale": float("inf")}, "must be a finite number"),
        ("pre-norm", {"attn_logit_softcapping": 10**30}, "must be positive and finite"),
        ("pre-norm", {"layer_types": 3}, "it must be a list of full_attention, sliding_attention"),
        ("pre-norm", {"num_labels": 10**12}, "num_labels=1000000000000 was given; it must be at least 1"),
        ("pre-norm", {"num_labels": 3, "id2label": {0: "a", 1: "b"}}, "num_labels=3 was given with id2label of 2"),
        ("pre-norm", {"architectures": "ZooModel"}, "architectures='ZooModel' was given; it must be list or tuple"),
        ("t5-style", {"vocab_size": 20, "decoder_vocab_size": 31}, "vocab_size=20 and decoder_vocab_size=31"),
        ("explicando", {"vocab_size": 20, "decoder_vocab_size": 31}, "vocab_size=20 and decoder_vocab_size=31"),
        ("t5-style", {"vocab_size": 20, "decoder_vocab_size": 5, "tie_word_embeddings": True}, "decoder_vocab_size=5"),
        ("t5-style", {"relative_attention_num_buckets": 3}, "at least 4 buckets"),
        ("t5-style", {"relative_attention_max_distance": 8}, "the distance must be more than 8"),
        ("llama-style", {"rope_parameters": {"rope_type": "yarn"}}, "KeyError: 'factor'"),
        ("llama-style", {"rope_parameters": {"rope_theta": -1.0}}, "rope_theta=-1.0; it must be posit"),
        ("llama-style", {"rope_parameters": {"partial_rotary_factor": 0.01}}, "turn 0 of head_dim=64 channels"),
        ("llama-style", {"rope_parameters": {"partial_rotary_factor": 1.5}}, "turn 96 of head_dim=64 channels"),
        ("llama-style", {"head_dim": 1}, "turn 2 of head_dim=1 channels; give an even head_dim"),
        # Types
        ("pre-norm", {"hidden_size": "64"}, "hidden_size"),
        ("pre-norm", {"attention_bias": "no"}, "attention_bias"),
        ("pre-norm", {"dropout": "a"}, "dropout"),
        ("pre-norm", {"num_hidden_layers": 2.5}, "num_hidden_layers=2.5 was given; it must be int"),
        ("pre-norm", {"num_hidden_layers": True}, "must be int"),
        ("pre-norm", {"head_dim": 4.0}, "must be int or None"),
        ("pre-norm", {"attention_scale": None}, "must be str or int or float"),
        ("pre-norm:feed_forward=moe", {"num_experts": True}, "num_experts=True was given; it must be int"),
        ("pre-norm", {"num_nextn_predict_layers": True}, "must be int"),
        (f"pre-norm:{HYPER}", {"num_streams": 2.5}, "num_streams=2.5 was given; it must be int"),
        (f"pre-norm:{TABLES}", {"value_embedding_interval": 1.5}, "must be int"),
        # Attention parts
        ("post-norm:attention=latent seq2seq-lm", {}, "cross attention"),
        ("llama-style:attention=latent", {"qk_norm": "head"}, "qk_norm"),
        ("llama-style:attention=latent", {"v_head_dim": 0}, "widths must be at least 1"),
        ("llama-style:attention=latent", {"latent_norm_eps": 0.0}, "0.0 was given; it must be positive, or None"),
        ("pre-norm:attention=differential causal-lm", {"num_key_value_heads": 1}, "heads must be pairs"),
        ("pre-norm:attention=differential causal-lm", {"attention_dropout": 0.1}, "heads must be pairs"),
        (
            "pre-norm:attention=exclusive causal-lm",
            {"norm": "unit", "norm_placement": "sandwich"},
            "attention='exclusive' was given with norm='unit', norm_placement='sandwich'",
        ),
        (f"pre-norm:{TABLES}", {"value_embedding_interval": 0}, "value_embedding_interval"),
        ("gpt-bert-style masked-lm", {"embedding_size": 16}, "embedding_size=16"),
        ("gpt-bert-style causal-lm", {"num_nextn_predict_layers": 1}, "num_nextn_predict_layers"),
        ("gpt-bert-style masked-lm", {"attention": "multi-head"}, "does not read it"),
        ("gpt-bert-style masked-lm", {"num_key_value_heads": 1}, "num_key_value_heads"),
        ("gpt-bert-style masked-lm", {"share_layers": True}, "share_layers=True"),
        ("gpt-bert-style masked-lm", {"relative_attention_max_distance": 10}, "more than half"),
        # Experts
        ("mixtral-style", {"first_k_dense_replace": -1}, "first_k_dense_replace=-1"),
        ("gpt-oss-style", {"swiglu_limit": 0}, "swiglu_limit=0 was given; it must be positive"),
        (
            "pre-norm:feed_forward=moe",
            {"num_experts": 2, "num_experts_per_tok": 3},
            "num_experts_per_tok=3 was given; it must be at most num_experts=2",
        ),
        ("pre-norm:feed_forward=moe", {"num_experts": 0}, "num_experts=0 was given; it must be at least 1"),
        ("pre-norm:feed_forward=moe", {"router_aux_loss_coef": -1.0}, "router_aux_loss_coef=-1.0"),
        ("pre-norm:feed_forward=moe-sigmoid", {"n_group": 3}, "n_group=3 and topk_group=1 were given"),
        ("pre-norm:feed_forward=moe-shared", {"shared_expert_intermediate_size": 0}, "must be at least 1"),
        ("pre-norm:feed_forward=moe-sigmoid", {"balance_rate": -0.1}, "balance_rate=-0.1"),
        # Residual connections
        (f"pre-norm:{HYPER}", {"num_streams": 0}, "num_streams=0 was given; it must be at least 1"),
        (f"pre-norm:{MANIFOLD}", {"hyper_eps": -1.0}, "hyper_eps=-1.0 was given; it must be a finite number, at"),
        ("pre-norm:residual=gated-hyper-connections", {"gate_rank": 0}, "gate_rank=0 was given; it must be at least 1"),
        ("pre-norm:residual=attn-res", {"layers_per_block": -1}, "layers_per_block=-1 was given"),
        (
            "vanilla+feed-forward-reuses-cross-norm",
            {"residual": "lambdas"},
            "residual='lambdas' was given; with the quirk feed-forward-reuses-cross-norm",
        ),
        (
            "explicando+self-attention-stands-bare",
            {"residual": "lambdas"},
            "residual='lambdas' was given; with the quirk self-attention-stands-bare",
        ),
        # Parametrization
        (f"gpt2-style:{MUP}", {"initializer": "normal"}, "initializer='normal' was given; parametrization='mup'"),
        (f"gpt2-style:{MUP}", {"mup_base_width": 0}, "mup_base_width=0 was given; it must be at least 1"),
        (f"gpt2-style:{MUP}", {"mup_base_width": "wide"}, "mup_base_width='wide' was given; it must be int"),
        (f"gpt2-style:{MUP}", {"residual": "normalized"}, "'mup' was given for normalized weights"),
        (
            f"ngpt:{MUP}",
            {"attention": "multi-head", "feed_forward": "mlp", "residual": "plain"},
            "'mup' was given for normalized weights",
        ),
        # Mixers
        (f"pre-norm:{CONV} masked-lm", {}, "for an encoder; it sees earlier tokens only"),
        (f"pre-norm:{CONV} seq2seq-lm", {}, "for an encoder-decoder; it sees earlier tokens only"),
        (f"pre-norm:{CONV} causal-lm", {"num_hidden_layers": 1}, "whose cache counts tokens"),
        (f"pre-norm:{CONV} causal-lm", {"layer_types": ["full_attention"] * 6}, "layers of its own, 'conv'"),
        ("pre-norm causal-lm", {"layer_types": ["conv", "full_attention"]}, "a mixer with such layers is short-conv"),
        (f"pre-norm:{CONV} causal-lm", {"conv_L_cache": 0}, "conv_L_cache=0 was given"),
        ("pre-norm:mixer=kda causal-lm", {"linear_conv_kernel_dim": 0}, "linear_conv_kernel_dim=0 was given"),
        (
            "pre-norm:mixer=gated-delta-net causal-lm",
            {"linear_num_key_heads": 3, "linear_num_value_heads": 4},
            "linear_num_key_heads=3 does not divide linear_num_value_heads=4",
        ),
        (f"normformer:{CONV} causal-lm", {}, "variant 'normformer' has its own attention"),
        # Further tokens
        ("llama-style", {"num_nextn_predict_layers": -1}, "must be at least 0"),
        ("llama-style", {"num_nextn_predict_layers": 1, "mtp_loss_weight": -0.1}, "at least 0"),
        ("vanilla seq2seq-lm", {"num_nextn_predict_layers": 1}, "predicted by decoders without one"),
        ("bert-style masked-lm", {"num_nextn_predict_layers": 1}, "predicted by decoders without one"),
        ("value-residual", {"num_nextn_predict_layers": 1}, "a layer after the stack has no earlier one"),
        # Layers that cannot be one, or have no earlier one
        ("pre-norm:attention=value-residual,share_layers=true", {}, "its layers cannot be one"),
        ("pre-norm:attention=kv-sharing,share_layers=true", {}, "its layers cannot be one"),
        ("pre-norm:residual=no-first-norm,share_layers=true", {}, "give residual='plain', or share_layers=False"),
        ("pre-norm:residual=attn-res,layers_per_block=2,share_layers=true", {}, "give layers_per_block=1"),
        ("pre-norm:feed_forward=moe,first_k_dense_replace=1,share_layers=true", {}, "give first_k_dense_replace=0, or"),
        (f"pre-norm:{CONV},share_layers=true causal-lm", {}, "its layers cannot be one: they are of two"),
        (f"pre-norm:{TABLES},share_layers=true", {}, "its layers cannot be one: some have a table"),
        (f"pre-norm:{TABLES},share_layers=true", {}, "give value_embedding_interval=1"),
        ("pre-norm:attention=kv-sharing", {"num_kv_shared_layers": 6}, "needs an earlier one of its type"),
        ("pre-norm:attention=kv-sharing", {"num_kv_shared_layers": -1}, "needs an earlier one of its type"),
        # Labels of positions
        ("llama-style sequence-classification", {"classifier_positions": 0}, "classifier_positions=0 was given"),
    ],
}
"""By error: a name and perhaps a task, settings, and what the message has."""


@pytest.mark.parametrize(
    ("error", "name", "settings", "useful"), [(error, *row) for error, rows in WRONG.items() for row in rows]
)
def test_a_wrong_argument_is_named_with_what_is_valid(
    error: type[errors.ZooError], name: str, settings: dict[str, Any], useful: str
) -> None:
    with pytest.raises(error) as caught:
        zoo.build(*name.split(), **settings)
    assert isinstance(caught.value, errors.ZooError)
    assert useful in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_type_of_every_field_is_checked() -> None:
    notes = {name: note for name, note in Fields.__annotations__.items() if not str(note).startswith("ClassVar")}
    annotations = {name: note.split("|") for name, note in notes.items() if isinstance(note, str)}
    unknown = {name for name, words in annotations.items() if not {word.strip() for word in words} <= TYPES.keys()}
    assert unknown == set()
    assert {"hidden_size", "quirks", "attention_bias"} <= annotations.keys()
    with pytest.raises(errors.ConfigError, match="must be"):
        ZooConfig(quirks=3)


@pytest.mark.parametrize("value", [7, ["pre-norm"], None])
def test_a_name_that_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(errors.ZooError, match="name"):
        zoo.build(value)


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm", "seq2seq-lm"])
def test_a_sequence_longer_than_the_position_table(task: str) -> None:
    model = build(task=task)
    with pytest.raises(errors.SequenceTooLongError, match=r"sequence of 9 positions .* max_position_embeddings=8"):
        model(torch.full((1, 9), 3))


def test_generating_beyond_the_position_table() -> None:
    model = build(task="causal-lm")
    with pytest.raises(errors.SequenceTooLongError, match="max_position_embeddings=8"):
        model.generate(torch.full((1, 6), 3), max_new_tokens=8, min_new_tokens=8, do_sample=False)


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "alibi", "t5", "none"])
def test_positions_without_a_table_have_no_limit(position: str) -> None:
    assert build(task="masked-lm", position=position)(torch.full((1, 9), 3)).logits.shape[1] == 9


@pytest.mark.parametrize("wrong", [20, -1])
@pytest.mark.parametrize("task", ["causal-lm", "masked-lm", "sequence-classification"])
def test_an_id_outside_the_vocabulary(task: str, wrong: int) -> None:
    ids = torch.tensor([[3, 4, 5], [3, wrong, 5]])
    with pytest.raises(errors.TokenIdError, match=rf"token id {wrong} at position \(1, 1\) .* 0 to 19"):
        build(task=task)(ids)


def test_a_target_id_outside_the_target_vocabulary() -> None:
    model = build(task="seq2seq-lm", decoder_vocab_size=10)
    with pytest.raises(errors.TokenIdError, match="token id 15 .* 0 to 9"):
        model(torch.tensor([[15, 3]]), decoder_input_ids=torch.tensor([[3, 15]]))


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm"])
@pytest.mark.parametrize("arguments", [{}, {"input_ids": torch.tensor([[3]]), "inputs_embeds": torch.zeros(1, 1, 64)}])
def test_both_or_neither_of_ids_and_embeddings(task: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        build(task=task)(**arguments)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_mask_that_names_no_padding_for_a_classifier(rows: int) -> None:
    model = build(task="sequence-classification")
    with pytest.raises(errors.InputError, match="attention_mask of 4 dimensions was given.*one a token"):
        model(torch.ones(rows, 4, dtype=torch.long), attention_mask=torch.ones(rows, 1, 4, 4, dtype=torch.bool))
    with pytest.raises(errors.InputError, match="attention_mask for each layer type was given.*one a token"):
        model(torch.ones(rows, 4, dtype=torch.long), attention_mask={"full_attention": None})


@pytest.mark.parametrize("shape", [(2, 1, 4, 4), (3, 1, 3, 4), (3, 1, 4, 5), (3, 2, 4, 3)])
def test_a_mask_of_queries_and_keys_that_does_not_fit(shape: tuple[int, ...]) -> None:
    ids, mask = torch.tensor([[3, 4, 5, 6]] * 3), torch.ones(shape, dtype=torch.bool)
    message = rf"shape {re.escape(str(shape))} was given for 3 rows of 4 positions; valid: \(batch_size, key_len\)"
    with pytest.raises(errors.InputError, match=message):
        build(task="causal-lm")(ids, attention_mask=mask)
    with pytest.raises(errors.InputError, match=message):
        build("vanilla", task="seq2seq-lm")(ids, decoder_input_ids=ids, attention_mask=mask)


def test_masks_by_layer_type_that_lack_one() -> None:
    with pytest.raises(errors.InputError, match="of the type sliding_attention; give one for each of"):
        build("gemma2-style@tiny")(torch.ones(1, 4, dtype=torch.long), attention_mask={"full_attention": None})


def test_masks_by_layer_type_with_causal_rows() -> None:
    inputs: dict[str, Any] = {"attention_mask": {"full_attention": None}, "causal_rows": torch.tensor([True])}
    with pytest.raises(errors.InputError, match="causal_rows were given with an attention_mask that is no padding"):
        build("gpt-bert-style@tiny", "masked-lm")(torch.ones(1, 4, dtype=torch.long), **inputs)


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm", "sequence-classification", "seq2seq-lm"])
def test_a_mask_of_tokens_that_is_added_to_scores(task: str) -> None:
    model, ids = build(task=task), torch.tensor([[3, 4, 5], [3, 4, 0]])
    inputs = {"decoder_input_ids": ids} if task == "seq2seq-lm" else {}
    visible = (ids != 0).float()
    assert model(ids, attention_mask=visible, **inputs).logits.equal(
        model(ids, attention_mask=ids != 0, **inputs).logits
    )
    with pytest.raises(errors.InputError, match="2 dimensions with values below 0.*== 0"):
        model(ids, attention_mask=(1 - visible) * -1e9, **inputs)


@pytest.mark.parametrize("shape", [(6,), (1, 5), (3, 6), (2, 6, 1)])
@pytest.mark.parametrize("name", ["pre-norm@tiny", "pre-norm@tiny:position=alibi", "pre-norm@tiny:position=rotary"])
@pytest.mark.parametrize("task", ["causal-lm", "masked-lm", "seq2seq-lm"])
def test_positions_that_are_not_one_for_each_token(task: str, name: str, shape: tuple[int, ...]) -> None:
    model, ids = build(name, task), torch.full((2, 6), 3)
    inputs = {"decoder_input_ids": ids} if task == "seq2seq-lm" else {}
    positions = {"decoder_position_ids" if inputs else "position_ids": torch.ones(shape, dtype=torch.long)}
    with pytest.raises(errors.InputError, match=rf"^position_ids of the shape {re.escape(str(shape))} .* 2 rows of 6"):
        model(input_ids=ids, **inputs, **positions)


@pytest.mark.parametrize("options", [{}, {"skip_logits": True}, {"logits_to_keep": 3, "loss_smoothing": 0.1}])
@pytest.mark.parametrize("shape", [(2, 5), (1, 6), (12,), (2, 6, 1)])
@pytest.mark.parametrize("feed_forward", ["mlp", "moe"])
def test_labels_that_are_not_one_for_each_position(
    feed_forward: str, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    """Also where a loss in chunks would find something at the positions that it looks at."""
    ids, model = torch.full((2, 6), 3), build(task="causal-lm", feed_forward=feed_forward)
    with fast_paths(chunked_loss="always"), pytest.raises(errors.InputError, match=re.escape(f"shape {shape} were")):
        model(input_ids=ids, labels=torch.full(shape, 3), **options)


def test_labels_of_positions_that_are_kept_do_not_tell_of_further_tokens() -> None:
    model, ids = build(task="causal-lm", num_nextn_predict_layers=1).train(), torch.full((2, 6), 3)
    with pytest.raises(errors.InputError, match=r"\(2, 3\) were given for positions of \(2, 6\).*logits_to_keep"):
        model(input_ids=ids, labels=ids[:, :3], logits_to_keep=3)


@pytest.mark.parametrize("shape", [(1, 6), (12,), (2, 6, 1)])
@pytest.mark.parametrize("feed_forward", ["mlp", "moe"])
def test_labels_that_are_not_one_row_for_each_source(feed_forward: str, shape: tuple[int, ...]) -> None:
    model = build(task="seq2seq-lm", feed_forward=feed_forward)
    with pytest.raises(errors.InputError, match=re.escape(f"shape {shape} were given; valid: (2, target_len)")):
        model(input_ids=torch.full((2, 6), 3), labels=torch.full(shape, 3))


@pytest.mark.parametrize("skip_logits", [False, True])
def test_a_label_that_is_no_token_and_not_ignored(skip_logits: bool) -> None:
    ids = torch.full((2, 6), 3)
    with fast_paths(chunked_loss="always"), pytest.raises((IndexError, RuntimeError), match="-1 is out of bounds"):
        build(task="causal-lm")(input_ids=ids, labels=ids.new_full((2, 6), -1), skip_logits=skip_logits)


def test_nothing_to_decode() -> None:
    with pytest.raises(errors.InputError, match="decoder_input_ids"):
        build(task="seq2seq-lm")(inputs_embeds=torch.zeros(1, 2, 64))


def test_a_backend_that_does_not_exist() -> None:
    with pytest.raises(errors.ZooError, match=r"sdpaa.*did you mean 'sdpa'"):
        build(attn_implementation="sdpaa")


@pytest.mark.parametrize(
    ("body", "task"), [("causal-lm", "masked-lm"), ("masked-lm", "causal-lm"), ("causal-lm", "seq2seq-lm")]
)
def test_a_head_refuses_the_configuration_of_another_stack(body: str, task: str) -> None:
    from zoo.models import TASK_CLASSES

    with pytest.raises(errors.ConfigError, match=f"task='{task}'"):
        TASK_CLASSES[task][1](zoo.config("pre-norm@tiny", body))


def test_every_error_can_be_caught_as_one_and_as_pythons_own() -> None:
    assert issubclass(errors.TokenIdError, IndexError)
    assert issubclass(errors.SequenceTooLongError, IndexError)
    assert issubclass(errors.UnsupportedTaskError, ValueError)
    assert issubclass(errors.UnknownNameError, LookupError)
