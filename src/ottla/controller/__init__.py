"""The active controller: which records to write for a request, and what to reply.

Here: decisions, each a pure function of the newest state (committed or not) and of a request, that
returns records and a reply; and the service that runs them. Not here: replicating the records
(`raft`) and their meaning (`metadata`). Start reading at `decision.py`, then `brokers.py` and
`topic_creation.py`; `active_controller.py` runs the decisions.

The service
    active_controller    decides, appends, and replies once the records are committed
    periodic_tasks       fences brokers, rebalances leaders, removes expired tokens
    recovery_loop        runs unclean recovery; log_polls asks brokers for the ends of their logs
    decide_once          decides a forwarded request once, even if it is sent again

What decisions share
    decision             the form of a decision; the newest state
    decision_settings    the configuration that decisions need
    draft                the partition changes of one decision
    leader_and_isr       a partition's next state: ISR, leader, replicas, ELR
    partition_index      partitions that need attention
    bootstrap            the first records of a new cluster

Brokers and controllers
    brokers              registration, fencing, unregistration
    heartbeats           BrokerHeartbeat
    broker_liveness      broker sessions
    register_controller  ControllerRegistration
    replica_dirs         AssignReplicasToDirs, failed log directories
    feature_updates      UpdateFeatures
    producer_ids         AllocateProducerIds

Topics and partitions
    topic_creation       CreateTopics
    topic_changes        CreatePartitions, DeleteTopics
    placement            replicas of new partitions
    alter_partition      AlterPartition
    elect_leaders        ElectLeaders
    unclean_recovery     the most complete replica of a leaderless partition
    rebalance            preferred leaders
    reassignments        AlterPartitionReassignments, ListPartitionReassignments

Configuration and quotas
    config_alterations   AlterConfigs, IncrementalAlterConfigs
    config_rules         validates the configuration of a resource
    local_config_changes what a broker checks itself before it forwards a change
    logger_rules         log levels of a broker
    client_quotas        AlterClientQuotas, DescribeClientQuotas
    mutation_quota       the controller mutation quota

Security
    acls                 CreateAcls, DeleteAcls, DescribeAcls
    scram                AlterUserScramCredentials, DescribeUserScramCredentials
    tokens               delegation tokens
"""
