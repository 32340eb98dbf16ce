"""Broker keys: transactions and idempotent producers.

Each row: name, type, default, rule, importance, update mode, description.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import at_least
from ottla.config.values import Type

BOOLEAN = Type.BOOLEAN
SHORT = Type.SHORT
INT = Type.INT
HIGH = Importance.HIGH
LOW = Importance.LOW
READ_ONLY = Update.READ_ONLY
CLUSTER_WIDE = Update.CLUSTER_WIDE

# fmt: off
BROKER_TRANSACTIONS: tuple[Key, ...] = (
    Key("transaction.max.timeout.ms", INT, 900_000, at_least(1), HIGH, READ_ONLY,
        "The maximum transaction timeout that a producer may request."),
    Key("transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH, READ_ONLY,
        "A transactional id unused for this long expires."),
    Key("transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH, READ_ONLY,
        "The number of partitions of __transaction_state; must not be changed later."),
    Key("transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH, READ_ONLY,
        "The replication factor of __transaction_state."),
    Key("transaction.state.log.min.isr", INT, 2, at_least(1), HIGH, READ_ONLY,
        "min.insync.replicas of __transaction_state."),
    Key("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH, READ_ONLY,
        "The segment size of __transaction_state."),
    Key("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH, READ_ONLY,
        "The batch size for reading state when a transaction partition is loaded."),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT, 10_000, at_least(1), LOW, READ_ONLY,
        "How often timed-out transactions are aborted."),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms",
        INT, 3_600_000, at_least(1), LOW, READ_ONLY,
        "How often transactional ids are checked for expiry."),
    Key("transaction.partition.verification.enable", BOOLEAN, True, None, LOW, CLUSTER_WIDE,
        "Verify with the coordinator that a partition is part of the transaction before writing "
        "to it."),
    Key("transaction.two.phase.commit.enable", BOOLEAN, False, None, LOW, READ_ONLY,
        "Enable two-phase commit by an external coordinator; such transactions have no timeout."),
    Key("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), HIGH, READ_ONLY,
        "The backoff before a broker retries to add a partition to a transaction."),
    Key("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), HIGH, READ_ONLY,
        "How long a broker retries to add a partition before it returns an error to the producer."),
    Key("producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW, CLUSTER_WIDE,
        "The state of a producer that wrote nothing for this long expires, open transactions "
        "excepted."),
    Key("producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW, READ_ONLY,
        "How often producers are checked for expiry.", internal=True),
)
# fmt: on
