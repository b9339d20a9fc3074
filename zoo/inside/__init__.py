"""Looking inside a model: what it attends to, what it is made of, what it would say early, and how it trains."""

from .attending import AttentionMap, AttentionMaps, attention
from .heads import HeadStatistics, head_statistics, heads_figure
from .heatmaps import attention_figure
from .layers import Summary, SummaryRow, summary
from .lens import LogitLens, logit_lens
from .pages import attention_page
from .places import PositionTable, position_tables
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
