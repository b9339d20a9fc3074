"""All variants, for tests that need one model of each."""

import zoo

ONE_TASK = {name: task for task in ("seq2seq-lm", "masked-lm", "causal-lm") for name in zoo.list_variants(task=task)}
"""Every variant, with one of its tasks."""
