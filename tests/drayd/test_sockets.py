"""Listening sockets."""

from __future__ import annotations

import socket

import pytest

from drayd.kinds import HostPort
from drayd.sockets import ListenError, bound_port, open_listeners


def close(listeners: list[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", ""])
def test_all_addresses_of_a_host_share_one_free_port(host: str) -> None:
    listeners = open_listeners(HostPort(host, 0))
    try:
        assert {listener.getsockname()[1] for listener in listeners} == {bound_port(listeners)}
        assert bound_port(listeners) > 0
        with socket.create_connection(("127.0.0.1", bound_port(listeners)), timeout=5):
            pass
    finally:
        close(listeners)


def test_a_port_in_use_is_refused_in_one_sentence() -> None:
    listeners = open_listeners(HostPort("127.0.0.1", 0))
    taken = HostPort("127.0.0.1", bound_port(listeners))
    try:
        with pytest.raises(ListenError, match=f"^Can't listen on {taken}: another process"):
            open_listeners(taken)
    finally:
        close(listeners)
    close(open_listeners(taken))


def test_addresses_that_are_not_ours() -> None:
    # 192.0.2.0/24 is for documentation: no machine has it.
    with pytest.raises(ListenError, match=r"Can't listen on 192\.0\.2\.1:0"):
        open_listeners(HostPort("192.0.2.1", 0))
    with pytest.raises(ListenError, match=r"Can't listen on host\.invalid:0"):
        open_listeners(HostPort("host.invalid", 0))
