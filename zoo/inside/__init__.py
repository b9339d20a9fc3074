"""Looking inside a model: attention, layers, early predictions, and training."""

from .attending import AttentionMap, AttentionMaps, attention
from .heads import HeadStatistics, head_statistics, heads_figure
from .heatmaps import PositionTable, attention_figure, attention_page, position_tables
from .layers import Summary, SummaryRow, summary
from .lens import LogitLens, logit_lens
from .recording import LayerNorms, NormRecorder, norms_figure

__all__ = [
    "AttentionMap",
    "AttentionMaps",
    "HeadStatistics",
    "LayerNorms",
    "LogitLens",
    "NormRecorder",
    "PositionTable",
    "Summary",
    "SummaryRow",
    "attention",
    "attention_figure",
    "attention_page",
    "head_statistics",
    "heads_figure",
    "logit_lens",
    "norms_figure",
    "position_tables",
    "summary",
]
