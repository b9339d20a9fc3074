"""Token mixers of layers without attention."""
