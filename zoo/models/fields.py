"""The settings of every model: names, defaults and descriptions. Imports neither torch nor transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    # Optional for callers, always set for readers: __post_init__ fills them.
    FilledInt: TypeAlias = Any
    FilledBool: TypeAlias = Any
    FilledFloat: TypeAlias = Any
    FilledNames: TypeAlias = Any
    FilledProviders: TypeAlias = Any
else:
    FilledInt = int | None
    FilledBool = bool | None
    FilledFloat = float | None
    FilledNames = list[str] | None
    FilledProviders = dict[str, str] | None

GATED_ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu"}
"""Names of gated feed-forwards that imply their activation, accepted for `feed_forward`."""


@dataclass(init=False, repr=False, eq=False, kw_only=True)
class Fields:
    """The fields of [`ZooConfig`][zoo.models.ZooConfig], in the names of transformers.

    Args:
        variant: Name of the variant in the registry.
        quirks: Defects of an original implementation that are switched on.
        providers: Distributions of the variant and parts that are not built in, by field: filled in here, so that
            loading a checkpoint without one of them can name what to install.
        vocab_size: Number of token ids; of the source, if there is a decoder with its own.
        decoder_vocab_size: Number of target token ids, `vocab_size` if not given.
        type_vocab_size: Number of token types of an encoder (BERT's first and second sentence), None for no such
            embedding.
        hidden_size: Width of the residual stream.
        embedding_size: Width of the embeddings, which are then mapped onto `hidden_size` (ALBERT); None for no map.
        num_hidden_layers: Depth of the encoder, or of the only stack.
        decoder_layers: Depth of the decoder of an encoder-decoder, `num_hidden_layers` if not given.
        num_attention_heads: Number of query heads.
        decoder_attention_heads: The same in the decoder of an encoder-decoder, `num_attention_heads` if not given.
        num_key_value_heads: Number of key and value heads, `num_attention_heads` if not given; 1 is multi-query.
        head_dim: Width of a head, `hidden_size / num_attention_heads` if not given.
        intermediate_size: Inner width of the feed-forward network.
        decoder_intermediate_size: The same in the decoder of an encoder-decoder, `intermediate_size` if not given.
        hidden_act: Activation in the feed-forward network, a name of transformers' `ACT2FN` or a plugin's.
        feed_forward: Feed-forward part: "mlp", "gated", "moe", "moe-shared", "moe-sigmoid", "moe-clamped",
            "normalized", or "swiglu", "geglu", "reglu" for gated with that activation.
        mlp_bias: Whether the feed-forward projections have biases, and the dense layer of `lm_head_transform`.
        mlp_inner_norm: Whether there is a norm on the inner width, after the activation (NormFormer).
        attention: Attention part: "multi-head", "gated", "exclusive", "sinks", "differential", "latent",
            "value-residual", "value-embeddings", "kv-sharing", "normalized", or a plugin's.
        mixer: Token mixer of layers without attention, which `layer_types` names: "attention" for no such layers,
            "gated-delta-net", "kimi-delta-attention", "short-conv", or a plugin's.
        attention_bias: Whether query, key and value projections have biases.
        attention_out_bias: Whether the output projection has one, `attention_bias` if not given.
        attention_scale: Divisor of the scores: a word of `AttentionScale`, or a number.
        attn_logit_softcapping: Bound on the scores, None for none.
        qk_norm: Norm on queries and keys: "head", "full" or None.
        sliding_window: Number of positions back that a key may be, None for all.
        norm: Norm part: "layernorm", "layernorm-no-bias", "rmsnorm", "zero-centered-rmsnorm", "dyt", "unit".
        norm_placement: Position of the norms around a sublayer, a word of `NormPlacement`.
        layer_norm_eps: Epsilon of every norm.
        embedding_norm_eps: Epsilon of the norm on the embeddings, `layer_norm_eps` if not given.
        dyt_alpha: Initial steepness of dynamic tanh.
        final_norm: Whether a norm follows the last layer; by default only if the layers end without one (pre and
            sandwich).
        embedding_norm: Whether a norm follows the embeddings.
        residual: Residual part: "plain", "lambdas", "hyper-connections", "manifold-hyper-connections",
            "gated-hyper-connections", "attention-residuals", "no-first-norm", "normalized".
        residual_scaling: Learned weights in residual connections, a word of `ResidualScaling`, or None.
        layer_scale_init: Initial value of LayerScale's weights.
        parallel_residual: Whether attention and feed-forward read the same input and are summed.
        share_layers: Whether all layers share one layer's weights.
        position: Position part: "learned", "learned-unpadded", "sinusoidal", "sinusoidal-halves", "rotary",
            "rotary-interleaved", "rotary-by-layer", "alibi", "t5", "none".
        nope_layers: True for layers without positions (NoPE): neither a rotation of queries and keys nor a term on
            their scores. One for every layer, or a pattern repeated over the layers; None if all have positions.
        max_position_embeddings: Rows of a learned table; a nominal length for the other parts.
        sinusoidal_theta: Base of the sinusoidal wavelengths.
        relative_attention_num_buckets: Number of T5's buckets.
        relative_attention_max_distance: Distance from which T5's last bucket holds everything.
        scale_embedding: Whether token embeddings are multiplied by the root of their width, sqrt(hidden_size).
        tie_word_embeddings: Whether the output projection is the (target) embedding.
        share_encoder_decoder_embeddings: Whether source and target embeddings are shared.
        lm_head_bias: Whether the output projection has a bias.
        lm_head_transform: Whether masked language modelling transforms its input first (BERT: dense, act, norm), to the
            width of the embeddings.
        logit_scale: Factor on the logits.
        final_logit_softcapping: Bound on the logits, None for none.
        classifier_pooling: Pooling of token vectors to one vector for a classifier, a word of `Pooling`.
        classifier_pooler_act: Activation of a dense layer between pooling and classifier, None for no such layer.
        classifier_positions: Number of positions that a classifier of sequences labels from the one vector (MAD's
            compression), by two dense layers in place of the pooler's; None for one label per sequence.
        classifier_bias: Whether the classifier has a bias.
        dropout: Probability of dropping an element of the embeddings and of each residual branch.
        attention_dropout: Probability of dropping an attention weight.
        activation_dropout: Probability of dropping an element after the feed-forward activation.
        classifier_dropout: Probability of dropping an element before a classifier, `dropout` if not given.
        initializer: Initialisation part: "normal", "depth-scaled", "xavier-uniform", "deepnorm", "torch".
        initializer_range: Standard deviation of normal initialisation; by default 0.02, times
            sqrt(initializer_width / hidden_size) in narrower models.
        initializer_width: Width from which on the default of `initializer_range` is 0.02; 1 for 0.02 at every width.
        is_decoder: Whether the only stack is causal.
        is_encoder_decoder: Whether there is an encoder and a decoder.
        add_cross_attention: Whether a decoder's layers have cross attention; set by the encoder-decoder itself.
        use_cache: Whether decoders return their keys and values.
        pad_token_id: Id of padding.
        decoder_pad_token_id: The same of the target, `pad_token_id` if None.
        bos_token_id: Id that begins a sequence.
        eos_token_id: Id that ends a sequence.
        decoder_start_token_id: Id that begins a target, `bos_token_id` if not given.
    """

    variant: str = "pre-norm"
    quirks: FilledNames = None
    providers: FilledProviders = None

    vocab_size: int = 32000
    decoder_vocab_size: FilledInt = None
    type_vocab_size: int | None = None
    hidden_size: int = 512
    embedding_size: int | None = None
    num_hidden_layers: int = 6
    decoder_layers: FilledInt = None
    num_attention_heads: int = 8
    decoder_attention_heads: FilledInt = None
    num_key_value_heads: FilledInt = None
    head_dim: FilledInt = None
    intermediate_size: int = 2048
    decoder_intermediate_size: FilledInt = None

    hidden_act: str = "gelu"
    feed_forward: str = "mlp"
    mlp_bias: bool = True
    mlp_inner_norm: bool = False

    attention: str = "multi-head"
    mixer: str = "attention"
    attention_bias: bool = True
    attention_out_bias: FilledBool = None
    attention_scale: str | float = "head-dim"
    attn_logit_softcapping: float | None = None
    qk_norm: str | None = None
    sliding_window: int | None = None

    norm: str = "layernorm"
    norm_placement: str = "pre"
    layer_norm_eps: float = 1e-5
    embedding_norm_eps: FilledFloat = None
    dyt_alpha: float = 0.5
    final_norm: FilledBool = None
    embedding_norm: bool = False
    residual: str = "plain"
    residual_scaling: str | None = None
    layer_scale_init: float = 1e-4
    parallel_residual: bool = False
    share_layers: bool = False

    position: str = "learned"
    nope_layers: list[bool] | None = None
    max_position_embeddings: int = 512
    sinusoidal_theta: float = 10000.0
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128

    scale_embedding: bool = False
    tie_word_embeddings: bool = False
    share_encoder_decoder_embeddings: bool = False
    lm_head_bias: bool = False
    lm_head_transform: bool = False
    logit_scale: float = 1.0
    final_logit_softcapping: float | None = None
    classifier_pooling: str = "mean"
    classifier_pooler_act: str | None = None
    classifier_positions: int | None = None
    classifier_bias: bool = True

    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    classifier_dropout: FilledFloat = None

    initializer: str = "normal"
    initializer_range: FilledFloat = None
    initializer_width: int = 768

    is_decoder: bool = False
    is_encoder_decoder: bool = False
    add_cross_attention: bool = False
    use_cache: bool = True
    pad_token_id: int | None = 0
    decoder_pad_token_id: int | None = None
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = None
