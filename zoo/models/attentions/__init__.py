"""Attention parts other than multi-head."""
