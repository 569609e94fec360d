"""Listening sockets, opened before anything else is started.

A name such as localhost often stands for two addresses (IPv4 and IPv6). All of them get the
same port, also when port 0 asks for any free one, which the event loop's own
`create_server` doesn't promise.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from drayd.kinds import HostPort

_Target = tuple[socket.AddressFamily, tuple[object, ...]]

_PORT_TRIES = 20
_MISSING_FAMILY = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class ListenError(Exception):
    """An address can't be listened on; the message is one sentence."""


def open_listeners(address: HostPort, *, backlog: int = 1024) -> list[socket.socket]:
    """Sockets that listen on every address of the host, all on one port.

    They are listening when this returns, so a port that is taken is known at once.
    """
    try:
        found = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise ListenError(f"Can't listen on {address}: {error.strerror}.") from None
    # The same address comes twice where /etc/hosts names it twice.
    targets: dict[_Target, None] = dict.fromkeys((one[0], one[4]) for one in found)
    for attempt in range(_PORT_TRIES):
        try:
            return _open_all(list(targets), address.port, backlog)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            # A free port of one family may be taken in the other: draw again.
            if taken and address.port == 0 and attempt < _PORT_TRIES - 1:
                continue
            reason = "another process uses it" if taken else error.strerror
            raise ListenError(f"Can't listen on {address}: {reason}.") from None
    raise AssertionError("unreachable")


def addresses(counts: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Numbers by address, from numbers by host. Raises ListenError for a host without address."""
    found: dict[str, int] = {}
    for host, count in counts:
        try:
            targets = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ListenError(
                f"max.connections.per.ip.overrides names {host}: {error.strerror}."
            ) from None
        found.update((str(target[4][0]), count) for target in targets)
    return found


def bound_port(listeners: list[socket.socket]) -> int:
    """The port that the listeners share."""
    port: int = listeners[0].getsockname()[1]
    return port


def _open_all(targets: Sequence[_Target], port: int, backlog: int) -> list[socket.socket]:
    opened: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, sockaddr in targets:
            try:
                listener = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                absent = error
                continue
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.setblocking(False)
                listener.bind((sockaddr[0], port, *sockaddr[2:]))
                listener.listen(backlog)
            except OSError as error:
                listener.close()
                if error.errno not in _MISSING_FAMILY:
                    raise
                # localhost may name ::1 on a machine without IPv6.
                absent = error
                continue
            opened.append(listener)
            port = port or listener.getsockname()[1]
    except OSError:
        for listener in opened:
            listener.close()
        raise
    if not opened:
        raise absent or OSError(errno.EADDRNOTAVAIL, "the host has no address")
    return opened
