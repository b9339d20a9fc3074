"""transformers.js as a target of exports: it takes a model for one of transformers' classes, and runs ONNX graphs."""

from __future__ import annotations

from pathlib import Path

import torch

from zoo.base.folders import scratch_folder
from zoo.models import ZooPreTrainedModel
from zoo.registry import Task

from ..errors import require
from ..native.declared import NATIVE
from ..native.writing import NativeTarget, write_settings
from ..onnx.graphs import DECODER, GRAPH_ENDING, LARGEST_IN_ONE_FILE, obstacles
from ..onnx.models import OnnxSession, model_of
from ..planning import nearest, plan_export
from ..target import TARGETS, ExportOptions, Target, TargetPlan, as_another
from ..verification import Difference, compare
from ..weights import change_config, save_settings, task_of
from . import page, tokenizer
from .graphs import MERGED, write_browser_graphs

VERSION = "4.3"  # The version that exports are written for and tried in
GRAPHS = "onnx"  # The folder that transformers.js looks for graphs in

ENCODERS = ("bert", "distilbert", "electra", "eurobert", "modernbert", "roberta", "roformer", "xlm")
DECODERS = (
    *("arcee", "bloom", "codegen", "cohere", "cohere2", "falcon", "gemma", "gemma2", "gemma3_text", "glm", "gpt2"),
    *("gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_oss", "gptj", "granite", "helium", "llama", "ministral", "mistral"),
    *("mpt", "nanochat", "olmo", "olmo2", "olmo3", "opt", "phi", "phi3", "qwen2", "qwen3", "qwen3_moe", "smollm3"),
    *("stablelm", "starcoder2", "vaultgemma"),
)
KNOWN: dict[str, tuple[str, ...]] = {  # Model types of transformers.js that the zoo can write, by task
    Task.CAUSAL_LM: (*DECODERS, "ernie4_5"),
    Task.SEQ2SEQ_LM: ("bart", "blenderbot", "m2m_100", "marian", "mbart", "t5"),
    Task.MASKED_LM: ENCODERS,
    Task.SEQUENCE_CLASSIFICATION: ENCODERS,
    Task.TOKEN_CLASSIFICATION: ENCODERS,
    Task.FEATURE_EXTRACTION: (*ENCODERS, *DECODERS),
}


class TransformersJsTarget(Target):
    """The configuration of a class of transformers that transformers.js has too, and the graphs that it runs."""

    name = library = "transformers.js"
    summary = (
        "for transformers.js in browsers and Node: graphs, and the configuration of a class that it has; "
        "`--page` adds a page that runs the model"
    )
    by_trial, pages = True, True
    caveats = (
        f"transformers.js {VERSION} looks for an 8-bit graph in browsers unless the configuration names another, which "
        "exports do. It writes greedily or by sampling, and ignores `num_beams`.",
        f"transformers.js {VERSION} asks multi-query models of Falcon's and GPT-BigCode's types for a cache of another "
        "form: another class is taken, or they are refused.",
        f"transformers.js {VERSION} tokenizes differently if a tokenizer removes a string or joins pieces to their "
        "neighbours: such tokenizers are refused, as are those with parts that it lacks.",
    )

    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        """Find the first exact class that transformers.js has too."""
        task = Task(task_of(model))
        known = [name for name in KNOWN[task] if NATIVE.get(name).stack == model.config.stack]
        if not known:
            return TargetPlan.refused(self.name, f"it has no {model.config.stack} for {task.value}")
        if model.num_parameters() > (most := LARGEST_IN_ONE_FILE // 4):
            return TargetPlan.refused(self.name, f"a graph for browsers holds {most:,} parameters at most")
        plans = plan_export(model, known)
        exact = [plan for plan in plans if plan.exact]
        if not exact:
            near = nearest(plans) or min(plans, key=lambda plan: len(plan.obstacles))
            return TargetPlan(self.name, None, None, as_another(near.target, near.obstacles))
        for plan in exact:
            assert plan.route is not None
            if not NATIVE.get(plan.target).write_config(plan.route.config, task).get("multi_query"):
                notes = (*plan.notes, f"To transformers.js it is a model of type {plan.target}.")
                # The way to the class is that of the configuration: graphs hold the model's own weights.
                return TargetPlan(self.name, plan.class_name, None, obstacles(model), notes)
        return TargetPlan.refused(self.name, f"as {exact[0].target}: it takes no multi-query models")

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        """Write the class's configuration, the tokenizer, the graphs, and a page if there shall be one."""
        require("onnx", "onnx", "onnxscript", "onnxruntime")
        runtime = page.find_runtime() if options.page else None
        if options.source is not None:
            tokenizer.carry(options.source, folder)
        if runtime is not None:
            page.require_texts(folder, task_of(model))
        formats = (NATIVE.get(name) for name in KNOWN[task_of(model)])
        native = next(one for one in formats if one.classes.get(task_of(model)) == plan.class_name)
        route = NativeTarget(native).plan(model).route
        assert route is not None
        write_settings(model, folder, native, route, torch.float32)
        # In a browser it would look for a quantised graph.
        change_config(folder, {"transformers.js_config": {"dtype": "fp32"}})
        (folder / GRAPHS).mkdir()
        write_browser_graphs(model, folder / GRAPHS)
        if runtime is not None:
            page.write_page(folder, model, runtime)

    def check(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> Difference:
        """Run the graphs in ONNX Runtime, which transformers.js runs them in."""
        names = {MERGED: DECODER}
        files = sorted((folder / GRAPHS).glob(f"*{GRAPH_ENDING}"))
        with scratch_folder() as settings:
            save_settings(model, settings)
            sessions = {names.get(path.stem, path.stem): OnnxSession(path) for path in files}
            return compare(model, model_of(settings, sessions))

    def notes(self, plan: TargetPlan, options: ExportOptions) -> tuple[str, ...]:
        served = (
            "The page needs a web server, as browsers load no modules from files: "
            "`python -m http.server --bind 127.0.0.1`, for one."
        )
        return (*plan.notes, served) if options.page else plan.notes

    def usage(self, auto_class: str) -> str:
        return (
            "```js\n"
            f'import {{ env, {auto_class}, AutoTokenizer }} from "@huggingface/transformers"; // {VERSION}\n\n'
            'env.localModelPath = "path/to";\n'
            "env.allowRemoteModels = false;\n"
            'const tokenizer = await AutoTokenizer.from_pretrained("this/folder");\n'
            f'const model = await {auto_class}.from_pretrained("this/folder");\n'
            "```\n"
        )

    def run_in(self, own: str) -> str:
        return "run in ONNX Runtime"


TARGETS.register(TransformersJsTarget.name, TransformersJsTarget())
