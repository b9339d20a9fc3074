"""Targets of exports: what each engine needs to know. The engines themselves are imported when they are used."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedModel

from zoo.base.folders import scratch_folder
from zoo.models import ZooConfig, ZooPreTrainedModel
from zoo.registry import Task

from .bundle import BundleTarget
from .ctranslate2.planning import library, plan_ctranslate2
from .ctranslate2.running import CTranslate2Model, check_ctranslate2
from .ctranslate2.specification import write_ctranslate2
from .gguf.architectures import FILE
from .gguf.running import GgufModel
from .gguf.tokenizer import read_tokenizer
from .gguf.writing import plan_gguf, write_gguf
from .onnx.graphs import DECODER, GRAPH_ENDING, WHOLE, obstacles, write_onnx
from .onnx.models import OnnxSession, model_of
from .openvino.stateful import GRAPH_ENDING as OPENVINO_ENDING
from .openvino.stateful import PREFIX, check_openvino, load_openvino, write_openvino
from .symmetries.base import settled
from .target import TARGETS, EngineTarget, ExportOptions, TargetPlan
from .transformers_js.target import TransformersJsTarget
from .verification import Difference, compare, ends_of
from .weights import in_dtype, save_settings, task_of

OVERFLOW = (
    "CTranslate2 4.8 multiplies int8 by oneDNN on AMD's processors. Without VNNI (Zen 3 and before) its sums overflow, "
    "and outputs are wrong by a tenth: set CT2_USE_MKL=1 in your own programs, as the zoo does there."
)


class CTranslate2Target(EngineTarget):
    """Weights and vocabularies for CTranslate2."""

    name = library = extra = module = "ctranslate2"
    summary = "for CTranslate2: seq2seq, causal and encoder models, `--dtype` float32, int8, int16, bfloat16, ..."
    engine = "CTranslate2"
    marks = ("model.bin",)
    dtypes = ("float32", "int8", "int16", "bfloat16", "float16", "int8_float32", "int8_bfloat16", "int8_float16")
    compared_on = "inputs"
    caveats = (
        "CTranslate2 4.8's own converter takes a Marian model of the zoo and makes another of it: it starts from a "
        "zero embedding and drops the last token. The zoo describes models to CTranslate2 itself.",
        "CTranslate2's beam search ends as transformers' does with `early_stopping=True`, also where the setting is "
        "`False`, the default: transformers then goes on while a better text may follow, and finds others now and "
        'then. `early_stopping="never"` is refused.',
        "CTranslate2 cuts what it reads after 1024 tokens unless `max_input_length=0` is given, as the zoo does.",
        "CTranslate2 reads a seed of sampling once. The zoo loads an export again where it samples again; a model that "
        "`--engine` has exported in memory goes on with its first seed.",
        OVERFLOW,
    )

    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        return plan_ctranslate2(self.name, model)

    def notes(self, plan: TargetPlan, options: ExportOptions) -> tuple[str, ...]:
        return (*plan.notes, OVERFLOW) if self.stored(options).startswith("int") else plan.notes

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        assert plan.route is not None
        write_ctranslate2(model, folder, plan.route, self.stored(options), options.source)

    def check(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> Difference:
        if (stored := self.stored(options)) != self.dtypes[0]:  # rounding would hide any other difference
            with scratch_folder() as exact:
                self.write(model, exact, plan, ExportOptions())
                check_ctranslate2(model, exact)
        return check_ctranslate2(model, folder, stored)

    def load(self, folder: Path) -> PreTrainedModel:
        library()  # before anything else imports it
        return super().load(folder)

    def open(self, folder: Path) -> PreTrainedModel:
        return CTranslate2Model(ZooConfig.from_pretrained(folder), folder)

    def output(self, model: ZooPreTrainedModel, plan: TargetPlan) -> str:
        return "last_hidden_state" if task_of(model) == Task.FEATURE_EXTRACTION else "log-probabilities"


class GgufTarget(EngineTarget):
    """One file with weights and tokenizer for llama.cpp."""

    name = library = extra = "gguf"
    summary = "one file for llama.cpp: causal models, `--dtype` f32, f16, bf16, q8_0, q6_k, q5_k, q4_k, ..."
    engine, module = "llama.cpp", "xllamacpp"
    marks = (FILE,)
    dtypes = (
        *("f32", "f16", "bf16", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "iq4_nl", "q3_k"),
        "q2_k",
    )
    compared_on = "prompts"
    caveats = (
        "llama.cpp (xllamacpp 2026.10) assumes what the file has no number for: the tanh approximation of GELU in "
        "GPT-NeoX, Falcon and Phi, where their classes may have the exact one, Llama and Qwen without windows, "
        "Gemma, OLMo 3 and gpt-oss with windows in all layers but every n-th, SmolLM3 without positions in every "
        "fourth, Qwen3-Next with attention in every n-th, DeepSeek with queries from latent vectors. Models that "
        "differ are refused.",
        "llama.cpp divides the delta rule's queries and keys by their length, where Qwen3-Next adds 1e-6 to its "
        "square: log-probabilities are about 1e-4 apart, more where keys are short.",
        "llama.cpp looks GELU up in a table of half precision: log-probabilities of GPT-2, GPT-NeoX, Falcon, BLOOM, "
        "Phi and Gemma are about 1e-3 from ours, those of others 1e-5. It keeps keys and values in half precision by "
        "default; the zoo sets float32.",
        "llama.cpp splits texts by named rules: byte-level BPE as GPT-2's or Llama 3's, and Unigram with Metaspace. "
        "Other tokenizers are refused, as are those that normalise texts, and any that gives other tokens than the "
        "original in 100 texts.",
        "llama.cpp also stops at tokens of some names (`<|im_end|>`, `<|endoftext|>`, `</s>`, ...), and at token 11 "
        "(Unigram: 1) where a model has no end. `zoo generate` goes on there.",
        "llama.cpp's K-quants (q6_k to q2_k) take 256 weights of a row at a time. As its own tool does, rows that 256 "
        "does not divide are stored as q8_0, q5_1, q5_0 or iq4_nl; where it divides none, the type is refused. "
        "Mixtures (q4_k_m, ...) take that tool: `llama-quantize`, given a file in f32.",
    )

    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        return plan_gguf(self.name, model)

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        ends = ends_of(model.config if model.generation_config.eos_token_id is None else model.generation_config)
        tokenizer = read_tokenizer(options.source, settled(model.config, {"eos_token_id": ends}))
        write_gguf(model, folder / FILE, plan, tokenizer, self.stored(options))
        save_settings(model, folder)

    def check(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> Difference:
        from .gguf.comparing import check_gguf

        return check_gguf(model, folder, plan, self.stored(options), options.source)

    def open(self, folder: Path) -> PreTrainedModel:
        return GgufModel(ZooConfig.from_pretrained(folder), folder)

    def output(self, model: ZooPreTrainedModel, plan: TargetPlan) -> str:
        return "log-probabilities"


class OnnxTarget(EngineTarget):
    """Graphs for ONNX Runtime."""

    name = library = extra = "onnx"
    summary = "graphs for ONNX Runtime, of any batch and length, encoder and decoder apart, with a cache"
    engine, module = "ONNX Runtime", "onnxruntime"
    marks = (f"{WHOLE}{GRAPH_ENDING}", f"{DECODER}{GRAPH_ENDING}")
    by_trial = True

    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        notes = ("It is traced and compared when it is exported.",)
        return TargetPlan(self.name, type(model).__name__, None, obstacles(model), notes)

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        write_onnx(model, folder)

    def check(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> Difference:
        return compare(model, self.open(folder))

    def open(self, folder: Path) -> PreTrainedModel:
        return model_of(folder, {path.stem: OnnxSession(path) for path in sorted(folder.glob(f"*{GRAPH_ENDING}"))})

    def notes(self, plan: TargetPlan, options: ExportOptions) -> tuple[str, ...]:
        return ()


class OpenVinoTarget(OnnxTarget):
    """Graphs for OpenVINO."""

    name = library = extra = module = "openvino"
    summary = (
        "graphs for OpenVINO, of any batch and length, the cache of target positions inside of them; "
        "`--dtype` float32, float16, int8 (weights, by NNCF)"
    )
    engine = "OpenVINO"
    marks = (f"{PREFIX}{WHOLE}{OPENVINO_ENDING}", f"{PREFIX}{DECODER}{OPENVINO_ENDING}")
    dtypes = ("float32", "float16", "int8")
    caveats = (
        "OpenVINO 2026.4 computes in bfloat16 where the processor can, unless it is compiled with "
        "`EXECUTION_MODE_HINT: ACCURACY`. Graphs store that as `runtime_options`, with a cache in float32 and without "
        "quantized activations; OpenVINO follows the latter two by itself, but another program has to pass the hint.",
        "OpenVINO reads zeros for rows that a table does not have. Graphs check ids and positions, and fail.",
        "`openvino.convert_model` and NNCF 3.4 report their use to Intel unless that was refused; the zoo does not "
        "use the former and switches it off in the latter.",
    )

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        write_openvino(model, folder, self.stored(options))

    def check(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> Difference:
        """Run the graphs here, and in a process that has OpenVINO only; nothing but the weights may be rounded."""
        if (stored := self.stored(options)) == "float16":
            compare(in_dtype(model, stored), self.open(folder))
        elif stored != self.dtypes[0]:
            with scratch_folder() as exact:
                self.write(model, exact, plan, ExportOptions())
                compare(model, self.open(exact))
        exact_weights = stored == self.dtypes[0]
        return check_openvino(model, folder, exact=exact_weights, fresh_process=options.fresh_process)

    def open(self, folder: Path) -> PreTrainedModel:
        return load_openvino(folder)

    def notes(self, plan: TargetPlan, options: ExportOptions) -> tuple[str, ...]:
        return (
            'Compile it with the options in its graphs, `graph.get_rt_info(["runtime_options"]).value`: by default '
            "OpenVINO computes in bfloat16 where the processor can.",
        )


for target in (CTranslate2Target, GgufTarget, OnnxTarget, OpenVinoTarget):
    TARGETS.register(target.name, target())

__all__ = ["BundleTarget", "CTranslate2Target", "GgufTarget", "OnnxTarget", "OpenVinoTarget", "TransformersJsTarget"]
