"""Attacks from outside, counted: damaged folders, wrong arguments, and wrong words and files on the command line.

`python -m tests.robustness` says what came of them. Every input follows from the seed and its number alone, so that
any of them can be repeated: `python -m tests.robustness --part calls --only 17`.
"""
