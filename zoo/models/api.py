"""The public names of `zoo.models`, which imports this module when one of them is first used."""

from . import initialization
from .attention import Attention
from .attentions.kv_sharing import SharedKeyValueAttention, ValueEmbeddingAttention, ValueResidualAttention
from .attentions.latent import LatentAttention
from .attentions.outputs import ExclusiveAttention, GatedAttention
from .attentions.softmaxes import DifferentialAttention, SinkAttention
from .choices import AttentionScale, NormPlacement, Pooling, QKNorm, ResidualScaling
from .classification import ZooForSequenceClassification, ZooForTokenClassification
from .conditional_generation import ZooForConditionalGeneration
from .configuration import ZooConfig
from .embedding import (
    LearnedPosition,
    Position,
    SinusoidalHalvesPosition,
    SinusoidalPosition,
    TokenEmbedding,
    TokenTypeEmbedding,
)
from .encoder_decoder import ZooEncoderDecoder
from .feed_forwards.mixture import (
    ClampedMixtureOfExperts,
    MixtureOfExperts,
    SharedMixtureOfExperts,
    SigmoidMixtureOfExperts,
)
from .feed_forwards.routing import balance_experts
from .language_modeling import ZooForCausalLM, ZooForMaskedLM
from .layers import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    ParallelDecoderLayer,
    ParallelEncoderLayer,
    TransformerLayer,
)
from .mixers.base import Mixer
from .mixers.delta_net import GatedDeltaNet, KimiDeltaAttention
from .mixers.short_convolution import ShortConvolution
from .norms import DynamicTanh, LayerNorm, RMSNorm
from .parametrization import learning_rate_factors
from .parts import ACTIVATIONS, ATTENTIONS, FEED_FORWARDS, INITIALIZERS, MIXERS, NORMS, POSITIONS, RESIDUALS
from .position_bias import AlibiPosition, RelativeBucketPosition
from .pretrained import ZooModel, ZooPreTrainedModel
from .residual import Residual
from .residuals.depth import LambdaResidual
from .residuals.hyper_connections import HyperConnections, ManifoldHyperConnections
from .rotary import InterleavedRotaryPosition, RotaryByLayerPosition, RotaryPosition
from .stack import ZooDecoder, ZooEncoder
from .transformer import Transformer
from .unit import (
    NormalizedAttention,
    NormalizedFeedForward,
    NormalizedResidual,
    UnitEmbedding,
    UnitHead,
    UnitNorm,
    normalize_weights,
)

TASK_CLASSES: dict[str, tuple[str, type[ZooPreTrainedModel]]] = {
    "feature-extraction": ("AutoModel", ZooModel),
    "masked-lm": ("AutoModelForMaskedLM", ZooForMaskedLM),
    "sequence-classification": ("AutoModelForSequenceClassification", ZooForSequenceClassification),
    "token-classification": ("AutoModelForTokenClassification", ZooForTokenClassification),
    "causal-lm": ("AutoModelForCausalLM", ZooForCausalLM),
    "seq2seq-lm": ("AutoModelForSeq2SeqLM", ZooForConditionalGeneration),
}
"""The Auto class and the model class of every task."""

# fmt: off
__all__ = [
    "ACTIVATIONS", "ATTENTIONS", "FEED_FORWARDS", "INITIALIZERS", "MIXERS", "NORMS", "POSITIONS", "RESIDUALS",
    "TASK_CLASSES", "AlibiPosition", "Attention", "AttentionScale", "ClampedMixtureOfExperts", "DecoderLayer",
    "DifferentialAttention", "DynamicTanh", "EncoderLayer", "ExclusiveAttention", "FeedForward", "GatedAttention",
    "GatedDeltaNet", "GatedFeedForward", "HyperConnections", "InterleavedRotaryPosition", "KimiDeltaAttention",
    "LambdaResidual", "LatentAttention", "LayerNorm", "LearnedPosition", "ManifoldHyperConnections", "Mixer",
    "MixtureOfExperts", "NormPlacement", "NormalizedAttention", "NormalizedFeedForward", "NormalizedResidual",
    "ParallelDecoderLayer", "ParallelEncoderLayer", "Pooling", "Position", "QKNorm", "RMSNorm",
    "RelativeBucketPosition", "Residual", "ResidualScaling", "RotaryByLayerPosition", "RotaryPosition",
    "SharedKeyValueAttention", "SharedMixtureOfExperts", "ShortConvolution", "SigmoidMixtureOfExperts", "SinkAttention",
    "SinusoidalHalvesPosition", "SinusoidalPosition", "TokenEmbedding", "TokenTypeEmbedding", "Transformer",
    "TransformerLayer", "UnitEmbedding", "UnitHead", "UnitNorm", "ValueEmbeddingAttention", "ValueResidualAttention",
    "ZooConfig", "ZooDecoder", "ZooEncoder", "ZooEncoderDecoder", "ZooForCausalLM", "ZooForConditionalGeneration",
    "ZooForMaskedLM", "ZooForSequenceClassification", "ZooForTokenClassification", "ZooModel", "ZooPreTrainedModel",
    "balance_experts", "initialization", "learning_rate_factors", "normalize_weights",
]
