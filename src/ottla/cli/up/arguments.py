"""The options of ``ottla up`` on the command line."""

from pathlib import Path
from typing import Annotated, Final

import typer

DATA: Final = Path("ottla-data")

DataOption = Annotated[Path, typer.Option("--data", "-d", help="Data directory of the cluster.")]
NodesOption = Annotated[
    int | None,
    typer.Option(
        "--nodes", "-n", help="Number of nodes; default: those of an existing cluster, else 1."
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        "--port",
        "-p",
        show_default="9092",
        help="Port of the first node; the others use the next ones.",
    ),
]
SecureOption = Annotated[
    bool,
    typer.Option(
        "--secure", help="Use TLS and passwords on all listeners, and print client settings."
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "-c", metavar="KEY=VALUE", help="Server setting of all nodes; may be repeated; KEY= resets."
    ),
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="File of server settings of all nodes."),
]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        show_default="127.0.0.1",
        help="Address to listen at; 0.0.0.0 for clients of other machines.",
    ),
]
AdvertisedHostOption = Annotated[
    str | None,
    typer.Option("--advertised-host", help="Name or address that clients use."),
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="Return once it is ready; see `ottla up stop`.")
]
# Of the process that --detach starts: read the options from standard input, print no secret.
DetachedOption = Annotated[bool, typer.Option("--detached", hidden=True)]
