"""Results: metrics, statistics, and a summary with a row per variant."""
