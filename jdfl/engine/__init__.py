"""What runs: the loop and its rounds, stop rules, metrics, results, checkpoints, and what a run has spent."""
