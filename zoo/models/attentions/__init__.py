"""Attentions beyond the usual one, a file each."""
