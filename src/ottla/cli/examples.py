"""Examples that ``--help`` shows, one or two for each command.

Each is a whole command line. Tests parse all of them, and run those that need nothing but a node.
"""

from typing import Any, Final

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "up": ("ottla up", "ottla up --nodes 3 --secure"),
    "up status": ("ottla up status",),
    "up stop": ("ottla up stop",),
    "up logs": ("ottla up logs --node 1 --lines 50", "ottla up logs --follow"),
    "topic list": ("ottla topic list", "ottla topic list --internal -o json"),
    "topic create": (
        "ottla topic create orders --partitions 6",
        "ottla topic create prices --config cleanup.policy=compact --if-not-exists",
    ),
    "topic describe": ("ottla topic describe orders",),
    "topic alter": ("ottla topic alter orders --partitions 12 --config retention.ms=86400000",),
    "topic delete": ("ottla topic delete orders",),
    "topic offsets": ("ottla topic offsets orders", "ottla topic offsets orders --time earliest"),
    "topic reassign": (
        "ottla topic reassign orders --to 1,2,3 --wait",
        "ottla topic reassign orders --replication-factor 3 --throttle 50000000",
    ),
    "topic elect": ("ottla topic elect orders",),
    "produce": (
        "echo 'lars:good morning' | ottla produce greetings -K :",
        "ottla produce orders --json records.jsonl",
    ),
    "consume": ("ottla consume greetings -e -K :", "ottla consume orders -o -10 -e --json"),
    "sql": (
        "ottla sql 'select key, count(*) from greetings group by key'",
        "ottla sql 'select * from orders' --format orders=json --from 1h",
    ),
    "schema list": ("ottla schema list",),
    "schema get": ("ottla schema get orders-value", "ottla schema get orders-value 2"),
    "schema diff": ("ottla schema diff orders-value 1 2",),
    "schema register": (
        "ottla schema register orders-value order.avsc",
        "ottla schema register orders-value order.avsc --reference shop.Item=item-value:1",
    ),
    "schema check": ("ottla schema check orders-value order.avsc",),
    "schema compat": ("ottla schema compat orders-value", "ottla schema compat orders-value FULL"),
    "schema mode": ("ottla schema mode orders-value READONLY",),
    "schema delete": ("ottla schema delete orders-value 1",),
    "config get": ("ottla config get topic orders retention.ms",),
    "config describe": (
        "ottla config describe topic orders",
        "ottla config describe broker 1 --all",
    ),
    "config set": (
        "ottla config set topic orders retention.ms=86400000",
        "ottla config set topic orders --delete retention.ms",
    ),
    "client-metrics list": ("ottla client-metrics list",),
    "client-metrics describe": ("ottla client-metrics describe latency",),
    "client-metrics set": (
        "ottla client-metrics set latency --metrics org.apache.kafka.producer. --interval 60000",
    ),
    "client-metrics delete": ("ottla client-metrics delete latency",),
    "cluster info": ("ottla cluster info",),
    "cluster health": ("ottla cluster health",),
    "cluster drain": ("ottla cluster drain 3 --wait",),
    "cluster unregister": ("ottla cluster unregister 3",),
    "cluster quorum describe": ("ottla cluster quorum describe",),
    "cluster quorum add": (
        "ottla cluster quorum add --config server.properties",
        "ottla cluster quorum add 4 --address kafka-4.example.org:9093",
    ),
    "cluster quorum remove": ("ottla cluster quorum remove 2",),
    "cluster quorum unregister": ("ottla cluster quorum unregister 2",),
    "cluster features describe": ("ottla cluster features describe",),
    "cluster features upgrade": (
        "ottla cluster features upgrade --release-version 4.3 --dry-run",
        "ottla cluster features upgrade --feature share.version=1",
    ),
    "cluster features downgrade": (
        "ottla cluster features downgrade --release-version 4.2 --dry-run",
    ),
    "group list": ("ottla group list", "ottla group list --type share"),
    "group describe": ("ottla group describe billing",),
    "group lag": ("ottla group lag billing", "ottla group lag billing --watch"),
    "group explain": ("ottla group explain billing",),
    "group delete": ("ottla group delete billing",),
    "group reset-offsets": (
        "ottla group reset-offsets billing --topic orders --to-earliest",
        "ottla group reset-offsets billing --all-topics --by-duration PT1H --execute",
    ),
    "console": ("ottla console", "ottla console --bootstrap kafka:9092 --read-only"),
    "mcp": ("ottla mcp", "ottla mcp --profile local --allow-changes"),
    "top": ("ottla top", "ottla top --count 1 --rows 20"),
    "share list": ("ottla share list",),
    "share describe": ("ottla share describe workers",),
    "share offsets": ("ottla share offsets workers",),
    "share reset-offsets": (
        "ottla share reset-offsets workers --topic orders --to-earliest --execute",
    ),
    "share delete-offsets": ("ottla share delete-offsets workers orders",),
    "share delete": ("ottla share delete workers",),
    "txn list": ("ottla txn list", "ottla txn list --state Ongoing"),
    "txn describe": ("ottla txn describe payments-1",),
    "txn abort": ("ottla txn abort payments-1",),
    "txn hanging": ("ottla txn hanging", "ottla txn hanging --topic orders"),
    "dlq list": ("ottla dlq list",),
    "dlq show": ("ottla dlq show dlq.orders --limit 5",),
    "dlq redrive": (
        "ottla dlq redrive dlq.orders --all --dry-run",
        "ottla dlq redrive dlq.orders --reason timeout --to orders-retry --rate 100",
    ),
    "dlq drop": ("ottla dlq drop dlq.orders --at 0:17",),
    "user create": ("ottla user create alice", "ottla user create shop --password-file secret"),
    "user set-password": ("ottla user set-password alice --password-file secret",),
    "user list": ("ottla user list",),
    "user delete": ("ottla user delete alice",),
    "acl add": (
        "ottla acl add --allow-principal User:shop --producer --topic orders",
        "ottla acl add --allow-principal User:shop --consumer --topic orders --group billing",
    ),
    "acl list": ("ottla acl list", "ottla acl list --topic orders"),
    "acl check": ("ottla acl check --principal User:shop --operation write --topic orders",),
    "acl remove": (
        "ottla acl remove --allow-principal User:shop --operation write --topic orders --force",
    ),
    "quota set": (
        "ottla quota set --client loader producer_byte_rate=1000000",
        "ottla quota set --user-default request_percentage=50",
    ),
    "quota remove": ("ottla quota remove --client loader producer_byte_rate",),
    "quota list": ("ottla quota list",),
    "token create": ("ottla token create --renewer User:scheduler",),
    "token renew": ("ottla token renew HMAC",),
    "token expire": ("ottla token expire HMAC",),
    "token list": ("ottla token list",),
    "cert create": ("ottla cert create kafka-1 --host kafka-1.example.org",),
    "profile list": ("ottla profile list",),
    "profile show": ("ottla profile show production",),
    "profile set": (
        "ottla profile set production --file client.properties",
        "ottla profile set local bootstrap.servers=localhost:9092",
    ),
    "profile remove": ("ottla profile remove local",),
    "pipeline init": ("ottla pipeline init shop",),
    "pipeline run": ("ottla pipeline run shop", "ottla pipeline run shop --every 600"),
    "pipeline status": ("ottla pipeline status shop",),
    "pipeline stop": ("ottla pipeline stop shop",),
    "pipeline report": ("ottla pipeline report shop",),
    "pipeline table": ("ottla pipeline table orders.toml",),
    "pipeline tables": ("ottla pipeline tables --warehouse /data/tables",),
    "pipeline catalog": ("ottla pipeline catalog --pattern 'shop.*'",),
    "migrate check": ("ottla migrate check server.properties",),
    "migrate plan": ("ottla migrate plan",),
    "migrate status": ("ottla migrate status --watch",),
    "mirror run": ("ottla mirror run --from old:9092 --to new:9092 --topics 'shop.*'",),
    "mirror status": ("ottla mirror status --from old:9092 --to new:9092",),
    "mirror switch-over": ("ottla mirror switch-over --from old:9092 --to new:9092",),
    "logdir list": ("ottla logdir list", "ottla logdir list 1 --partitions"),
    "logdir move": ("ottla logdir move orders --broker 1 --to /disk2/ottla --wait",),
    "tier status": ("ottla tier status", "ottla tier status orders"),
    "tier list": ("ottla tier list orders",),
    "tier verify": ("ottla tier verify --settings server.properties",),
    "log dump": ("ottla log dump ottla-data/node-1/orders-0 --records",),
    "log verify": ("ottla log verify ottla-data/node-1",),
    "doctor": ("ottla doctor",),
    "server": ("ottla server server.properties", "ottla server server.properties --nodes 3"),
    "format": (
        "ottla format --config server.properties --standalone",
        "ottla format --config server.properties --cluster-id ID --no-initial-controllers",
    ),
    "random-uuid": ("ottla random-uuid",),
}


def add_examples(command: Any, path: str) -> None:  # noqa: ANN401 - typer brings its own click
    """Append the examples to the help of a command and of its subcommands."""
    examples = EXAMPLES.get(path)
    if examples:
        # typer joins single lines; paragraphs stay lines of their own.
        command.epilog = "\n\n".join(("Examples:", *(f"$ {line}" for line in examples)))
    for name, subcommand in getattr(command, "commands", {}).items():
        add_examples(subcommand, f"{path} {name}")
