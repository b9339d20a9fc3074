"""Names of files in a GGUF export."""

FILE = "model.gguf"
