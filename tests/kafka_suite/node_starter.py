"""Starts nodes for Apache Kafka's tests by forking one warm interpreter.

Reads one JSON object per line from standard input, ``{"arguments": [...], "log": path, "wait":
bool}``, runs the ``ottla`` command with these arguments in a child process, and writes one line:
the exit code of the command if it should wait for it, else the pid. Ends with its standard input.
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import traceback

# What a node imports; the command line comes with `ottla.cli.main`.
ROOMS = ("node", "server", "api", "replication", "raft", "controller", "coordinators", "sharing")
COMMANDS = ("serving", "app", "failures", "server_arguments", "format_command")


def warm_up() -> None:
    """Import what nodes import, once for all of them."""
    for room in ROOMS:
        package = importlib.import_module(f"ottla.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with contextlib.suppress(ImportError):  # modules of extras that are not installed
                importlib.import_module(module.name)
    for command in COMMANDS:
        importlib.import_module(f"ottla.cli.{command}")
    gc.freeze()


def ask_builder(builder: str, listener: str, port: int) -> str:
    """Return the principal that a principal builder of the JVM returns for a connection."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{builder} {listener}".encode())
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile().read()


def replace_principals(principals: dict[str, str]) -> None:
    """Give clients of these listeners a principal, as a principal builder of the JVM does."""
    from ottla.server import request_runner

    caller_of = request_runner.Caller

    def caller(principal: str, client_id: str | None, peer: object, listener: str) -> object:
        if principal == request_runner.ANONYMOUS:
            named = principals.get(listener) or principals.get("*") or principal
            builder, _, port = named.partition("@")
            principal = ask_builder(builder, listener, int(port)) if port else named
        return caller_of(principal, client_id, peer, listener)

    if principals:
        request_runner.Caller = caller


def run(order: dict) -> None:
    """Run the command in this process, which is a child, and end the process."""
    from ottla.cli.main import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 64)
    replace_principals(order["principals"])
    sys.argv = ["ottla", *order["arguments"]]
    code: object = 1
    try:
        code = main()
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def serve() -> None:
    """Serve orders until standard input ends, then kill what still runs."""
    running: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run(order)
        if order["wait"]:
            status = os.waitpid(pid, 0)[1]
            print(os.waitstatus_to_exitcode(status), flush=True)
        else:
            running.add(pid)
            print(pid, flush=True)
        running = {child for child in running if os.waitpid(child, os.WNOHANG)[0] == 0}
    for child in running:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    warm_up()
    serve()
