"""Speed: one script per question; every figure is a ratio or a median within one run."""

import os

os.environ.setdefault("JDFL_CACHE", "0")  # compiling is measured, too
