"""Position encodings beyond the usual ones, a file each."""
