"""GGUF as a target of exports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..target import TARGETS, EngineTarget, ExportOptions, TargetPlan
from .architecture import FILE

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from zoo.models import ZooPreTrainedModel

    from ..verification import Difference


class GgufTarget(EngineTarget):
    """One file with weights and tokenizer for llama.cpp."""

    name = library = extra = "gguf"
    summary = "one file for llama.cpp: causal models, `--dtype` f32, f16, bf16, q8_0, q6_k, q5_k, q4_k, ..."
    engine, module = "llama.cpp", "xllamacpp"
    marks = (FILE,)
    dtypes = ("f32", "f16", "bf16", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "q3_k", "q2_k")
    compared_on = "prompts"
    caveats = (
        "llama.cpp (xllamacpp 2026.10) takes for granted what no number in the file says: GPT-NeoX, Falcon and Phi "
        "with the GELU of tanh where their classes may have the exact one, Llama and Qwen without windows, Gemma, "
        "OLMo 3 and gpt-oss with windows in all layers but the last of every so many, SmolLM3 without positions in "
        "every fourth, Qwen3-Next with attention in the last of every so many, DeepSeek with queries from latent "
        "vectors. Models that differ are refused.",
        "llama.cpp divides the delta rule's queries and keys by their length, where Qwen3-Next adds 1e-6 to its "
        "square: log-probabilities are about 1e-4 apart, more where keys are short.",
        "llama.cpp looks GELU up in a table of half precision: log-probabilities of GPT-2, GPT-NeoX, Falcon, BLOOM, "
        "Phi and Gemma are about 1e-3 from ours, those of others 1e-5. Keys and values it keeps in half precision "
        "unless it is told otherwise; the zoo tells it.",
        "llama.cpp cuts texts by rules that it has by name: byte-level BPE as GPT-2's or Llama 3's, and Unigram with "
        "Metaspace. Other tokenizers are refused, as are those that normalise texts, and any of which it makes other "
        "tokens of 100 texts than the original does.",
        "llama.cpp's K-quants (q6_k to q2_k) take 256 weights of a row at a time. As its own tool does, rows that 256 "
        "does not divide are stored as q8_0, q5_1, q5_0 or iq4_nl; where it divides none, the type is refused. "
        "Mixtures (q4_k_m, ...) take that tool: `llama-quantize`, given a file in f32.",
    )

    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        """Find the architecture of llama.cpp that computes what the model does."""
        from .planning import plan_gguf

        return plan_gguf(self.name, model)

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        """Write the file, and the configuration that the zoo loads it by."""
        from .tokenizer import read_tokenizer
        from .writing import write_folder

        write_folder(model, folder, plan, read_tokenizer(options.source, model.config), self.stored(options))

    def check(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> Difference:
        """Compare log-probabilities, tokens and prompts in a process of its own."""
        from .comparing import check_gguf

        return check_gguf(model, folder, plan, self.stored(options), options.source)

    def open(self, folder: Path) -> PreTrainedModel:
        """Load a file as a model that generates."""
        from .serving import GgufModel

        return GgufModel.open(folder)

    def output(self, model: ZooPreTrainedModel, plan: TargetPlan) -> str:
        """Compared outputs."""
        return "log-probabilities"


TARGETS.register(GgufTarget.name, GgufTarget())
