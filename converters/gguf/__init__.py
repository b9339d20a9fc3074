"""GGUF: a model and its tokenizer in one file for llama.cpp, by way of the class of transformers that it exports to."""
