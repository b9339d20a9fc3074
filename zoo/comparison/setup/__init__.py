"""From what is asked for to runs: shared inputs, matched sizes, budgets as updates, jobs."""
