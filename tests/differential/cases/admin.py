"""Quotas, SCRAM users, ACLs, tokens, features, telemetry, SASL."""

from collections.abc import Iterator
from uuid import UUID

from tests.differential.catalogue import Case, Play, Ranges
from tests.differential.mutations import Plan, cases_of
from tests.differential.script import Script
from tests.differential.steps import settle

PLENTY = 1e12  # a quota that never holds anybody up


def _describe_quotas(script: Script) -> dict[str, object]:
    component = {"entity_type": "user", "match_type": 0, "match": "quota-user"}
    return {"components": [component], "strict": False}


def _alter_quotas(script: Script) -> dict[str, object]:
    entity = [{"entity_type": "user", "entity_name": "quota-user"}]
    ops = [{"key": "producer_byte_rate", "value": PLENTY, "remove": False}]
    return {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}


QUOTA_ENTRIES: dict[
    str, list[tuple[list[tuple[str, str | None]], list[tuple[str, float, bool]]]]
] = {
    "user and client": [
        ([("user", "q"), ("client-id", "c")], [("producer_byte_rate", PLENTY, False)])
    ],
    "client and user": [
        ([("client-id", "d"), ("user", "q")], [("consumer_byte_rate", PLENTY, False)])
    ],
    "several keys": [
        (
            [("user", "q")],
            [("producer_byte_rate", PLENTY, False), ("request_percentage", 9e9, False)],
        )
    ],
    "ip": [([("ip", "192.0.2.1")], [("connection_creation_rate", 1000.0, False)])],
    "ip that is none": [([("ip", "no address")], [("connection_creation_rate", 1.0, False)])],
    "ip and user": [
        ([("ip", "192.0.2.1"), ("user", "u")], [("connection_creation_rate", 1.0, False)])
    ],
    "ip with a user's key": [([("ip", "192.0.2.1")], [("producer_byte_rate", 1.0, False)])],
    "user with an ip's key": [([("user", "q")], [("connection_creation_rate", 1.0, False)])],
    "a type twice": [([("user", "q"), ("user", "r")], [("producer_byte_rate", PLENTY, False)])],
    "an entity twice": [
        ([("user", "tw")], [("producer_byte_rate", PLENTY, False)]),
        ([("user", "tw")], [("consumer_byte_rate", PLENTY, False)]),
    ],
    "no entity": [([], [("producer_byte_rate", PLENTY, False)])],
    "no ops": [([("user", "q")], [])],
    "unknown type": [([("planet", "x")], [("producer_byte_rate", PLENTY, False)])],
    "unknown key": [([("user", "q")], [("no_such_rate", PLENTY, False)])],
    "a key twice": [
        (
            [("user", "q")],
            [("producer_byte_rate", 2e12, False), ("producer_byte_rate", 3e12, False)],
        )
    ],
    "fraction": [([("user", "q")], [("producer_byte_rate", 10.5, False)])],
    "negative": [([("user", "q")], [("producer_byte_rate", -1.0, False)])],
    "zero": [([("user", "zero")], [("producer_byte_rate", 0.0, False)])],
    "too large": [([("user", "q")], [("producer_byte_rate", 1e300, False)])],
    "remove what is not there": [([("user", "none")], [("producer_byte_rate", 0.0, True)])],
    "remove": [([("user", "q")], [("producer_byte_rate", 0.0, True)])],
    "empty name": [([("user", "")], [("producer_byte_rate", PLENTY, False)])],
    "good and bad": [
        ([("user", "gb")], [("producer_byte_rate", PLENTY, False)]),
        ([("user", "gb2")], [("no_such_rate", PLENTY, False)]),
    ],
}


def _quotas(version: int) -> Play:
    def play(script: Script) -> None:
        for label, entries in QUOTA_ENTRIES.items():
            rows = [
                {
                    "entity": [{"entity_type": k, "entity_name": n} for k, n in entity],
                    "ops": [{"key": k, "value": v, "remove": r} for k, v, r in ops],
                }
                for entity, ops in entries
            ]
            script.call("alter_client_quotas", version, label, entries=rows)
        settle(script)
        for label, components in {
            "all": [],
            "any user": [("user", 2, None)],
            "default user": [("user", 1, None)],
            "exact": [("user", 0, "q")],
            "exact, no name": [("user", 0, None)],
            "any with a name": [("user", 2, "q")],
            "user and client": [("user", 0, "q"), ("client-id", 2, None)],
            "user twice": [("user", 0, "q"), ("user", 0, "r")],
            "ip": [("ip", 2, None)],
            "ip and user": [("ip", 2, None), ("user", 2, None)],
            "unknown type": [("planet", 2, None)],
            "empty type": [("", 2, None)],
            "match type 3": [("user", 3, None)],
        }.items():
            rows = [{"entity_type": k, "match_type": m, "match": n} for k, m, n in components]
            for strict in (False, True):
                script.call(
                    "describe_client_quotas",
                    version,
                    f"{label}, strict {strict}",
                    components=rows,
                    strict=strict,
                )

    return play


def _describe_users(script: Script) -> dict[str, object]:
    return {"users": [{"name": "scram-user"}]}


def _alter_users(script: Script) -> dict[str, object]:
    upsertion = {"name": f"{script.name}-u", "mechanism": 1, "iterations": 4096}
    upsertion |= {"salt": b"salt", "salted_password": b"p" * 32}
    return {"deletions": [], "upsertions": [upsertion]}


def _delete_users(script: Script) -> dict[str, object]:
    return {"deletions": [{"name": "scram-user", "mechanism": 1}], "upsertions": []}


def _users(script: Script) -> None:
    def upsert(name: str, mechanism: int = 1, iterations: int = 4096, size: int = 32) -> dict:
        row = {"name": name, "mechanism": mechanism, "iterations": iterations}
        return {**row, "salt": b"salt", "salted_password": b"p" * size}

    for label, deletions, upsertions in (
        ("two mechanisms", [], [upsert("a"), upsert("a", 2, size=64)]),
        ("twice", [], [upsert("b"), upsert("b")]),
        ("deleted and made", [("a", 1)], [upsert("a")]),
        ("few iterations", [], [upsert("c", iterations=4095)]),
        ("many iterations", [], [upsert("c", iterations=16385)]),
        ("mechanism 0", [], [upsert("c", 0)]),
        ("mechanism 3", [], [upsert("c", 3)]),
        ("delete", [("a", 1)], []),
        ("delete again", [("a", 1)], []),
        ("delete twice", [("a", 2), ("a", 2)], []),
        ("delete mechanism 9", [("a", 9)], []),
        ("good and bad", [], [upsert("d"), upsert("", 1)]),
    ):
        rows = [{"name": name, "mechanism": mechanism} for name, mechanism in deletions]
        values = {"deletions": rows, "upsertions": upsertions}
        script.call("alter_user_scram_credentials", 0, label, **values)
        for users in (None, [{"name": "a"}], [{"name": "a"}, {"name": "a"}], []):
            script.call("describe_user_scram_credentials", 0, f"{label}, {users}", users=users)


def _acl_filter(script: Script) -> dict[str, object]:
    row = {"resource_type": 2, "resource_type_filter": 2, "resource_name_filter": "t"}
    row |= {"pattern_type_filter": 3, "principal_filter": "User:a", "host_filter": "*"}
    return {**row, "operation": 3, "permission_type": 3}


def _create_acls(script: Script) -> dict[str, object]:
    row = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3}
    row |= {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    return {"creations": [row]}


def _delete_acls(script: Script) -> dict[str, object]:
    return {"filters": [_acl_filter(script)]}


def _create_token(script: Script) -> dict[str, object]:
    values = {"owner_principal_type": "User", "owner_principal_name": "a"}
    renewers = [{"principal_type": "User", "principal_name": "b"}]
    return {**values, "renewers": renewers, "max_lifetime": 60_000}


def _token(script: Script) -> dict[str, object]:
    return {"hmac": b"hmac", "renew_period": 1000, "expiry_time_period": 1000}


def _describe_tokens(script: Script) -> dict[str, object]:
    return {"owners": [{"principal_type": "User", "principal_name": "a"}]}


def _features(script: Script) -> dict[str, object]:
    update = {"feature": "no.such.feature", "max_version_level": 2, "upgrade_type": 1}
    update["allow_downgrade"] = False
    return {"timeout": 10_000, "feature_updates": [update], "validate_only": True}


FEATURES = {
    "same level": ("transaction.version", 2, 1),
    "downgrade as upgrade": ("transaction.version", 1, 1),
    "safe downgrade": ("transaction.version", 1, 2),
    "unsafe downgrade": ("transaction.version", 1, 3),
    "too high": ("transaction.version", 99, 1),
    "zero": ("transaction.version", 0, 2),
    "negative": ("transaction.version", -1, 2),
    "group version": ("group.version", 0, 2),
    "share version": ("share.version", 0, 2),
    "streams version": ("streams.version", 0, 2),
    "metadata version": ("metadata.version", 25, 2),
    "metadata version unsafe": ("metadata.version", 25, 3),
    "metadata version old": ("metadata.version", 1, 3),
    "metadata version new": ("metadata.version", 99, 1),
    "metadata version same": ("metadata.version", 29, 1),
    "kraft version": ("kraft.version", 1, 1),
    "kraft version down": ("kraft.version", 0, 2),
    "eligible leaders": ("eligible.leader.replicas.version", 1, 1),
    "type 0": ("transaction.version", 1, 0),
    "type 9": ("transaction.version", 1, 9),
}


def _trial_features(version: int) -> Play:
    def play(script: Script) -> None:
        for label, (feature, level, kind) in FEATURES.items():
            update = {"feature": feature, "max_version_level": level, "upgrade_type": kind}
            update["allow_downgrade"] = kind > 1
            values = {"timeout": 10_000, "feature_updates": [update], "validate_only": True}
            script.call("update_features", version, label, **values)
        one = {"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}
        values = {"timeout": 10_000, "feature_updates": [one, one], "validate_only": True}
        script.call("update_features", version, "a feature twice", **values)

    return play


def _subscriptions(script: Script) -> dict[str, object]:
    return {"client_instance_id": UUID(int=1 << 64)}


def _push(script: Script) -> dict[str, object]:
    values = {"client_instance_id": UUID(int=1 << 64), "subscription_id": 1}
    return {**values, "terminating": False, "compression_type": 0, "metrics": b""}


def _telemetry(script: Script) -> None:
    first = script.call("get_telemetry_subscriptions", 0, "new")
    values = {"client_instance_id": first.get("client_instance_id", UUID(int=0))}
    values["subscription_id"] = first.get("subscription_id", 0)
    script.call("push_telemetry", 0, "push", **values, terminating=False, metrics=b"")
    script.call("push_telemetry", 0, "last push", **values, terminating=True, metrics=b"")
    script.call("push_telemetry", 0, "after the last", **values, terminating=True, metrics=b"")


def _handshake(script: Script) -> dict[str, object]:
    return {"mechanism": "PLAIN"}


def _authenticate(script: Script) -> dict[str, object]:
    return {"auth_bytes": b"\0user\0password"}


def _unregister(script: Script) -> dict[str, object]:
    return {"broker_id": 77}


def cases(ranges: Ranges) -> Iterator[Case]:
    # Not sent for real: features would change for all that follows.
    skip = frozenset({"validate_only=false"})
    for api, template in (
        ("describe_client_quotas", _describe_quotas),
        ("alter_client_quotas", _alter_quotas),
        ("describe_user_scram_credentials", _describe_users),
        ("alter_user_scram_credentials", _alter_users),
        ("describe_acls", _acl_filter),
        ("create_acls", _create_acls),
        ("delete_acls", _delete_acls),
        ("create_delegation_token", _create_token),
        ("renew_delegation_token", _token),
        ("expire_delegation_token", _token),
        ("describe_delegation_token", _describe_tokens),
        ("update_features", _features),
        ("get_telemetry_subscriptions", _subscriptions),
        ("push_telemetry", _push),
        ("sasl_handshake", _handshake),
        ("sasl_authenticate", _authenticate),
        ("unregister_broker", _unregister),
    ):
        yield from cases_of(Plan(api, template, skip=skip), "admin", ranges)
    for case in cases_of(Plan("alter_user_scram_credentials", _delete_users), "admin", ranges):
        yield Case(case.name.replace("alter_user_scram", "delete_user_scram"), case.play)
    for version in ranges.of("alter_client_quotas"):
        yield Case(f"admin/quotas/v{version}", _quotas(version))
    for version in ranges.of("update_features")[1:]:  # the first one cannot only validate
        yield Case(f"admin/features/v{version}", _trial_features(version))
    yield Case("admin/scram users", _users)
    yield Case("admin/telemetry", _telemetry)
