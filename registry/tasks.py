"""Tasks that a model can be built for."""

from __future__ import annotations

from enum import Enum

from zoo.base.errors import UnknownTaskError


class Task(str, Enum):
    """The tasks, named as on the Hugging Face Hub. The task decides the stack and the head of a model."""

    FEATURE_EXTRACTION = "feature-extraction"
    """Hidden states, no head: `AutoModel`."""
    MASKED_LM = "masked-lm"
    """A bidirectional encoder that predicts masked tokens: `AutoModelForMaskedLM`."""
    SEQUENCE_CLASSIFICATION = "sequence-classification"
    """One label, or one number, a sequence: `AutoModelForSequenceClassification`."""
    TOKEN_CLASSIFICATION = "token-classification"
    """One label a token: `AutoModelForTokenClassification`."""
    CAUSAL_LM = "causal-lm"
    """A causal decoder that predicts the next token: `AutoModelForCausalLM`."""
    SEQ2SEQ_LM = "seq2seq-lm"
    """An encoder and a causal decoder that reads it, as for translation: `AutoModelForSeq2SeqLM`."""

    __str__ = str.__str__


TASKS = tuple(task.value for task in Task)
"""The names of all tasks."""


def require_task(name: str) -> str:
    """Check the name of a task.

    Returns:
        The same, as a plain string.

    Raises:
        UnknownTaskError: When there is no such task.
    """
    if name not in TASKS:
        raise UnknownTaskError(name, TASKS)
    return Task(name).value
