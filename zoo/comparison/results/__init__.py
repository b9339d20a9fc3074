"""What the runs found: metrics, statistics, and a summary with a row a variant."""
