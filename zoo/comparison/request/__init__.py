"""The request for a comparison, from Python or the command line."""
