"""A comparison for people: on a terminal, in documents, and as a report for a browser."""
