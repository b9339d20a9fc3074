"""Jobs are run: where, in which processes, and what each came to."""
