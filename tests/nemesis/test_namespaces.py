"""Network namespaces: one direction is cut, the other stays open, and all is repaired."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.nemesis.namespaces import Net, missing, networks

WAIT_S = 0.4
HEAR = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
    ear.bind((sys.argv[1], 7777))
    ear.settimeout(float(sys.argv[2]))
    print("listening", flush=True)
    try:
        print(ear.recv(100).decode(), flush=True)
    except TimeoutError:
        print("nothing", flush=True)
"""
SAY = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
    mouth.sendto(b"hello", (sys.argv[1], 7777))
"""


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    why = missing()
    if why is not None:
        pytest.skip(why)
    with networks(2) as made:
        yield made


def receives(net: Net, sender: int, receiver: int) -> bool:
    """Return whether a datagram gets from one node's network into another's."""
    ear = subprocess.Popen(
        [*net.command(receiver), sys.executable, "-S", "-c", HEAR, net.host(receiver), str(WAIT_S)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ear.stdout is not None
    assert ear.stdout.readline() == "listening\n"
    say = [*net.command(sender), sys.executable, "-S", "-c", SAY, net.host(receiver)]
    subprocess.run(say, check=False, timeout=10, stderr=subprocess.DEVNULL)
    received = ear.communicate(timeout=10)[0]
    return received == "hello\n"


def test_one_direction_is_cut_and_healed(net: Net) -> None:
    assert receives(net, 1, 2) and receives(net, 2, 1)
    net.cut([(1, 2)])
    assert not receives(net, 1, 2)
    assert receives(net, 2, 1), "only one way was cut"
    net.heal()
    assert receives(net, 1, 2)


def test_link_is_unplugged_and_plugged_in(net: Net) -> None:
    net.unplug(2)
    assert not receives(net, 1, 2)
    net.heal()
    assert receives(net, 1, 2)
