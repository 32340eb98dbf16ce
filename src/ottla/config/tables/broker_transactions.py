"""Broker keys: transactions and idempotent producers.

Each row: name, type, default, rule, importance, when a change takes effect, what it means.
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
        "The longest transaction a producer may ask for."),
    Key("transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH, READ_ONLY,
        "A transactional id unused for this long is forgotten."),
    Key("transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH, READ_ONLY,
        "How many partitions __transaction_state gets; not to be changed later."),
    Key("transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH, READ_ONLY,
        "How many replicas __transaction_state gets."),
    Key("transaction.state.log.min.isr", INT, 2, at_least(1), HIGH, READ_ONLY,
        "min.insync.replicas of __transaction_state."),
    Key("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH, READ_ONLY,
        "Segment size of __transaction_state."),
    Key("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH, READ_ONLY,
        "How many bytes are read at once while a transaction shard loads."),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT, 10_000, at_least(1), LOW, READ_ONLY,
        "How often transactions past their timeout are aborted."),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms",
        INT, 3_600_000, at_least(1), LOW, READ_ONLY,
        "How often transactional ids are checked for expiry."),
    Key("transaction.partition.verification.enable", BOOLEAN, True, None, LOW, CLUSTER_WIDE,
        "Ask the coordinator whether a partition is part of the transaction before writing to it."),
    Key("transaction.two.phase.commit.enable", BOOLEAN, False, None, LOW, READ_ONLY,
        "Let an outside coordinator decide transactions, which then have no timeout."),
    Key("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), HIGH, READ_ONLY,
        "The pause before a broker asks again to add a partition to a transaction."),
    Key("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), HIGH, READ_ONLY,
        "How long a broker keeps asking before the producer has to."),
    Key("producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW, CLUSTER_WIDE,
        "State of a producer that wrote nothing for this long is dropped, open transactions "
        "apart."),
    Key("producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW, READ_ONLY,
        "How often producers are checked for expiry.", internal=True),
)
# fmt: on
