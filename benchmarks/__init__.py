"""Speed: one script per question; every figure is a ratio or a median within one run."""
