"""What a model reads: tokenizers, tasks with their data and scores, and corpora."""
