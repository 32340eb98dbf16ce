"""The metadata quorum and the APIs of the controller listener.

Requests that a voter or a broker sends are not varied field by field: a newer epoch or a wrong
registration would change the cluster for everything that follows. Each case is harmless.
"""

from collections.abc import Iterator
from uuid import UUID

from tests.differential.catalogue import Case, Play, Ranges
from tests.differential.mutations import UNKNOWN_ID, Plan, cases_of
from tests.differential.script import Script

LOG = "__cluster_metadata"
STRANGER = UUID("99999999-4455-6677-8899-aabbccddeeff")


def _describe(script: Script) -> dict[str, object]:
    return {"topics": [{"topic_name": LOG, "partitions": [{"partition_index": 0}]}]}


def _cluster(script: Script) -> dict[str, object]:
    return {"include_cluster_authorized_operations": True, "endpoint_type": 2}


def _versions(script: Script) -> dict[str, object]:
    return {"client_software_name": "differential", "client_software_version": "1.0"}


def _topic(name: str = LOG, **partition: object) -> list[dict[str, object]]:
    partition = {"partition_index": 0, **partition}
    row = {"topic_name": name, "topic": name, "name": name, "partitions": [partition]}
    return [{**row, "topic_id": UUID(int=1)}]


def _votes(version: int) -> Play:
    def play(script: Script) -> None:
        base = {"replica_epoch": 0, "replica_id": 7, "last_offset_epoch": 0, "last_offset": 0}
        for label, cluster, topics in (
            ("wrong cluster", "other", _topic(**base)),
            ("another topic", None, _topic("x", **base)),
            ("no topics", None, []),
            ("older epoch", None, _topic(**base)),
            ("epoch -1", None, _topic(**{**base, "replica_epoch": -1})),
            ("older epoch, pre-vote", None, _topic(**base, pre_vote=True)),
            ("offset -1", None, _topic(**{**base, "last_offset": -1})),
            ("last epoch above", None, _topic(**{**base, "last_offset_epoch": 5})),
        ):
            values = {"cluster_id": cluster, "voter_id": 1, "topics": topics}
            script.call("vote", version, label, to_controller=True, **values)
        values = {"cluster_id": None, "voter_id": 9, "topics": _topic(**base)}
        script.call("vote", version, "another voter", to_controller=True, **values)

    return play


def _epochs(api: str, version: int) -> Play:
    def play(script: Script) -> None:
        base = {"leader_id": 1, "leader_epoch": 0, "preferred_successors": []}
        for label, cluster, topics in (
            ("wrong cluster", "other", _topic(**base)),
            ("another topic", None, _topic("x", **base)),
            ("no topics", None, []),
            ("older epoch", None, _topic(**base)),
            ("unknown leader", None, _topic(**{**base, "leader_id": 9})),
        ):
            values = {"cluster_id": cluster, "voter_id": 1, "topics": topics}
            script.call(api, version, label, to_controller=True, **values)

    return play


def _fetches(version: int) -> Play:
    def play(script: Script) -> None:
        part = {"partition": 0, "current_leader_epoch": 0, "fetch_offset": 0}
        part |= {"last_fetched_epoch": 0, "log_start_offset": -1, "partition_max_bytes": 1}
        base = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1}
        for label, name, topic_id, changes in (
            ("older epoch", LOG, UUID(int=1), {}),
            ("newer epoch", LOG, UUID(int=1), {"current_leader_epoch": 1 << 30}),
            ("another topic", "x", UNKNOWN_ID, {}),
            ("another partition", LOG, UUID(int=1), {"partition": 3}),
        ):
            topics = [{"topic": name, "topic_id": topic_id, "partitions": [{**part, **changes}]}]
            script.call("fetch", version, label, to_controller=True, **base, topics=topics)
        topics = [{"topic": LOG, "topic_id": UUID(int=1), "partitions": [part]}]
        script.call(
            "fetch",
            version,
            "wrong cluster",
            to_controller=True,
            **base,
            topics=topics,
            cluster_id="x",
        )

    return play


def _snapshots(version: int) -> Play:
    def play(script: Script) -> None:
        part = {"partition": 0, "current_leader_epoch": -1, "position": 0}
        part["snapshot_id"] = {"end_offset": 1 << 40, "epoch": 0}
        for label, name, changes in (
            ("unknown snapshot", LOG, {}),
            ("newer epoch", LOG, {"current_leader_epoch": 1 << 30}),
            ("older epoch", LOG, {"current_leader_epoch": 0}),
            ("another topic", "x", {}),
            ("another partition", LOG, {"partition": 3}),
            ("position -1", LOG, {"position": -1}),
        ):
            topics = [{"name": name, "partitions": [{**part, **changes}]}]
            values = {"replica_id": -1, "max_bytes": 100, "topics": topics}
            script.call("fetch_snapshot", version, label, to_controller=True, **values)

    return play


def _registrations(version: int) -> Play:
    def play(script: Script) -> None:
        listener = {"name": "PLAINTEXT", "host": "127.0.0.1", "port": 1, "security_protocol": 0}
        base = {"broker_id": 77, "cluster_id": "other", "incarnation_id": STRANGER}
        base |= {"listeners": [listener], "features": [], "rack": None, "log_dirs": [STRANGER]}
        feature = {
            "name": "metadata.version",
            "min_supported_version": 1,
            "max_supported_version": 2,
        }
        ours = "4L6g3nShT-eMCtK--X86sw"
        for label, changes in {
            "wrong cluster": {},
            "id in use": {"broker_id": 1, "cluster_id": ours},
            "no features": {"cluster_id": ours},
            "old features": {"cluster_id": ours, "features": [feature]},
            "migrating": {"cluster_id": ours, "is_migrating_zk_broker": True},
        }.items():
            values = {**base, **changes}
            script.call("broker_registration", version, label, to_controller=True, **values)

    return play


def _brokers(script: Script) -> None:
    for version in (0, 1, 2):
        for broker, epoch in ((77, 0), (1, 999_999), (-1, 0)):
            script.call(
                "broker_heartbeat",
                version,
                f"broker {broker} epoch {epoch} v{version}",
                to_controller=True,
                broker_id=broker,
                broker_epoch=epoch,
                current_metadata_offset=0,
            )
    for broker, epoch in ((77, 0), (1, 999_999)):
        values = {"broker_id": broker, "broker_epoch": epoch}
        label = f"broker {broker} epoch {epoch}"
        script.call("allocate_producer_ids", 0, label, to_controller=True, **values)
        directories = [{"id_": STRANGER, "topics": []}]
        values["directories"] = directories
        script.call("assign_replicas_to_dirs", 0, label, to_controller=True, **values)
        for version in (2, 3):
            isr = [{"broker_id": 1, "broker_epoch": -1}]
            part = {"partition_index": 0, "leader_epoch": 0, "new_isr": [1]}
            part |= {"new_isr_with_epochs": isr, "partition_epoch": 0}
            topics = [{"topic_id": UNKNOWN_ID, "partitions": [part]}]
            values = {"broker_id": broker, "broker_epoch": epoch, "topics": topics}
            script.call(
                "alter_partition", version, f"{label} v{version}", to_controller=True, **values
            )


def _voters(to_controller: bool) -> Play:
    def play(script: Script) -> None:
        listener = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}
        for version in (0, 1):
            for cluster in (None, "other"):
                values = {"cluster_id": cluster, "timeout": 1000, "voter_id": 5}
                values |= {"voter_directory_id": STRANGER, "listeners": [listener]}
                script.call(
                    "add_raft_voter",
                    version,
                    f"add, {cluster} v{version}",
                    to_controller=to_controller,
                    **values,
                )
        for cluster, voter in ((None, 5), ("other", 5), (None, 1)):
            values = {"cluster_id": cluster, "voter_id": voter, "voter_directory_id": STRANGER}
            label = f"remove {voter}, {cluster}"
            script.call("remove_raft_voter", 0, label, to_controller=to_controller, **values)
        if to_controller:
            values = {"cluster_id": None, "current_leader_epoch": 0, "voter_id": 5}
            values |= {"voter_directory_id": STRANGER, "listeners": [listener]}
            script.call("update_raft_voter", 0, "update", to_controller=True, **values)

    return play


def _envelopes(script: Script) -> None:
    for label, data, principal, address in (
        ("garbage", b"xx", b"xx", b"\x7f\0\0\1"),
        ("no principal", b"xx", None, b"\x7f\0\0\1"),
        ("no address", b"xx", None, b""),
        ("empty", b"", b"", b"\x7f\0\0\1"),
    ):
        values = {"request_data": data, "request_principal": principal}
        script.call("envelope", 0, label, to_controller=True, **values, client_host_address=address)


def _same_at_controller(script: Script) -> None:
    """APIs of clients that the controller listener serves, too."""
    to = {"to_controller": True}
    script.call(
        "describe_configs",
        4,
        **to,
        resources=[{"resource_type": 2, "resource_name": "quorum-none", "configuration_keys": []}],
    )
    script.call(
        "create_topics",
        7,
        **to,
        topics=[{"name": "a b", "num_partitions": 1, "replication_factor": 1}],
    )
    script.call("delete_topics", 6, **to, topics=[{"name": "quorum-none"}], timeout=10_000)
    script.call(
        "elect_leaders", 2, **to, topic_partitions=[{"topic": "quorum-none", "partitions": [0]}]
    )
    script.call("list_partition_reassignments", 0, **to, topics=None)
    script.call(
        "describe_acls",
        3,
        **to,
        resource_type_filter=1,
        operation=1,
        permission_type=1,
        pattern_type_filter=1,
    )
    script.call("unregister_broker", 0, **to, broker_id=77)
    script.call("metadata", 12, "not for controllers", **to, topics=[])


def cases(ranges: Ranges) -> Iterator[Case]:
    yield from cases_of(Plan("describe_quorum", _describe), "quorum", ranges)
    at_controller = Ranges({}, ranges.controller)
    for api, template in (
        ("describe_quorum", _describe),
        ("describe_cluster", _cluster),
        ("api_versions", _versions),
    ):
        plan = Plan(api, template, to_controller=True)
        for case in cases_of(plan, "quorum", at_controller):
            yield Case(case.name.replace(f"/{api}/", f"/{api} at the controller/"), case.play)
    for version in at_controller.of("vote"):
        yield Case(f"quorum/votes/v{version}", _votes(version))
    for api in ("begin_quorum_epoch", "end_quorum_epoch"):
        for version in at_controller.of(api):
            yield Case(f"quorum/{api}/v{version}", _epochs(api, version))
    for version in at_controller.of("fetch"):
        yield Case(f"quorum/fetch/v{version}", _fetches(version))
    for version in at_controller.of("fetch_snapshot"):
        yield Case(f"quorum/fetch snapshot/v{version}", _snapshots(version))
    for version in at_controller.of("broker_registration"):
        yield Case(f"quorum/registrations/v{version}", _registrations(version))
    yield Case("quorum/brokers", _brokers)
    yield Case("quorum/voters", _voters(False))
    yield Case("quorum/voters at the controller", _voters(True))
    yield Case("quorum/envelopes", _envelopes)
    yield Case("quorum/client APIs at the controller", _same_at_controller)
