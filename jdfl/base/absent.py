"""What stands in for objects that files do not hold."""

from typing import Any


class Absent:
    """Stands in a loaded result for an object that files do not hold, and says so when it is used.

    Args:
        what: What is missing, such as "the algorithm".
        described: The algorithm of the run in words.
        remedy: What to do instead, as sentences.
    """

    def __init__(self, what: str, described: str, remedy: str) -> None:
        self.what, self.described, self.remedy = what, described, remedy

    def __str__(self) -> str:
        return f"Expected a result of jdfl.run, got a loaded one, whose files do not hold {self.what}. {self.remedy}"

    def __repr__(self) -> str:
        return f"<not stored: {self.what} of {self.described}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(str(self))
