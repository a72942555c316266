"""Studies: runs over values of any settings, side by side where one program can run them, kept as they are done."""

from jdfl.study.study import Study, best_first, keep, one_after_another, together

__all__ = ["Study", "best_first", "keep", "one_after_another", "together"]
