"""The arguments of ``ottla server``, read by argparse.

Typer, which parses all other commands, takes as long to load as the broker itself; argparse takes
3 ms. `ottla.cli.commands.server_command` forwards its arguments to this module.
"""

import argparse
from collections.abc import Sequence

import msgspec

from ottla.cli.terminal.output import Output


class ServerArguments(msgspec.Struct, frozen=True):
    """Arguments of a node. ``overrides`` are ``key=value``, in the order given.

    ``nodes`` is None for a single node without a supervisor.
    """

    config: str
    overrides: tuple[str, ...] = ()
    is_bound_to_input: bool = False
    output: Output = Output.TABLE
    is_rejoining: bool = False
    truncate_metadata_at: int | None = None
    nodes: int | None = None
    port_step: int = 10
    is_supervised: bool = False


def parse_arguments(arguments: Sequence[str]) -> ServerArguments:
    """Parse the arguments after ``server``; exits with 2 and a usage line if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="ottla server",
        description="Run a node; SIGTERM and SIGINT stop it cleanly.",
        allow_abbrev=False,
    )
    parser.add_argument("config", metavar="FILE", type=_file, help="the server.properties")
    parser.add_argument(
        "--override",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=_setting,
        help="set a key in place of the file's value; may be repeated",
    )
    parser.add_argument(
        "--stop-at-end-of-input",
        action="store_true",
        help="stop when standard input is closed",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=[each.value for each in Output],
        default=Output.TABLE.value,
        help="format of the line that says the node is ready",
    )
    parser.add_argument(
        "--log-level",
        metavar="LEVEL",
        type=str.upper,
        choices=["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"],
        help="the level of all loggers, in place of log.level",
    )
    _add_repair_options(parser)
    _add_host_options(parser)
    found = parser.parse_args(arguments)
    if found.nodes is not None and (found.rejoin_quorum or found.truncate_metadata_at is not None):
        parser.error("repair a node on its own, without --nodes")
    if found.log_level is not None:
        found.override.append(f"log.level={found.log_level}")
    return ServerArguments(
        found.config,
        tuple(found.override),
        found.stop_at_end_of_input,
        Output(found.output),
        found.rejoin_quorum,
        found.truncate_metadata_at,
        found.nodes,
        found.port_step,
        found.supervised,
    )


def _add_repair_options(parser: argparse.ArgumentParser) -> None:
    repair = parser.add_mutually_exclusive_group()
    repair.add_argument(
        "--rejoin-quorum",
        action="store_true",
        help="set damaged metadata aside and fetch it again from the other voters",
    )
    repair.add_argument(
        "--truncate-metadata-at",
        metavar="OFFSET",
        type=_offset,
        help="discard all metadata from this offset on, if the log is damaged there",
    )


def _add_host_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nodes",
        metavar="N",
        type=_count,
        help="run N nodes of this machine under a supervisor, with ids, ports and directories "
        "derived from FILE; SIGHUP restarts them one after the other",
    )
    parser.add_argument(
        "--port-step",
        metavar="STEP",
        type=_count,
        default=10,
        help="with --nodes: the distance of the ports of two nodes; default: 10",
    )
    # Set by the supervisor: report the state of the node on standard output.
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)


def _file(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the name of the file is empty")
    return text


def _setting(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not key=value")
    return text


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not an offset")
    return int(text)
