"""The connections a process group opened: gloo has no abort, so they are told by /proc."""

from __future__ import annotations

import errno
import os
import socket


def own() -> dict[int, str]:
    """Return this process's sockets: descriptor -> name that no other socket ever has."""
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        if name.startswith("socket:"):
            found[fd] = name
    return found


def since(before: dict[int, str]) -> dict[int, str]:
    """Return the sockets opened since `before` was taken."""
    return {fd: name for fd, name in own().items() if before.get(fd) != name}


def shut(opened: dict[int, str]) -> None:
    """End those connections that still are: whoever waits in one of them hears it."""
    now = own()
    for fd, name in opened.items():
        if now.get(fd) == name:
            _shut(fd)


def _shut(fd: int) -> None:
    """End both directions of a connection; one that has ended or only listens is left.

    gloo's own thread may close it at any moment: then there is nothing left to end.
    """
    try:
        with socket.socket(fileno=os.dup(fd)) as held:
            if not held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                held.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        if error.errno not in (errno.ENOTCONN, errno.EBADF):
            raise
