"""An S3 server on this machine, behind a connection that breaks when it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Breaking:
    """A proxy before a server on loopback.

    Attributes:
        port: On which it listens.
        cut_after: The bytes that each of the next `cuts` connections carries in one direction before it breaks; None
            for no end.
        cuts: How many connections are still to be broken.
        broken: How many were.
        refuses: Whether every connection is closed as soon as it is made.
    """

    def __init__(self, server: int) -> None:
        self.server = server
        self.cut_after: int | None = None
        self.cuts = self.broken = 0
        self.refuses = False
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End; connections that are open stay so."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def mend(self) -> None:
        """Break nothing more."""
        self.cut_after, self.cuts, self.broken, self.refuses = None, 0, 0, False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self.server))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        carried = 0
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 14):
                carried += len(data)
                if self.refuses or self._breaks(carried):
                    break
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _breaks(self, carried: int) -> bool:
        with self._lock:
            if self.cut_after is None or self.cuts <= 0 or carried < self.cut_after:
                return False
            self.cuts -= 1
            self.broken += 1
            return True


@contextlib.contextmanager
def breaking(server: int) -> Iterator[Breaking]:
    """A proxy while the block lasts."""
    proxy = Breaking(server)
    try:
        yield proxy
    finally:
        proxy.close()
