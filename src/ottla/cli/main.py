"""Entry point of ``ottla``. Prints the version without loading anything else."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C before or between the handlers of a command ends it quietly."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from ottla.cli.terminal.standard_streams import open_closed_streams

        open_closed_streams()
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        from ottla.cli.terminal.standard_streams import fail_with

        fail_with(error)
    finally:
        _finish()


def _finish() -> None:
    """Write what is left of standard output here: a failure at exit would be a traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        from ottla.cli.terminal.standard_streams import fail_with

        fail_with(error)


def _run() -> None:
    if sys.argv[1:] == ["--version"]:
        from importlib.metadata import version

        sys.stdout.write(f"ottla {version('ottla')}\n")
        return
    if sys.argv[1:2] == ["server"]:
        from ottla.runtime.collector import hold

        hold()
        from ottla.cli.commands.server_arguments import parse_arguments
        from ottla.cli.terminal.failures import report_errors_in

        arguments = parse_arguments(sys.argv[2:])
        report_errors_in(arguments.output)
        if arguments.nodes is not None:
            from ottla.cli.host.supervisor import serve_host

            serve_host(arguments)
            return
        from ottla.cli.commands.serving import serve

        serve(arguments)
        return
    from ottla.cli.app import app

    app()


if __name__ == "__main__":
    main()
