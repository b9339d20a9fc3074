"""A comparison as a page: one file that works offline."""
