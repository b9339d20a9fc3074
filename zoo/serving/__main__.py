"""`python -m zoo.serving MODEL ...` is `transformers serve MODEL ...` where the zoo's checkpoints are known.

It needs what `pip install "transformer-zoo[serving]"` brings.
"""

import sys
from typing import Any

from transformers.cli.serving import model_manager
from transformers.cli.transformers import app

from zoo.converters.extras import require
from zoo.errors import ZooError
from zoo.models import TASK_CLASSES
from zoo.tokenizers import leave_open


class PromptManager(model_manager.ModelManager):
    """Loads as transformers' own, but for tokenizers that end a text: a prompt goes on."""

    def _load_processor(self, *args: Any, **kwargs: Any) -> Any:
        tokenizer = super()._load_processor(*args, **kwargs)
        if tokenizer("").input_ids == [tokenizer.eos_token_id]:
            leave_open(tokenizer)
        return tokenizer


try:
    require("serving", "fastapi", "openai", "uvicorn")
except ZooError as error:
    sys.exit(f"zoo: error: {error}")
# It asks no Auto class, but looks there for the name of a checkpoint's class.
for _, model_class in TASK_CLASSES.values():
    setattr(model_manager.transformers, model_class.__name__, model_class)
model_manager.ModelManager = PromptManager

app(["serve", *sys.argv[1:]])
