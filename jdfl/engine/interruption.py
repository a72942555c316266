"""Ctrl-C, SIGTERM and SIGHUP that wait for the end of the current chunk."""

import signal
import threading
from typing import Any, ClassVar, Literal

_SIGNALS = {  # and who handles them usually; put back in the reverse order, since the first may raise an exception
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,  # the terminal was closed
}


class Interruption:
    """Notes a signal in `asked` instead of acting on it while a chunk is under way, whose donated state would be lost.

    A signal that ended nothing (`settle`) is raised again at the end, for its usual handler. A second signal raises
    KeyboardInterrupt. Inside another Interruption its signals are seen, and remain to it. Python handles signals in its
    main thread only; in other threads, and where another handler is installed, nothing is changed.
    """

    _outermost: ClassVar["Interruption | None"] = None

    def __init__(self) -> None:
        self._noted: int | None = None
        self._replaced: list[signal.Signals] = []
        self._around: Interruption | None = None

    @property
    def asked(self) -> Literal["interrupted", "terminated"] | None:
        """What a signal asks for."""
        noted = (self._around or self)._noted
        return None if noted is None else "interrupted" if noted == signal.SIGINT else "terminated"

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            self._around = Interruption._outermost
            if self._around is None:
                Interruption._outermost = self
                self._replaced = [number for number, usual in _SIGNALS.items() if signal.getsignal(number) is usual]
        for number in self._replaced:
            signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: Any) -> None:
        if self._noted is not None:
            self._noted = None
            signal.default_int_handler(number, frame)
        self._noted = number

    def note(self) -> None:
        """Note a KeyboardInterrupt that was caught."""
        self._noted = signal.SIGINT

    def settle(self, ending: str) -> None:
        """Forget the signal if work has ended by it, as an `ending` of a run says; those around are still to end."""
        if ending in ("interrupted", "terminated"):
            self._noted = None

    def __exit__(self, *_: object) -> None:
        if Interruption._outermost is self:
            Interruption._outermost = None
        for number in reversed(self._replaced):
            signal.signal(number, _SIGNALS[number])
        if self._noted is None:
            return
        if self._around is not None:
            self._around.note()
        elif self._noted in self._replaced:
            signal.raise_signal(self._noted)
        else:
            raise KeyboardInterrupt
