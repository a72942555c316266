"""Speed: one script per question, every figure a ratio or a median in one run."""
