"""``ottla migrate``: replace the nodes of a Kafka cluster one by one, and go back."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.connecting.connection_settings import client_properties, resolve_bootstrap
from ottla.cli.connecting.session import with_cluster
from ottla.cli.migration.cluster_check import check_cluster
from ottla.cli.migration.cluster_facts import ClusterFacts
from ottla.cli.migration.directory_check import check_directories
from ottla.cli.migration.directory_facts import look_at
from ottla.cli.migration.findings import Area, Finding, State, by_severity, stops
from ottla.cli.migration.gathering import gather_all, gather_status
from ottla.cli.migration.roll_plan import Step, plan
from ottla.cli.migration.roll_status import Decision, decide
from ottla.cli.migration.settings_check import check_settings
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    BootstrapOption,
    OutputOption,
    answer,
    chosen,
    say,
)
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import Row
from ottla.client.cluster import Cluster, NoBroker, Refused
from ottla.config.addresses import SecurityProtocol
from ottla.config.loading import Loaded, for_listener, load
from ottla.config.problems import ConfigError
from ottla.metadata.features import supported_features
from ottla.node.directories.node_directories import all_directories
from ottla.protocol.faults import Fault
from ottla.security.tls import server_context
from ottla.security.tls_settings import BadTls, tls_settings_of

WATCH_S: Final = 2.0
WAIT_S_DEFAULT: Final = 300.0

app = typer.Typer(
    help="Replace the nodes of a Kafka cluster one by one.",
    no_args_is_help=True,
    add_completion=False,
)


# -- check -----------------------------------------------------------------------


@app.command("check")
def check(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="SERVER.PROPERTIES", help="The settings of a Kafka node."),
    ] = None,
    *,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="List what is supported, too.")
    ] = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Say what of a node and its cluster is supported, ignored, different or a problem.

    Reads the settings, looks at the directories that they name, and asks the running cluster if
    --bootstrap or the client settings name one. Exit code 1: something must be changed first.
    """
    asked = bootstrap or client_properties().get("bootstrap.servers", "")
    if file is None and not asked:
        raise typer.BadParameter("name a server.properties, or brokers with --bootstrap")
    facts = with_cluster(bootstrap, gather_all) if asked else None
    found: list[Finding] = []
    if file is not None:
        found += _check_file(file, None if facts is None else facts.cluster_id)
    if facts is not None:
        ours = {name: (each.min, each.max) for name, each in supported_features().items()}
        found += check_cluster(facts, ours)
    shown = by_severity(found)
    is_table = chosen(context, output) is Output.TABLE
    if is_table and not show_all:
        shown = [each for each in shown if each.state is not State.SUPPORTED]
    answer(context, output, [_finding_row(each) for each in shown])
    say(_summary(found))
    if stops(found):
        raise typer.Exit(1)


def _check_file(path: Path, cluster_id: str | None) -> list[Finding]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        fail(f"{path}: {(error.strerror or str(error)).lower()}")
    except UnicodeDecodeError as error:
        fail(f"{path}: {error}")
    found = check_settings(text, os.environ, _read_text)
    try:
        loaded = load(text, os.environ, (), _read_text)
    except ConfigError:
        return found  # its problems are among the findings
    directories = [look_at(each) for each in all_directories(loaded.broker)]
    found += check_directories(directories, loaded.broker.node_id, cluster_id)
    return found + _check_stores(loaded)


def _check_stores(loaded: Loaded) -> list[Finding]:
    """Open the key stores of each listener with TLS; Java's own format must be converted."""
    found = []
    for listener in loaded.listeners.all:
        if listener.protocol not in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL):
            continue
        subject = f"listener {listener.name}"
        try:
            server_context(tls_settings_of(for_listener(loaded, listener.name)))
        except BadTls as error:
            finding = Finding(
                area=Area.SETTING,
                subject=subject,
                state=State.PROBLEM,
                detail=str(error),
                fix="Convert or correct the key store, and name the new file.",
            )
        else:
            finding = Finding(area=Area.SETTING, subject=subject, state=State.SUPPORTED)
        found.append(finding)
    return found


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _finding_row(found: Finding) -> Row:
    return {
        "area": found.area.value,
        "subject": found.subject,
        "line": found.line or None,
        "state": found.state.value,
        "detail": found.detail,
        "fix": found.fix,
    }


def _summary(found: Sequence[Finding]) -> str:
    counts = {state: sum(each.state is state for each in found) for state in State}
    listed = ", ".join(f"{count} {state.value}" for state, count in counts.items() if count)
    return f"{listed or 'nothing checked'}: {'not ready' if stops(found) else 'ready to migrate'}"


# -- plan ------------------------------------------------------------------------


@app.command("plan")
def show_plan(
    context: typer.Context,
    *,
    back: Annotated[bool, typer.Option("--back", help="Plan the way back to Kafka.")] = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show in which order to replace the nodes, what to type on each, and how to undo it."""
    facts = with_cluster(bootstrap, gather_status)
    brokers = resolve_bootstrap(bootstrap, client_properties())
    steps = plan(facts, brokers, is_back=back)
    if chosen(context, output) is not Output.TABLE:
        answer(context, output, [_step_row(each) for each in steps])
    else:
        for each in steps:
            typer.echo(_step_text(each))
    if not steps:
        say(f"every node runs {'Kafka' if back else 'Ottla'} already")
    decision = decide(facts)
    if not decision.is_safe:
        fail("do not begin yet: " + "; ".join(decision.reasons))


def _step_row(step: Step) -> Row:
    return {
        "step": step.number,
        "node": step.node_id,
        "role": step.role,
        "address": step.address,
        "reason": step.reason,
        "commands": list(step.commands),
        "undo": list(step.undo),
    }


def _step_text(step: Step) -> str:
    lines = [f"{step.number}. node {step.node_id} ({step.role}, {step.address})"]
    lines += [f"   {step.reason}", "   on the node, in the directory of its settings:"]
    lines += [f"     {each}" for each in step.commands]
    return "\n".join([*lines, "   to undo:", *(f"     {each}" for each in step.undo)])


# -- status ----------------------------------------------------------------------


@app.command("status")
def status(
    context: typer.Context,
    *,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="How many nodes there must be.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again until interrupted.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is safe to go on.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Longest time in seconds that --wait takes.")
    ] = WAIT_S_DEFAULT,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show which node runs what, what lags, and whether the next node may be stopped.

    Exit code 0: safe to go on. 1: not safe; the reasons are on stderr.
    """

    async def work(cluster: Cluster) -> Decision:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            facts = await _gather_patiently(cluster, is_patient=wait or watch)
            decision = decide(facts, nodes)
            is_last = not wait or decision.is_safe or loop.time() >= deadline
            if watch or is_last:
                answer(context, output, _status_row(facts, decision))
                say(_outcome(decision))
            if is_last and not watch:
                return decision
            await asyncio.sleep(WATCH_S)

    try:
        decision = with_cluster(bootstrap, work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if not decision.is_safe:
        raise typer.Exit(1)


async def _gather_patiently(cluster: Cluster, *, is_patient: bool) -> ClusterFacts:
    """Gather facts; while nodes restart, brokers may refuse for a moment."""
    for attempt in range(8):
        try:
            return await gather_status(cluster)
        except (Refused, NoBroker, Fault, OSError):
            if not is_patient or attempt == 7:
                raise
        await cluster.pause(attempt)
    raise AssertionError("the last attempt returns or raises")


def _status_row(facts: ClusterFacts, decision: Decision) -> Row:
    return {
        "cluster_id": facts.cluster_id,
        "safe_to_go_on": decision.is_safe,
        "reasons": list(decision.reasons),
        "partitions": len(facts.partitions),
        "under_replicated": decision.under_replicated,
        "under_min_isr": decision.under_min_isr,
        "offline": decision.offline,
        "nodes": [
            {
                "id": each.node_id,
                "software": each.software.value,
                "role": each.role,
                "active_controller": each.is_active_controller,
                "address": each.address,
                "metadata_lag": each.metadata_lag,
                "problem": each.problem,
            }
            for each in facts.nodes
        ],
    }


def _outcome(decision: Decision) -> str:
    if decision.is_safe:
        return "safe to go on: yes"
    return "safe to go on: no, because " + "; ".join(decision.reasons)
