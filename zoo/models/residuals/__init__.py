"""Residual connections beyond the plain sum: parts of the registry `RESIDUALS`."""
