"""Attention parts other than multi-head, one file each."""
