"""The rules of ARCHITECTURE.md, as code. No dependency but the standard library."""

import ast
import json
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "ottla"
SIMULATION = ROOT / "simulation"
PRODUCT = sorted(SRC.rglob("*.py"))
MODULES = [*PRODUCT, *sorted(SIMULATION.rglob("*.py"))]
RATCHET = json.loads((Path(__file__).parent / "size_ratchet.json").read_text())

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 600
# Declarations without logic, written by our own generator: their length says nothing.
GENERATED = ("protocol/messages/", "config/generated.py")

# Bottom first. A room may import rooms that stand before it, and itself.
LAYERS = [
    {"protocol"},
    {"config"},
    {"runtime"},
    {"security", "quotas", "observability"},
    {"client"},
    {"storage"},
    {"metadata"},
    {"raft"},
    {"controller", "replication", "tiering"},
    {"coordinators", "sharing"},
    {"api"},
    {"server"},
    {"node"},
    {"pipeline"},
    {"cli", "console", "testing"},
]
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}

# Rooms and modules that decide and never act.
PURE = [
    "protocol",
    "raft/core",
    "api/fetch_followed.py",
    "api/fetch_reply.py",
    "api/fetch_request.py",
    "api/fetch_sessions.py",
    "api/current_leaders.py",
    "api/produce_reply.py",
    "api/produce_request.py",
    "api/read_replica.py",
    "api/record_validation.py",
    "cli/doctor.py",
    "cli/escaping.py",
    "cli/health.py",
    "cli/message_format.py",
    "cli/message_input.py",
    "cli/reassign_plan.py",
    "cli/reassign_throttle.py",
    "cli/rendering.py",
    "cli/up_plan.py",
    "client/accumulator.py",
    "client/backoff.py",
    "client/fetched.py",
    "client/group_members.py",
    "client/offset_spec.py",
    "client/partitioner.py",
    "config/addresses.py",
    "config/checks.py",
    "config/describe.py",
    "config/dynamic.py",
    "config/unenforced.py",
    "config/problems.py",
    "config/generated.py",
    "config/key_definition.py",
    "config/key_table.py",
    "config/layers.py",
    "config/listeners.py",
    "config/properties.py",
    "config/value_rules.py",
    "config/loading.py",
    "config/tables",
    "config/unsupported.py",
    "config/values.py",
    "controller/brokers.py",
    "controller/decision.py",
    "controller/draft.py",
    "controller/leader_elections.py",
    "controller/heartbeats.py",
    "controller/partition_index.py",
    "controller/alter_partition.py",
    "controller/broker_liveness.py",
    "controller/partition_changes.py",
    "controller/placement.py",
    "controller/reassignments.py",
    "controller/rebalance.py",
    "controller/replica_dirs.py",
    "controller/decision_settings.py",
    "controller/topic_changes.py",
    "controller/topic_creation.py",
    "controller/unclean_recovery.py",
    "controller/acls.py",
    "controller/bootstrap.py",
    "controller/config_rules.py",
    "controller/config_alterations.py",
    "controller/register_controller.py",
    "controller/feature_updates.py",
    "controller/logger_rules.py",
    "controller/mutation_quota.py",
    "controller/local_config_changes.py",
    "controller/producer_ids.py",
    "controller/client_quotas.py",
    "controller/scram.py",
    "controller/tokens.py",
    "metadata/access.py",
    "metadata/registrations.py",
    "metadata/configs.py",
    "metadata/delta.py",
    "metadata/replay_fault.py",
    "metadata/features.py",
    "metadata/image.py",
    "metadata/metadata_versions.py",
    "metadata/publishing.py",
    "metadata/replay.py",
    "metadata/replay_access.py",
    "metadata/replay_cluster.py",
    "metadata/replay_topics.py",
    "metadata/snapshot_records.py",
    "metadata/snapshot_policy.py",
    "metadata/topics.py",
    "metadata/touched.py",
    "metadata/transactions.py",
    "node/gauges.py",
    "observability/exposition.py",
    "observability/http.py",
    "observability/request_meter.py",
    "observability/topic_events.py",
    "pipeline/kafka_names.py",
    "pipeline/offsets.py",
    "pipeline/option_values.py",
    "pipeline/options.py",
    "pipeline/plan.py",
    "pipeline/audit.py",
    "pipeline/encode.py",
    "pipeline/table_job.py",
    "pipeline/decode.py",
    "pipeline/requests.py",
    "replication/partial_fetch.py",
    "replication/fetch_session.py",
    "replication/follower_progress.py",
    "replication/follower_rules.py",
    "replication/high_watermark.py",
    "replication/isr_state.py",
    "replication/leadership.py",
    "replication/log_settings.py",
    "quotas",
    "replication/partition_reads.py",
    "replication/waiters.py",
    "coordinators/batches.py",
    "coordinators/decision.py",
    "coordinators/groups/consumer/assignors",
    "coordinators/groups/classic/group.py",
    "coordinators/groups/classic/join.py",
    "coordinators/groups/classic/membership.py",
    "coordinators/groups/classic/rebalance.py",
    "coordinators/groups/offsets/commit_batch.py",
    "coordinators/groups/consumer/context.py",
    "coordinators/groups/consumer/describe.py",
    "coordinators/groups/consumer/draft.py",
    "coordinators/groups/consumer/classic_protocol.py",
    "coordinators/groups/epoch_group",
    "coordinators/groups/errors.py",
    "coordinators/groups/consumer/group.py",
    "coordinators/groups/consumer/classic_members.py",
    "coordinators/groups/consumer/heartbeat.py",
    "coordinators/groups/consumer/kind.py",
    "coordinators/groups/consumer/leaving.py",
    "coordinators/groups/consumer/member.py",
    "coordinators/groups/consumer/migration.py",
    "coordinators/groups/consumer/reconcile.py",
    "coordinators/groups/consumer/records.py",
    "coordinators/groups/consumer/settings.py",
    "coordinators/groups/consumer/subscription.py",
    "coordinators/groups/describe.py",
    "coordinators/groups/explain.py",
    "coordinators/groups/group_configs.py",
    "coordinators/groups/kind.py",
    "coordinators/groups/machine.py",
    "coordinators/groups/recent_events.py",
    "coordinators/groups/offsets/offset_bytes.py",
    "coordinators/groups/offsets/rules.py",
    "coordinators/groups/offsets/committed.py",
    "coordinators/groups/consumer/regex.py",
    "coordinators/groups/requests.py",
    "coordinators/groups/settings.py",
    "coordinators/groups/share/assignor.py",
    "coordinators/groups/share/context.py",
    "coordinators/groups/share/topic_deletion.py",
    "coordinators/groups/share/describe.py",
    "coordinators/groups/share/draft.py",
    "coordinators/groups/share/group.py",
    "coordinators/groups/share/heartbeat.py",
    "coordinators/groups/share/kind.py",
    "coordinators/groups/share/records.py",
    "coordinators/groups/share/settings.py",
    "coordinators/groups/streams/assignor.py",
    "coordinators/groups/streams/context.py",
    "coordinators/groups/streams/describe.py",
    "coordinators/groups/streams/draft.py",
    "coordinators/groups/streams/endpoints.py",
    "coordinators/groups/streams/group.py",
    "coordinators/groups/streams/heartbeat.py",
    "coordinators/groups/streams/kind.py",
    "coordinators/groups/streams/leaving.py",
    "coordinators/groups/streams/member.py",
    "coordinators/groups/streams/reconcile.py",
    "coordinators/groups/streams/records.py",
    "coordinators/groups/streams/reply.py",
    "coordinators/groups/streams/settings.py",
    "coordinators/groups/streams/tasks.py",
    "coordinators/groups/streams/topics.py",
    "coordinators/groups/streams/topology.py",
    "coordinators/lingering.py",
    "coordinators/parked.py",
    "coordinators/ports.py",
    "coordinators/share_state/machine.py",
    "coordinators/share_state/rules.py",
    "coordinators/share_state/state.py",
    "coordinators/share_state/wire.py",
    "coordinators/timers.py",
    "coordinators/topics.py",
    "coordinators/transactions/late_ends.py",
    "coordinators/transactions/machine.py",
    "coordinators/transactions/rules.py",
    "coordinators/transactions/settings.py",
    "coordinators/transactions/transaction.py",
    "sharing/acquisition.py",
    "sharing/dead_letters.py",
    "sharing/sessions.py",
    "sharing/spans.py",
    "storage/producer_state.py",
    "storage/partition_names.py",
    "storage/leader_epochs.py",
    "storage/log_move_steps.py",
    "storage/compaction.py",
    "storage/retention.py",
    "testing/history",
    "testing/layout.py",
]
IMPURE = {"asyncio", "time", "random", "os", "socket", "threading", "pathlib", "datetime", "uuid"}
PURE_CALLS_BANNED = {"open", "print", "input"}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return path.relative_to(SRC if path.is_relative_to(SRC) else ROOT).as_posix()


def room(path: Path) -> str | None:
    """The package of a product module, or None for a module at the top."""
    parts = path.relative_to(SRC).parts
    return parts[0] if len(parts) > 1 else None


def imports(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def is_pure(path: Path) -> bool:
    name = name_of(path)
    return any(name == pure or name.startswith(f"{pure}/") for pure in PURE)


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    own = room(path)
    for imported in imports(parsed(path)):
        parts = imported.split(".")
        assert parts[0] != "simulation", "the wheel does not contain the simulator"
        if parts[0] == "ottla" and len(parts) > 1 and parts[1] in HEIGHT:
            other = parts[1]
            assert own is None or other == own or HEIGHT[other] < HEIGHT[own], (
                f"{own} imports {imported}"
            )


@pytest.mark.parametrize("path", [p for p in PRODUCT if is_pure(p)], ids=name_of)
def test_rules_are_pure(path: Path) -> None:
    tree = parsed(path)
    assert not {name.split(".")[0] for name in imports(tree)} & IMPURE
    for node in ast.walk(tree):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in PURE_CALLS_BANNED, node.func.id


def test_every_pure_entry_exists() -> None:
    assert [entry for entry in PURE if not (SRC / entry).exists()] == []


# The supervisor is where a service becomes a task; a simulated host is a process, and
# the world is what starts it.
TASK_MAKERS = {"runtime/supervisor.py", "simulation/simulation.py"}


def test_tasks_are_made_by_the_supervisor_alone() -> None:
    loose = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if name_of(path) not in TASK_MAKERS
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute)
        and node.attr in {"create_task", "ensure_future"}
        and not (isinstance(node.value, ast.Name) and node.value.id in {"group", "tasks"})
    ]
    assert loose == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_what_it_is_and_has_no_test_hooks(path: Path) -> None:
    tree = parsed(path)
    assert ast.get_docstring(tree), "every module says in its first line what it is"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lowered = node.name.lower()
            assert not lowered.endswith(("_for_test", "_for_tests", "fortest", "fortests"))
            assert not lowered.startswith("test_")


def oversized() -> dict[str, int]:
    """Everything over its limit, by name, with its length in lines."""
    found: dict[str, int] = {}
    for path in MODULES:
        name = name_of(path)
        if name.startswith(GENERATED):
            continue
        text = path.read_text()
        if (lines := text.count("\n")) > FILE_LINES_MAX:
            found[name] = lines
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    found[f"{name}:{node.name}"] = length
    return found


def test_sizes_only_shrink() -> None:
    found = oversized()
    grown = {name: size for name, size in found.items() if size > RATCHET.get(name, 0)}
    assert grown == {}, "too long; split it, do not add it to size_ratchet.json"
    slack = {name: size for name, size in RATCHET.items() if found.get(name, 0) < size}
    assert slack == {}, "shrunk: lower or remove these entries of size_ratchet.json"
