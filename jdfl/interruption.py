"""Ctrl-C that waits for the end of what is under way."""

import signal
import threading
from typing import Any


class Interruption:
    """Notes Ctrl-C in `asked` instead of raising it while a chunk is under way, whose donated state would be lost.

    A second Ctrl-C is raised. Python takes signals in its main thread only; elsewhere, and where somebody handles
    them already, nothing is changed.
    """

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> "Interruption":
        main = threading.current_thread() is threading.main_thread()
        self._replaced = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._replaced:
            signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: Any) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True

    def __exit__(self, *_: object) -> None:
        if self._replaced:
            signal.signal(signal.SIGINT, signal.default_int_handler)
