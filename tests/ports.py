"""Ports for servers that must be told one."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port of loopback that nobody has at this moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
