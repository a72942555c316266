"""Ctrl-C, SIGTERM and SIGHUP that wait for the end of the current chunk."""

import signal
import threading
from typing import Any, Literal

_SIGNALS = {  # and who handles them usually
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,  # the terminal was closed
}


class Interruption:
    """Notes a signal in `asked` instead of acting on it while a chunk is under way, whose donated state would be lost.

    A second signal raises KeyboardInterrupt. Python handles signals in its main thread only; in other threads, and
    where a handler is installed already, nothing is changed.
    """

    def __init__(self) -> None:
        self.asked: Literal["interrupted", "terminated"] | None = None
        self._replaced: list[signal.Signals] = []

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            self._replaced = [number for number, usual in _SIGNALS.items() if signal.getsignal(number) is usual]
        for number in self._replaced:
            signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: Any) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = "interrupted" if number == signal.SIGINT else "terminated"

    def __exit__(self, *_: object) -> None:
        for number in self._replaced:
            signal.signal(number, _SIGNALS[number])
