"""The settings of every model: type, default, range, description, rule that fills it, effect and wording of each.

Everything else about a setting is derived from here: validation, filling, keywords of editors, `zoo settings`, cards,
drawings and what an export target needs. Imports neither torch nor transformers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from .choices import AttentionScale, NormPlacement, Pooling, QKNorm, ResidualScaling

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

LAYER_TYPES = ("full_attention", "sliding_attention")
GATED_ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu"}
"""Names of gated feed-forwards that imply their activation, accepted for `feed_forward`."""

ANY: Any = ...  # Need of an export target that expresses every value of a setting

LANGUAGE_MODELS = ("causal-lm", "masked-lm", "seq2seq-lm")
TRANSFORMED = ("causal-lm", "masked-lm")
SEQUENCE_CLASSIFIERS = ("sequence-classification",)
CLASSIFIERS = (*SEQUENCE_CLASSIFIERS, "token-classification")

LARGEST = 2**31 - 1  # The largest number of ids or positions

LARGEST_FLOAT = float.fromhex("0x1.fffffep+127")  # The largest number of float32

# Sets of facts that settings share. The limits are far beyond any model that was built, so that a slip is reported
# before memory or time run out.
ELSEWHERE = {"place": ""}
DRAWN = {"drawn": True}
NUMBERS = {"changes": "numbers"}
TRAINING = {"changes": "training", **ELSEWHERE}
NOTHING = {"changes": "nothing", **ELSEWHERE}
WIDEST = 2**20
WIDTH = {"least": 1, "greatest": WIDEST, **ELSEWHERE}
COUNT = {"least": 1, "greatest": 10_000, **ELSEWHERE}
IDS = {"least": 1, "greatest": LARGEST, **ELSEWHERE}
TOKEN = {"least": -1, "greatest": LARGEST}  # transformers' configurations have -1 for no such token
PROBABILITY = {"least": 0, "greatest": 1}
FINITE = {"least": 0, "greatest": LARGEST_FLOAT}
ANY_NUMBER = {"least": -LARGEST_FLOAT, "greatest": LARGEST_FLOAT}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting."""

    default: Any = None  # Value in a plain configuration; a variant may have another one
    help: str  # Description
    least: float | None = None  # Smallest number, of the elements if it is a list; None for no range
    greatest: float = LARGEST_FLOAT  # Largest number
    positive: bool = False  # Whether a number has to be positive and finite
    choices: type[Enum] | None = None  # Words that it takes; None if it takes no words, or names a part
    # Fills it where it is None: another setting, or a function of the configuration
    usual: str | Callable[[Any], Any] | None = None
    decoder_of: str | None = None  # Setting that fills it in encoder-decoders alone
    # Its effect: "shapes" (of weights, and numbers), "numbers", "training" (and new weights) or "nothing"
    changes: str = "shapes"
    heads: tuple[str, ...] = ()  # Tasks with a head that reads it; all if empty
    # Whether models with a configuration read it, where that is more than `decoder_of` and `read_with` state
    read_if: Callable[[Any], bool] | None = None
    # Another setting, and its values with which this one is read; always if None
    read_with: tuple[str, tuple[Any, ...]] | None = None
    # Value that every export target expresses, by default `usual` or `default`; or `ANY`. A target that expresses
    # others names the setting.
    plain: Any = None
    # Row of a card and step of a drawing that state it: "attention", "feed_forward", "embeddings", "residual",
    # "positions", "output", "stack", "other"; empty where both have words of their own for it
    place: str = "other"
    # Phrase of cards and drawings where the value is not `plain`, with `{value}`; by value, "" for the others; by
    # default the name
    words: str | Mapping[str, str] | None = None
    drawn: bool = False  # Whether a drawing shows it by other means, such as its own step

    def usual_value(self, config: Any) -> Any:
        rule = self.usual or self.decoder_of
        return rule(config) if callable(rule) else rule and getattr(config, rule, None)

    def follows(self, value: Any, config: Any) -> bool:
        """Whether a value is what fills it, or none yet."""
        return bool(self.usual or self.decoder_of) and value in (self.usual_value(config), None)

    def plain_value(self, config: Any) -> Any:
        """Value of a plain Transformer with the other settings of a configuration."""
        if self.decoder_of or not self.is_read_next_to(config):
            return ANY
        if self.plain is None and self.usual is not None:
            return self.usual_value(config)
        return self.default if self.plain is None else self.plain

    @property
    def need(self) -> Any:
        """The plain value, or a function of a configuration where it depends on other settings."""
        return self.plain_value if self.usual or self.read_with else self.plain_value(None)

    def is_read(self, task: str) -> bool:
        """Whether models for a task read it."""
        return not self.heads or task in self.heads

    def is_read_next_to(self, config: Any) -> bool:
        return self.read_with is None or getattr(config, self.read_with[0], None) in self.read_with[1]

    def is_read_in(self, config: Any) -> bool:
        """Whether models with a configuration read it, apart from their heads and parts."""
        if self.decoder_of is not None and config.stack != "encoder-decoder":
            return False
        return self.is_read_next_to(config) and (self.read_if is None or self.read_if(config))

    def is_computed(self, task: str) -> bool:
        """Whether it decides what a model for a task computes."""
        return self.changes in ("shapes", "numbers") and self.is_read(task)

    def phrase(self, name: str, value: Any) -> str:
        words = self.words
        if isinstance(words, Mapping):
            words = words.get(str(value), words[""])
        words = f"{name.replace('_', ' ')}{'' if isinstance(value, bool) else ' {value}'}" if words is None else words
        return words.format(value=f"{value:g}" if isinstance(value, float) else value)


def setting(default: Any, help: str, *shared: Mapping[str, Any], **facts: Any) -> Any:
    """Declare a field by its own facts and shared sets of them. Arguments as for [`Setting`][]."""
    known = {name: value for some in (*shared, facts) for name, value in some.items()}
    return dataclasses.field(default=default, metadata={"setting": Setting(default=default, help=help, **known)})


def usual_range(width: int, full_width: int) -> float:
    """Standard deviation of new weights: 0.02, as in BERT and GPT-2, and larger in narrow models."""
    return float(0.02 * max(1.0, full_width / width) ** 0.5)


def divisors(number: int) -> list[int]:
    """All divisors of a number, the smallest first."""
    small = [part for part in range(1, math.isqrt(number) + 1) if number % part == 0]
    return sorted({*small, *(number // part for part in small)})


@dataclass(init=False, repr=False, eq=False, kw_only=True)
class Fields:
    """The fields of [`ZooConfig`][zoo.models.ZooConfig], in the names of transformers."""

    # fmt: off
    variant: str = setting("pre-norm", "Name of the variant in the registry.", NOTHING)
    quirks: FilledNames = setting(None, "Defects of an original implementation that are switched on.", NOTHING)
    providers: FilledProviders = setting(None,
        "Distributions of a plugin's variant and parts by field, filled in to name what a checkpoint lacks.", NOTHING)

    vocab_size: int = setting(32000, "Number of token ids; of the source, if a decoder has its own.", IDS,
        plain=ANY)
    decoder_vocab_size: FilledInt = setting(None, "Number of target token ids.", IDS, decoder_of="vocab_size")
    type_vocab_size: int | None = setting(None,
        "Number of token types of an encoder (BERT's first and second sentence), None for none.", IDS, DRAWN,
        read_if=lambda config: config.stack != "decoder", place="embeddings", words="{value} token types")
    hidden_size: int = setting(512, "Width of the residual stream.", WIDTH, plain=ANY)
    embedding_size: int | None = setting(None,
        "Width of the embeddings before a map onto `hidden_size` (ALBERT), None for no map.", WIDTH, DRAWN,
        place="embeddings", words="{value} wide and projected")
    num_hidden_layers: int = setting(6, "Depth of the encoder, or of the only stack.", COUNT, plain=ANY)
    decoder_layers: FilledInt = setting(None, "Depth of the decoder of an encoder-decoder.", COUNT,
        decoder_of="num_hidden_layers")
    num_attention_heads: int = setting(8, "Number of query heads.", NUMBERS, COUNT, plain=ANY)
    decoder_attention_heads: FilledInt = setting(None, "Number of query heads in the decoder of an encoder-decoder.",
        NUMBERS, COUNT, decoder_of="num_attention_heads")
    num_key_value_heads: FilledInt = setting(None,
        "Number of key and value heads, `num_attention_heads` if not given; 1 is multi-query.", COUNT,
        usual="num_attention_heads", place="attention", words="{value} for keys and values")
    head_dim: FilledInt = setting(None, "Width of a head, `hidden_size / num_attention_heads` if not given.", WIDTH,
        usual=lambda config: config.hidden_size // config.num_attention_heads)
    intermediate_size: int = setting(2048, "Inner width of the feed-forward network.", WIDTH, plain=ANY)
    decoder_intermediate_size: FilledInt = setting(None, "Inner width in the decoder of an encoder-decoder.", WIDTH,
        decoder_of="intermediate_size")

    hidden_act: str = setting("gelu", "Activation in the feed-forward network.", NUMBERS, ELSEWHERE, plain=ANY)
    feed_forward: str = setting("mlp",
        'Feed-forward part; "swiglu", "geglu" and "reglu" are "gated" with that activation.', ELSEWHERE)
    mlp_bias: bool = setting(True,
        "Whether the feed-forward projections have biases.",
        place="feed_forward", words="no biases")
    mlp_inner_norm: bool = setting(False,
        "Whether to normalise the inner width, after the activation (NormFormer).", place="feed_forward",
        words="norm inside")

    attention: str = setting("multi-head", "Attention part.", ELSEWHERE)
    mixer: str = setting("attention",
        'Token mixer of layers without attention, which `layer_types` names; "attention" for no such layers.', DRAWN,
        place="attention", words="in some layers {value} instead")
    attention_bias: bool = setting(True, "Whether query, key and value projections have biases.", ELSEWHERE)
    attention_out_bias: FilledBool = setting(None,
        "Whether the output projection has one, `attention_bias` if not given.", ELSEWHERE, usual="attention_bias",
        plain=True)
    qk_norm: str | None = setting(None, "Norm on queries and keys, None for none.", choices=QKNorm, place="attention",
        words={"head": "qk-norm per head", "": "qk-norm"})
    attention_scale: str | float = setting("head-dim", "Divisor of the scores: a word, or a number.", NUMBERS,
        positive=True, choices=AttentionScale, place="attention",
        words={"hidden-size": "scores / sqrt(hidden size)", "none": "unscaled scores", "": "scores / {value}"})
    attn_logit_softcapping: float | None = setting(None, "Bound on the scores, None for none.", NUMBERS, positive=True,
        place="attention", words="scores capped at {value}")
    sliding_window: int | None = setting(None, "Number of positions back that a key may be, None for all.", NUMBERS,
        IDS, DRAWN, read_if=lambda config: "sliding_attention" in config.types_of_layers(),
        place="attention", words="window {value}")

    norm: str = setting("layernorm", "Norm part.", ELSEWHERE)
    norm_placement: str = setting("pre", "Position of the norms around a sublayer.", ELSEWHERE,
        choices=NormPlacement)
    layer_norm_eps: float = setting(1e-5, "Epsilon of every norm.", NUMBERS, FINITE, ELSEWHERE, plain=ANY)
    embedding_norm_eps: FilledFloat = setting(None,
        "Epsilon of the norm on the embeddings, `layer_norm_eps` if not given.", NUMBERS, FINITE, ELSEWHERE,
        usual="layer_norm_eps", read_with=("embedding_norm", (True,)))
    dyt_alpha: float = setting(0.5, "Initial steepness of dynamic tanh.", TRAINING, ANY_NUMBER)
    final_norm: FilledBool = setting(None,
        "Whether a norm follows the last layer; by default only if the layers end without one (pre and sandwich).",
        ELSEWHERE, usual=lambda config: config.norm_placement in (NormPlacement.PRE, NormPlacement.SANDWICH))
    embedding_norm: bool = setting(False, "Whether a norm follows the embeddings.", DRAWN, place="embeddings",
        words="normed")
    residual: str = setting("plain", "Residual part.", DRAWN, place="residual", words="{value}")
    residual_scaling: str | None = setting(None, "Learned weights in residual connections, None for none.", DRAWN,
        choices=ResidualScaling, place="residual", words="{value}")
    layer_scale_init: float = setting(1e-4, "Initial value of LayerScale's weights.", TRAINING, ANY_NUMBER)
    parallel_residual: bool = setting(False, "Whether attention and feed-forward read the same input and are summed.",
        DRAWN, place="residual", words="parallel")
    share_layers: bool = setting(False, "Whether all layers share one layer's weights.", DRAWN, place="stack",
        words="all layers sharing one set of weights")

    position: str = setting("learned", "Position part.", ELSEWHERE)
    nope_layers: list[bool] | None = setting(None,
        "True for layers without positions (NoPE): neither a rotation of queries and keys nor a term on their scores. "
        "One for every layer, or a pattern repeated over the layers; None if all have positions.", NUMBERS, DRAWN,
        place="positions", words="in some layers none")
    max_position_embeddings: int = setting(512, "Rows of a learned table; a nominal length for the other parts.", IDS,
        plain=ANY)
    sinusoidal_theta: float = setting(10000.0, "Base of the sinusoidal wavelengths.", NUMBERS, ELSEWHERE, positive=True,
        read_with=("position", ("sinusoidal", "sinusoidal-halves")))
    relative_attention_num_buckets: int = setting(32,
        "Number of buckets of distances: of T5 in all, of disentangled attention on either side.", COUNT,
        read_with=("position", ("t5", "disentangled")))
    relative_attention_max_distance: int = setting(128, "Distance from which the last bucket holds everything.",
        NUMBERS, IDS, read_with=("position", ("t5", "disentangled")))

    scale_embedding: bool = setting(False,
        "Whether token embeddings are multiplied by the root of their width, sqrt(hidden_size).", NUMBERS, DRAWN,
        place="embeddings", words="scaled by the square root of the width")
    tie_word_embeddings: bool = setting(False, "Whether the output projection is the (target) embedding.", ELSEWHERE,
        heads=LANGUAGE_MODELS, plain=ANY)
    share_encoder_decoder_embeddings: bool = setting(False, "Whether source and target embeddings are shared.",
        ELSEWHERE, plain=ANY)
    lm_head_bias: bool = setting(False, "Whether the output projection has a bias.", DRAWN, heads=LANGUAGE_MODELS,
        place="output", words="bias")
    lm_head_transform: bool = setting(False,
        "Whether language modelling transforms its input first (BERT: dense, act, norm), to the width of the "
        "embeddings.",
        DRAWN, heads=TRANSFORMED, place="output", words="transformed first")
    lm_head_transform_act: str | None = setting(None, "Its activation, `hidden_act` if None.", NUMBERS,
        heads=TRANSFORMED, read_with=("lm_head_transform", (True,)), place="output", words="{value} in its transform")
    lm_head_transform_bias: FilledBool = setting(None, "Whether it has a bias, `mlp_bias` if not given.",
        heads=TRANSFORMED, usual="mlp_bias", read_with=("lm_head_transform", (True,)), place="output",
        words={"True": "a bias in its transform", "": "no bias in its transform"})
    masked_next_token: bool = setting(False,
        "Whether masked language modelling predicts a token one position earlier, as a causal model does (GPT-BERT), "
        "so that the same weights are a causal and a masked language model.", changes="nothing", heads=TRANSFORMED,
        place="output", words="masked tokens predicted one position earlier")
    logit_scale: float = setting(1.0, "Factor on the logits.", NUMBERS, ANY_NUMBER, DRAWN, heads=LANGUAGE_MODELS,
        place="output", words="× {value}")
    final_logit_softcapping: float | None = setting(None, "Bound on the logits, None for none.", NUMBERS, DRAWN,
        heads=LANGUAGE_MODELS, positive=True, place="output", words="capped at {value}")
    classifier_pooling: str = setting("mean", "Pooling of token vectors to one vector for a classifier.", NUMBERS,
        ELSEWHERE, heads=SEQUENCE_CLASSIFIERS, choices=Pooling)
    classifier_pooler_act: str | None = setting(None,
        "Activation of a dense layer between pooling and classifier, None for no such layer.", ELSEWHERE,
        heads=SEQUENCE_CLASSIFIERS)
    classifier_positions: int | None = setting(None,
        "Number of positions that a classifier of sequences labels from the one vector (MAD's compression), by two "
        "dense layers in place of the pooler's; None for one label per sequence.", IDS, heads=SEQUENCE_CLASSIFIERS)
    classifier_bias: bool = setting(True, "Whether the classifier has a bias.", ELSEWHERE, heads=CLASSIFIERS)

    dropout: float = setting(0.1, "Probability of dropping an element of the embeddings and of each residual branch.",
        TRAINING, PROBABILITY)
    attention_dropout: float = setting(0.0, "Probability of dropping an attention weight.", TRAINING, PROBABILITY)
    activation_dropout: float = setting(0.0, "Probability of dropping an element after the feed-forward activation.",
        TRAINING, PROBABILITY)
    classifier_dropout: FilledFloat = setting(None,
        "Probability of dropping an element before a classifier, `dropout` if not given.", TRAINING, PROBABILITY,
        heads=CLASSIFIERS, usual="dropout")

    initializer: str = setting("normal", "Initialisation part.", TRAINING)
    initializer_range: FilledFloat = setting(None,
        "Standard deviation of normal initialisation; by default 0.02, times sqrt(initializer_width / hidden_size) in "
        "narrower models.",
        TRAINING, FINITE, usual=lambda config: usual_range(config.hidden_size, config.initializer_width))
    initializer_width: int = setting(768,
        "Width from which on the default of `initializer_range` is 0.02; 1 for 0.02 at every width.", TRAINING, WIDTH)

    is_decoder: bool = setting(False, "Whether the only stack is causal.", NOTHING)
    is_encoder_decoder: bool = setting(False, "Whether the model has an encoder and a decoder.", NOTHING)
    add_cross_attention: bool = setting(False,
        "Whether a decoder's layers have cross attention; set by the encoder-decoder itself.", NOTHING)
    use_cache: bool = setting(True, "Whether decoders return their keys and values.", NOTHING)
    pad_token_id: int | None = setting(0, "Id of padding.", NOTHING, TOKEN)
    decoder_pad_token_id: int | None = setting(None, "The same of the target, `pad_token_id` if None.", NOTHING, TOKEN)
    bos_token_id: int | None = setting(1, "Id that begins a sequence.", NOTHING, TOKEN)
    eos_token_id: int | list[int] | None = setting(2, "Id that ends a sequence.", NOTHING, TOKEN)
    decoder_start_token_id: int | None = setting(None, "Id that begins a target, `bos_token_id` if not given.", NOTHING,
        TOKEN, decoder_of="bos_token_id")
    # fmt: on


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {field.name: field.metadata["setting"] for field in dataclasses.fields(Fields)}
)
"""All fields by name."""

# fmt: off
BESIDE_FIELDS: Mapping[str, Setting] = MappingProxyType({
    "layer_types": Setting(
        help="The kind of every layer, or a pattern repeated over them; all sliding if only a window is given, every "
        "other the mixer's if only that is."),
    "rope_parameters": Setting(
        help="`rope_theta`, `rope_type` and what that type reads, as in transformers; for rotary positions."),
    "parametrization": Setting(
        help="How initial weights, scales and learning rates depend on the width.", changes="training"),
    "mup_base_width": Setting(
        help="The hidden size at which parametrization=mup is the standard one, 256 if not given.", changes="training"),
    "sizes": Setting(
        help="Whether sizes that are not given follow hidden_size and num_attention_heads, follow if not given."),
    "num_nextn_predict_layers": Setting(changes="training",
        help="Number of tokens after the next one that a causal language model learns to predict, each by a layer that "
        "runs in training only (multi-token prediction); none if not given."),
    "mtp_loss_weight": Setting(
        help="Weight of their loss relative to that of the next token, 0.3 if not given.", changes="training"),
    "num_labels": Setting(help="Number of labels of a classifier.", heads=CLASSIFIERS),
})
# fmt: on
"""Settings that every configuration understands and that are no fields of it."""


def stated(config: Any, place: str, *, drawing: bool = False) -> list[str]:
    """Phrases for the settings of one place that are not a plain Transformer's, without those that drawings draw."""
    found = []
    for name, one in SETTINGS.items():
        value = getattr(config, name, False if isinstance(one.default, bool) else None)
        if one.place != place or value is None or (drawing and one.drawn):
            continue
        plain = one.plain_value(config)
        if plain is not ANY and value != plain:
            found.append(one.phrase(name, value))
    return found
