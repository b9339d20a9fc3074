"""The five documents' own arithmetic, written as plainly as they write it, under their parameters' names."""
