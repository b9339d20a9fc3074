"""Pushes models, or loads what was pushed, in a process of its own: `models_worker.py VERB FOLDER MODEL...`.

A MODEL is "variant=task". FOLDER holds what each model computed before it was pushed.
"""

import os
import sys
from pathlib import Path
from typing import Any


def repo_of(name: str, task: str) -> str:
    return f"org/{name}-{task}"


def push(folder: Path, name: str, task: str, **options: Any) -> None:
    import zoo
    from zoo.testing.subjects import new_subject

    subject = new_subject(name, task)
    report = zoo.push(subject.model, repo_of(name, task), **options)
    assert report.commit
    keep(subject, folder, name, task)


def keep(subject: Any, folder: Path, name: str, task: str) -> None:
    """Write down what a model is and computes."""
    from safetensors.torch import save_file

    kept = {f"state.{key}": value.clone() for key, value in subject.model.state_dict().items()}
    inputs = {f"inputs.{key}": value for key, value in subject.inputs().items()}
    save_file({**kept, **inputs, "output": subject.run().contiguous()}, folder / f"{name}-{task}.safetensors")


def push_three_ways(folder: Path, name: str, task: str) -> None:
    """Push a model with its code, and where a class of transformers is exact, its export to that class as well."""
    import tempfile

    import zoo
    from zoo.converters.errors import ExportError
    from zoo.testing.subjects import new_subject

    subject = new_subject(name, task)
    keep(subject, folder, name, task)
    with tempfile.TemporaryDirectory() as temporary:
        bundle, native = Path(temporary, "bundle"), Path(temporary, "native")
        zoo.export(subject.model, bundle, "bundle", fresh_process=False)
        assert zoo.push(bundle, repo_of(name, task)).commit
        try:
            report = zoo.export(subject.model, native, fresh_process=False)
        except ExportError:
            return
        assert zoo.push(native, f"{repo_of(name, task)}@native").commit
    changed = report.transforms or subject.model.config.prediction_depth  # modules that only train are left out
    print("native", f"{name}={task}={'changed' if changed else 'as-is'}")


def expected(folder: Path, name: str, task: str) -> tuple[dict[str, Any], dict[str, Any], Any]:
    from safetensors.torch import load_file

    kept = load_file(folder / f"{name}-{task}.safetensors")

    def below(prefix: str) -> dict[str, Any]:
        return {key.removeprefix(prefix): value for key, value in kept.items() if key.startswith(prefix)}

    return below("state."), below("inputs."), kept["output"]


def compare(
    model: Any, folder: Path, name: str, task: str, *, exact: bool = True, same_names: bool = True, most: float = 1e-5
) -> None:
    import torch

    state, inputs, output = expected(folder, name, task)
    if exact and same_names:
        loaded = model.state_dict()
        assert loaded.keys() >= state.keys()
        assert all(torch.equal(loaded[key], state[key]) for key in state)
        # Such as the token types of a BERT that has none: a table of zeros.
        assert not any(loaded[key].any() for key in loaded.keys() - state.keys())
    with torch.no_grad():
        outputs = model.eval()(**inputs)
    got = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    # Weights that lie elsewhere in memory may be added in another order.
    assert torch.allclose(got, output, rtol=0, atol=1e-12 if exact else most), (
        f"{name}, {task}: {(got - output).abs().max()}"
    )


def check_zoo(folder: Path, name: str, task: str) -> None:
    import transformers

    import zoo
    from zoo.models import TASK_CLASSES

    compare(zoo.load(f"hf-hub:{repo_of(name, task)}"), folder, name, task)
    compare(zoo.build(f"hf-hub:{repo_of(name, task)}"), folder, name, task)
    auto_class = getattr(transformers, TASK_CLASSES[task][0])
    compare(auto_class.from_pretrained(repo_of(name, task)), folder, name, task)


def check_load(folder: Path, name: str, task: str, weights: str = "") -> None:
    import zoo

    compare(zoo.load(repo_of(name, task)), folder, name, task)
    if weights == "as-is":
        compare(zoo.load(f"{repo_of(name, task)}@native"), folder, name, task)


def check_code(folder: Path, name: str, task: str) -> None:
    import transformers

    sys.modules["zoo"] = None  # type: ignore[assignment]
    auto_class = getattr(transformers, AUTO_CLASSES[task])
    compare(auto_class.from_pretrained(repo_of(name, task), trust_remote_code=True), folder, name, task)


AUTO_CLASSES = {
    "feature-extraction": "AutoModel",
    "masked-lm": "AutoModelForMaskedLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
}


def check_native(folder: Path, name: str, task: str, weights: str = "") -> None:
    import transformers

    sys.modules["zoo"] = None  # type: ignore[assignment]
    model = getattr(transformers, AUTO_CLASSES[task]).from_pretrained(repo_of(name, task), revision="native")
    # As transformers computes this norm, rotations and ALiBi's slopes for any type of model.
    in_float32 = any(hasattr(model.config, name) for name in ("rms_norm_eps", "rope_parameters", "rotary_dim"))
    in_float32 |= model.config.model_type in ("bloom", "roformer", "t5gemma")
    model.config._experts_implementation = "batched_mm"  # PyTorch's grouped product is not for float64
    exact = weights == "as-is" and not in_float32
    compare(model, folder, name, task, exact=exact, same_names=False, most=2e-5 if in_float32 else 1e-12)


VERBS = {
    "check-native": check_native,
    "push-with-all": lambda *arguments: push(*arguments, with_code=True, native=True),
    "push": push,
    "push-three-ways": push_three_ways,
    "check-zoo": check_zoo,
    "check-load": check_load,
    "check-code": check_code,
}


def refuse_connections() -> None:
    import socket

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a connection was attempted")

    socket.socket.connect = socket.socket.connect_ex = refuse  # type: ignore[method-assign]
    socket.getaddrinfo = socket.create_connection = refuse


def main() -> None:
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        refuse_connections()
    verb, folder, *models = sys.argv[1:]
    for model in models:
        VERBS[verb](Path(folder), *model.split("="))
        print(verb, model, flush=True)


if __name__ == "__main__":
    main()
