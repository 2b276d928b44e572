"""A listener on loopback, to which words of strangers lead: whoever connects to it was believed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Listener:
    """Counts connections, and answers none.

    authority  host:port
    heard      the first bytes of each connection
    """

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.authority = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.heard: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(1)
                try:
                    self.heard.append(connection.recv(65536))
                except OSError:
                    self.heard.append(b"")

    def close(self) -> None:
        self._socket.close()


@contextmanager
def listening() -> Iterator[Listener]:
    """A listener that must not hear anything by the end."""
    listener = Listener()
    try:
        yield listener
    finally:
        listener.close()
    assert listener.heard == [], "a word of a log chose who is asked"
