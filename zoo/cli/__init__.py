"""The command line: one file a verb or a few that are alike, each a thin skin over a function of the library."""
