"""``ottla acl``: access control lists, with the options of ``kafka-acls.sh``."""

from typing import Annotated

import typer

from ottla.cli.commands.acl_options import (
    BadAclOptions,
    Entries,
    Pattern,
    Resources,
    acls_of,
    check_principal,
    filters_of,
    operation_of,
)
from ottla.cli.connecting.session import permission_hint, with_cluster
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer, say
from ottla.cli.terminal.rendering import Row
from ottla.client.admin import Resource, describe_configs
from ottla.client.admin_security import create_acls, delete_acls, list_acls
from ottla.client.cluster import Cluster, Refused
from ottla.config.unenforced import ALLOW_EVERYONE, SUPER_USERS
from ottla.operations.acl_explaining import BrokerRules, explain_decision, rules_of
from ottla.security.acl import (
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
    Subject,
)

app = typer.Typer(help="List, add and remove ACLs.", no_args_is_help=True, add_completion=False)

Names = list[str] | None
AllowOption = Annotated[
    Names,
    typer.Option(
        "--allow-principal", help="Principal to allow: User:NAME, or User:* for every user."
    ),
]
DenyOption = Annotated[
    Names,
    typer.Option(
        "--deny-principal", help="Principal to deny: User:NAME. A deny overrides an allow."
    ),
]
_HOST_HELP = "An address, or a range of addresses such as 10.1.0.0/16; any address without it."
AllowHostOption = Annotated[Names, typer.Option("--allow-host", help=_HOST_HELP)]
DenyHostOption = Annotated[Names, typer.Option("--deny-host", help=_HOST_HELP)]
OperationOption = Annotated[
    Names, typer.Option("--operation", help="read, write, create, describe, alter, all, ...")
]
TopicOption = Annotated[Names, typer.Option("--topic", help="Topic name; '*' for all topics.")]
GroupOption = Annotated[Names, typer.Option("--group", help="Group id; '*' for all groups.")]
TransactionalOption = Annotated[Names, typer.Option("--transactional-id", help="Of producers.")]
TokenOption = Annotated[Names, typer.Option("--delegation-token", help="Token id.")]
UserOption = Annotated[
    Names, typer.Option("--user-principal", help="User whose delegation tokens are accessed.")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
PrefixedOption = Annotated[
    bool,
    typer.Option("--prefixed", help="Match names as prefixes: the pattern type prefixed."),
]
PatternOption = Annotated[
    Pattern,
    typer.Option(
        "--resource-pattern-type",
        metavar="TYPE",
        help="Pattern type of the names: literal, prefixed, match or any.",
    ),
]


@app.command("add")
def add(  # noqa: PLR0913 - one per option of Kafka's tool
    context: typer.Context,
    *,
    allow_principal: AllowOption = None,
    deny_principal: DenyOption = None,
    allow_host: AllowHostOption = None,
    deny_host: DenyHostOption = None,
    operation: OperationOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalOption = None,
    delegation_token: TokenOption = None,
    user_principal: UserOption = None,
    cluster: ClusterOption = False,
    producer: Annotated[
        bool, typer.Option("--producer", help="All operations that a producer to --topic needs.")
    ] = False,
    consumer: Annotated[
        bool,
        typer.Option(
            "--consumer", help="All operations that a consumer of --topic in --group needs."
        ),
    ] = False,
    prefixed: PrefixedOption = False,
    resource_pattern_type: PatternOption = Pattern.LITERAL,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Add access control entries."""
    entries = _entries(allow_principal, deny_principal, allow_host, deny_host, operation)
    resources = _resources(
        topic, group, transactional_id, delegation_token, user_principal, cluster
    )
    pattern = Pattern.PREFIXED if prefixed else resource_pattern_type
    try:
        acls = acls_of(resources, entries, pattern, is_producer=producer, is_consumer=consumer)
    except BadAclOptions as error:
        raise typer.BadParameter(str(error)) from error
    with_cluster(bootstrap, lambda brokers: create_acls(brokers, acls))
    answer(context, output, [_row(each) for each in acls])


@app.command("list")
def show(  # noqa: PLR0913 - one per option of Kafka's tool
    context: typer.Context,
    *,
    principal: Annotated[
        Names, typer.Option("--principal", help="Show only entries of this principal: User:NAME.")
    ] = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalOption = None,
    delegation_token: TokenOption = None,
    user_principal: UserOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    resource_pattern_type: PatternOption = Pattern.ANY,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """List access control entries; --resource-pattern-type match shows all that apply to a name."""
    resources = _resources(
        topic, group, transactional_id, delegation_token, user_principal, cluster
    )
    pattern = Pattern.PREFIXED if prefixed else resource_pattern_type
    wanted = filters_of(resources, Entries(), pattern)

    async def work(brokers: Cluster) -> list[Acl]:
        found: dict[Acl, None] = {}
        for each in wanted:
            found |= dict.fromkeys(await list_acls(brokers, each))
        return [acl for acl in found if not principal or acl.principal in principal]

    rows = [_row(each) for each in sorted(with_cluster(bootstrap, work), key=_key)]
    answer(context, output, rows, empty="no access control entries match")


@app.command("check")
def check(  # noqa: PLR0913 - one per kind of resource
    context: typer.Context,
    *,
    principal: Annotated[str, typer.Option("--principal", help="Principal to check: User:NAME.")],
    operation: Annotated[str, typer.Option("--operation", help="Operation: read, write, ...")],
    host: Annotated[str, typer.Option("--host", help="Address of the client.")] = "127.0.0.1",
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalOption = None,
    delegation_token: TokenOption = None,
    user_principal: UserOption = None,
    cluster: ClusterOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Explain whether a principal may do something, and what decides; exit 1: not allowed."""
    resources = _resources(
        topic, group, transactional_id, delegation_token, user_principal, cluster
    ).named()
    if len(resources) != 1:
        raise typer.BadParameter("name one resource: --topic, --group, --cluster, ...")
    try:
        asked = operation_of(operation)
        check_principal(principal)
    except BadAclOptions as error:
        raise typer.BadParameter(str(error)) from error
    every = filters_of(Resources(), Entries(), Pattern.ANY)[0]

    async def work(brokers: Cluster) -> tuple[list[Acl], BrokerRules]:
        return await list_acls(brokers, every), await _read_rules(brokers)

    acls, rules = with_cluster(bootstrap, work)
    found = explain_decision(acls, Subject(principal, host), asked, resources[0], rules)
    row: Row = {
        "allowed": found.is_allowed,
        "reason": found.reason,
        "entry": None if found.entry is None else _row(found.entry),
    }
    answer(context, output, row)
    if not found.is_allowed:
        raise typer.Exit(1)


async def _read_rules(cluster: Cluster) -> BrokerRules:
    """Read the settings of a broker that decide beside the entries."""
    keys = (SUPER_USERS, ALLOW_EVERYONE)
    try:
        configs = await describe_configs(cluster, Resource.BROKER, str(min(cluster.nodes)), keys)
    except Refused as refused:
        return BrokerRules(obstacle=f"{refused}{permission_hint(refused, cluster.last_api)}")
    return rules_of({each.name: each.value for each in configs})


@app.command("remove")
def remove(  # noqa: PLR0913 - one per option of Kafka's tool
    context: typer.Context,
    *,
    allow_principal: AllowOption = None,
    deny_principal: DenyOption = None,
    allow_host: AllowHostOption = None,
    deny_host: DenyHostOption = None,
    operation: OperationOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalOption = None,
    delegation_token: TokenOption = None,
    user_principal: UserOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    resource_pattern_type: PatternOption = Pattern.LITERAL,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Do not ask for confirmation.")
    ] = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Remove the access control entries that the options select, and list them."""
    entries = _entries(allow_principal, deny_principal, allow_host, deny_host, operation)
    resources = _resources(
        topic, group, transactional_id, delegation_token, user_principal, cluster
    )
    pattern = Pattern.PREFIXED if prefixed else resource_pattern_type
    try:
        wanted = filters_of(resources, entries, pattern)
    except BadAclOptions as error:
        raise typer.BadParameter(str(error)) from error
    if not resources.named() and not force:
        typer.confirm("This selects entries of every resource. Remove them?", abort=True, err=True)
    removed = with_cluster(bootstrap, lambda brokers: delete_acls(brokers, wanted))
    if not removed:
        say("nothing matched")
    answer(context, output, [_row(each) for each in sorted(removed, key=_key)])


def _entries(
    allow: Names, deny: Names, allow_hosts: Names, deny_hosts: Names, operations: Names
) -> Entries:
    return Entries(
        allow_principals=allow or (),
        deny_principals=deny or (),
        allow_hosts=allow_hosts or (),
        deny_hosts=deny_hosts or (),
        operations=operations or (),
    )


def _resources(
    topics: Names, groups: Names, transactional: Names, tokens: Names, users: Names, cluster: bool
) -> Resources:
    return Resources(
        topics=topics or (),
        groups=groups or (),
        transactional_ids=transactional or (),
        delegation_tokens=tokens or (),
        users=users or (),
        is_cluster=cluster,
    )


def _key(acl: Acl) -> tuple[int, str, str, int]:
    return acl.resource_type, acl.resource_name, acl.principal, acl.operation


def _row(acl: Acl) -> Row:
    return {
        "resource": ResourceType(acl.resource_type).name.lower(),
        "name": acl.resource_name,
        "pattern": PatternType(acl.pattern_type).name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": AclOperation(acl.operation).name.lower(),
        "permission": PermissionType(acl.permission_type).name.lower(),
    }
