"""The command line: one file a verb, each a thin skin over a function of the library."""
