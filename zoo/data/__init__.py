"""Data of models: tokenizers, tasks with their data and scores, and corpora."""
