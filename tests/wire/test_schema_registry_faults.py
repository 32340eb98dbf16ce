"""Ids of the schema registry while the leader of its topic is killed, cut off and paused."""

from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from registry_load import Registrations, check_ids, leader_of_schemas

from ottla.testing.cluster import Cluster, run_cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with run_cluster(3, processes=True, schema_registry=True) as cluster:
        with SchemaRegistryClient({"url": urls_of(cluster)[0]}) as client:
            client.register_schema("first", Schema('"int"', "AVRO"))
        yield cluster


def urls_of(cluster: Cluster) -> list[str]:
    return cluster.schema_registry_url.split(",")


def test_ids_stay_unique_while_the_leader_of_the_topic_is_killed(cluster: Cluster) -> None:
    with Registrations(urls_of(cluster), threads=4) as load:
        for _ in range(2):
            load.wait_more(40)
            leader = leader_of_schemas(cluster)
            cluster.kill(leader)
            load.wait_more(40)
            cluster.start(leader)
    check_ids(urls_of(cluster), load.answered)


def test_ids_stay_unique_while_the_leader_of_the_topic_is_cut_off(cluster: Cluster) -> None:
    """The other nodes still reach its registry over HTTP; what it cannot replicate is no answer."""
    with Registrations(urls_of(cluster), threads=4) as load:
        load.wait_more(40)
        cluster.isolate(leader_of_schemas(cluster))
        load.wait_more(20)
        cluster.heal()
        load.wait_more(40)
    check_ids(urls_of(cluster), load.answered)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_ten_thousand_registrations_under_faults_have_one_id_each(cluster: Cluster) -> None:
    with Registrations(urls_of(cluster), threads=6) as load:
        while len(load.answered) < 10_000:
            for fault in ("kill", "cut", "pause"):
                load.wait_more(150)
                leader = leader_of_schemas(cluster)
                match fault:
                    case "kill":
                        cluster.kill(leader)
                        load.wait_more(50)
                        cluster.start(leader)
                    case "cut":
                        cluster.isolate(leader)
                        load.wait_more(20)
                        cluster.heal()
                    case _:
                        cluster.pause(leader)
                        load.wait_more(20)
                        cluster.resume(leader)
    check_ids(urls_of(cluster), load.answered)
