"""Serving: OpenAI's API for a model, and the zoo's checkpoints in vLLM."""
