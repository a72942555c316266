"""A server of one file over HTTP that counts what it sends and breaks where a test wants it to."""

import contextlib
import http.server
import re
import socket
import threading
from collections.abc import Generator
from dataclasses import dataclass, field

OLD = "Mon, 01 Jan 2018 00:00:00 GMT"


@dataclass
class Published:
    """What is served at any address, how, and what was asked and sent, one entry for every request."""

    content: bytes
    head: dict[str, str] = field(default_factory=lambda: {"ETag": '"1"'})
    continues: bool = True  # whether it knows Range
    length: bool = True  # whether it says the length beforehand
    chunked: bool = False
    cuts: list[int] = field(default_factory=list)  # bytes of the next bodies, after which the connection is lost
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # statuses and headers of the next answers
    hold: threading.Event | None = None  # a cut connection stays open until then
    asked: list[dict[str, str]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    address: str = ""

    @property
    def ranges(self) -> list[str | None]:
        """The ranges that were asked for."""
        return [one.get("Range") for one in self.asked]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    published: Published

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        file = self.published
        file.asked.append(dict(self.headers.items()))
        file.sent.append(0)
        at = len(file.sent) - 1
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start, total = (int(asked[1]) if asked else 0), len(file.content)
        same = self.headers.get("If-Range") in (None, file.head.get("ETag"), file.head.get("Last-Modified"))
        status, head = 200, dict(file.head)
        if asked and file.continues and same:
            status = 206 if start < total else 416
            head["Content-Range"] = f"bytes {start}-{total - 1}/{total}" if start < total else f"bytes */{total}"
        body = b"" if status == 416 else file.content[start if status == 206 else 0 :]
        if file.length and not file.chunked:
            head["Content-Length"] = str(len(body))
        if file.chunked:
            head["Transfer-Encoding"] = "chunked"
        if file.answers:
            status, other = file.answers.pop(0)
            head |= other
        self.send_response(status)
        for name, value in head.items():
            self.send_header(name, value)
        self.end_headers()
        cut = file.cuts.pop(0) if file.cuts else None
        with contextlib.suppress(OSError):  # who asked is gone
            for first in range(0, len(body[:cut]), 2**14):
                piece = body[:cut][first : first + 2**14]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if file.chunked else piece)
                file.sent[at] += len(piece)
            if cut is None and file.chunked:
                self.wfile.write(b"0\r\n\r\n")
        if cut is not None or not file.length:
            self.close_connection = True
            if cut is not None and file.hold is not None:
                file.hold.wait(30)
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serving(published: Published) -> Generator[Published]:
    """Serve it at `published.address`."""
    handler = type("_Handler", (_Handler,), {"published": published})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    published.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield published
    finally:
        if published.hold is not None:
            published.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
