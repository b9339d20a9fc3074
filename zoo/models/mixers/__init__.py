"""Token mixers of layers without attention, a file each."""
