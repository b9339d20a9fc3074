"""Hints of every command: examples at the end of its help, and the next command after its output on a terminal."""

from __future__ import annotations

import functools
import shlex
from typing import Any

import click
from rich.text import Text

from .output import is_read, write

EXAMPLES = {
    "list": ('zoo list "*-norm"', "zoo list --task causal-lm --sort char-lm"),
    "show": ("zoo show vanilla", "zoo show pre-norm:position=rotary --code"),
    "weights list": ("zoo weights list", 'zoo weights list "*.en-pt" --task seq2seq-lm'),
    "weights show": ("zoo weights show vanilla.en-pt", "zoo weights show gpt2-style.char-en --json"),
    "weights make": ("zoo weights make vanilla.en-pt", "zoo weights make vanilla.language -o out"),
    "weights verify": ("zoo weights verify --quick", "zoo weights verify vanilla.en-pt"),
    "diff": ("zoo diff vanilla vanilla+faithful", "zoo diff pre-norm post-norm --svg difference.svg"),
    "eject": ("zoo eject llama-style -o model.py", "zoo eject vanilla.en-pt -o model.py"),
    "params": ("zoo params llama-style@base", "zoo params vanilla:hidden_size=128 --every-layer"),
    "summary": ("zoo summary llama-style@base", "zoo summary vanilla --batch-size 2 --seq-len 16"),
    "attention": (
        'zoo attention vanilla.en-pt --source "The water is cold." -o attention',
        'zoo attention model --source "Hello." --target "Olá." -o attention --force',
    ),
    "explore": ("zoo explore", 'zoo explore vanilla.en-pt vanilla.en-pt-faithful --text "The water is cold."'),
    "settings": ("zoo settings", "zoo settings position"),
    "coordinates": ("zoo coordinates pre-norm", "zoo coordinates gpt2-style --widths 64,128,256 --parametrization mup"),
    "tasks": ("zoo tasks", "zoo tasks --json"),
    "recipes": ("zoo recipes", "zoo recipes small-translation"),
    "tokenizers": ("zoo tokenizers", "zoo tokenizers --json"),
    "build": (
        "zoo build pre-norm@tiny -o model --force",
        "zoo build llama-style --task causal-lm --set vocab_size=8000 -o out",
    ),
    "new plugin": ("zoo new plugin --norm my-norm", "zoo new plugin --variant my-variant"),
    "plan": ("zoo plan llama-style@base", "zoo plan llama-style@base --devices 8 --memory 80GiB --seq-len 2048"),
    "train": (
        "zoo train pre-norm --recipe small-translation -o model",
        "zoo train gpt2-style@small --task language-modeling --data book.txt --max-steps 500 -o model",
    ),
    "generate": (
        'zoo generate vanilla.en-pt "The water is cold."',
        'zoo generate gpt2-style.char-en "The " --do-sample --max-new-tokens 40',
    ),
    "predict": ('zoo predict vanilla.language "A água está fria."', "zoo predict model -f texts.csv --columns text"),
    "evaluate": ("zoo evaluate vanilla.language", "zoo evaluate model --heldout test.tsv --report errors"),
    "compare": (
        "zoo compare pre-norm post-norm --task copy:length=5 --budget steps=100",
        "zoo compare vanilla vanilla+faithful --task translation --seeds 3 -o out",
    ),
    "bench list": ("zoo bench list", "zoo bench list --json"),
    "bench run": ("zoo bench run quirks --quick", "zoo bench run char-lm llama-style --seeds 3"),
    "bench show": ("zoo bench show quirks", "zoo bench show char-lm --baseline llama-style"),
    "bench verify": ("zoo bench verify quirks", "zoo bench verify char-lm --rows 2"),
    "claims": ("zoo claims", "zoo claims ngpt"),
    "convert": ("zoo convert old.pt -o new", "zoo convert old.pt --from d2l -o new --force"),
    "export": ("zoo export vanilla.en-pt -o out --force", "zoo export vanilla.language -o out --as onnx --dtype int8"),
    "push": ("zoo push model org/name --dry-run", "zoo push vanilla.en-pt org/name --private --license mit"),
    "pull": ("zoo pull org/name", "zoo pull org/name models/mine --revision v1"),
    "data list": ("zoo data list", "zoo data list --json"),
    "data get": ("zoo data get tinyshakespeare", "zoo data get blimp --force"),
    "data remove": ("zoo data remove tinyshakespeare", "zoo data remove --prepared"),
    "data prepare": (
        "zoo data prepare books --tokenizer bpe:vocab_size=8000 -o prepared/books",
        "zoo data prepare book.txt --tokenizer character -o prepared/book",
    ),
    "doctor": ("zoo doctor", "zoo doctor --json"),
    "env": ("zoo env", "zoo env --json"),
    "completion": ("zoo completion bash", "zoo completion fish"),
}
"""Two commands to try, by verb, with its group's before it."""

NEXT = {
    "list": "zoo show NAME",
    "show": "zoo build {name} -o DIR",
    "weights list": "zoo weights show NAME",
    "weights show": "zoo explore {name}",
    "weights make": "zoo weights verify",
    "diff": "zoo compare {a} {b} --seeds 3",
    "params": "zoo plan {name}",
    "summary": "zoo show --code NAME",
    "attention": "zoo explore {model}",
    "settings": "zoo build NAME --set SETTING=VALUE -o DIR",
    "coordinates": "zoo train {name} --parametrization mup -o DIR",
    "tasks": "zoo train NAME --task TASK -o DIR",
    "recipes": "zoo train NAME --recipe RECIPE -o DIR",
    "tokenizers": "zoo train NAME --tokenizer KIND -o DIR",
    "build": "zoo summary {output}",
    "generate": "zoo attention {model} --source TEXT -o DIR",
    "predict": "zoo evaluate {model}",
    "evaluate": "zoo push {model} OWNER/NAME",
    "claims": "zoo bench run BENCHMARK --record",
    "bench list": "zoo bench show NAME",
    "bench show": "zoo bench run {name} VARIANT",
    "bench run": "zoo bench verify {name}",
    "eject": "zoo diff NAME NAME --code",
    "convert": "zoo summary {output}",
    "export": "zoo push {output} OWNER/NAME",
    "push": "zoo pull {repo_id}",
    "pull": "zoo explore {repo_id}",
    "doctor": "zoo plan NAME",
    "data list": "zoo data get NAME",
    "data get": "zoo data prepare NAME",
    "data remove": "zoo data list --prepared",
    "data prepare": "zoo train NAME --data {output}",
}
"""The next command by verb, with what the verb was given. `train`, `compare` and `plan` print their own."""


def with_hints(command: click.Command, verb: str) -> None:
    """Add examples to a command's help, and the next command to its output on a terminal without --json."""
    if verb in EXAMPLES:
        command.epilog = "\b\n" + "\n".join(("Examples:", *(f"  {one}" for one in EXAMPLES[verb])))
    callback = command.callback
    if verb not in NEXT or callback is None or hasattr(callback, "__wrapped__"):
        return

    @functools.wraps(callback)
    def run(*args: Any, **given: Any) -> Any:
        result = callback(*args, **given)
        if not given.get("as_json") and is_read():
            write(Text(f"\nNext: {next_command(verb, given)}", style="dim"))
        return result

    command.callback = run


def next_command(verb: str, given: dict[str, Any]) -> str:
    words = {name: name.upper() if value is None else shlex.quote(str(value)) for name, value in given.items()}
    return NEXT[verb].format_map(words)
