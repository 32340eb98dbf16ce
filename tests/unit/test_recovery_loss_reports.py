"""Reports of recovery losses by severity: in the log, as a metric, to `ottla doctor`."""

import json
import logging
from pathlib import Path

import pytest
from replicas_fixtures import NODE, Broker, image_of, partition_of

from ottla.cli.commands.doctor import Loss as DoctorLoss
from ottla.cli.commands.doctor import State, check_recovery, check_strays
from ottla.cli.commands.doctor_command import _damaged_files, _losses, _strays
from ottla.node.metrics.gauges import recovery_families
from ottla.protocol.types import Offset
from ottla.replication.repair.recovery_losses import FILE_NAME, ReportedLoss
from ottla.storage.log.log_recovery import Loss

KNOWN = Loss(Offset(4), Offset(9), "/data/t-0/0.log", 400, 600, "CRC does not match", ("/kept",))
TORN = Loss(Offset(9), Offset(9), "/data/t-0/0.log", 900, 30, "half a header")


@pytest.mark.parametrize(
    ("loss", "replicas", "level"),
    [
        (KNOWN, (NODE,), logging.ERROR),
        (KNOWN, (NODE, 2), logging.WARNING),
        (TORN, (NODE,), logging.WARNING),
        (TORN, (NODE, 2), logging.WARNING),
    ],
)
def test_loss_is_an_error_if_no_other_replica_has_the_records(
    loss: Loss, replicas: tuple[int, ...], level: int, caplog: pytest.LogCaptureFixture
) -> None:
    image = image_of({"t": (1, {0: partition_of(*replicas)})})
    first = Broker(("/d1",)).start(image)
    first.stop()
    broker = Broker(("/d1",), disk=first.disk)
    broker.publish(image)
    (directory,) = broker.directories
    directory.open_all(broker.replicas._log_config)
    (hosted,) = directory.logs.values()
    hosted.log.report.losses.append(loss)

    with caplog.at_level(logging.INFO):
        broker.replicas.start()

    (reply,) = [each for each in caplog.records if "recovery" in each.getMessage()]
    assert reply.levelno == level
    assert "partition=t-0" in reply.getMessage()
    assert f"cause={loss.reason}" in reply.getMessage()
    is_error = level == logging.ERROR
    assert ("ottla log verify" in reply.getMessage()) == is_error
    counts = (int(is_error), int(not is_error), loss.length)
    assert broker.host.recovery.counts == counts
    rows = json.loads(broker.host.ports.disk.read(f"{directory.path}/{FILE_NAME}"))
    assert [row["severity"] for row in rows] == ["error" if is_error else "warning"]


def test_start_without_losses_removes_the_previous_report() -> None:
    broker = Broker(("/d1",))
    path = f"{broker.host.directories.all[0].path}/{FILE_NAME}"
    note = ReportedLoss("t-0", "/data/t-0", KNOWN, is_only_replica=True)
    broker.host.recovery.report(broker.host.ports.disk, broker.host.directories.all[0].path, [note])
    assert broker.host.ports.disk.exists(path)
    broker.host.recovery.report(broker.host.ports.disk, broker.host.directories.all[0].path, [])
    assert not broker.host.ports.disk.exists(path)


def test_error_names_everything_an_operator_needs() -> None:
    text = ReportedLoss("t-0", "/data/t-0", KNOWN, is_only_replica=True).text()
    for part in (
        "partition=t-0",
        "offsets=4 to 8 at least",
        "bytes=600",
        "file=/data/t-0/0.log",
        "position=400",
        "CRC does not match",
        "/kept",
        "`ottla log verify /data/t-0`",
    ):
        assert part in text
    assert "\n" not in text


def test_cuts_are_counted_by_severity() -> None:
    cuts, cut_bytes = recovery_families(1, 2, 300)
    assert cuts.name == "ottla_log_recovery_cuts_total"
    assert [(dict(each.labels)["severity"], each.value) for each in cuts.samples] == [
        ("error", 1),
        ("warning", 2),
    ]
    assert cut_bytes.samples[0].value == 300


def test_doctor_shows_losses_and_damaged_files(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    log.mkdir()
    (log / "00000000000000000000.log.damaged-1").write_bytes(b"x")
    (log / "00000000000000000000.log").write_bytes(b"x")
    note = ReportedLoss("t-0", str(log), KNOWN, is_only_replica=True)
    (tmp_path / FILE_NAME).write_text(json.dumps([note.row()]))

    loss, files = check_recovery(str(tmp_path), _losses(tmp_path), _damaged_files(tmp_path))

    assert (loss.state, loss.detail) == (State.PROBLEM, note.text())
    assert files.state is State.WARNING
    assert "t-0/00000000000000000000.log.damaged-1" in files.detail


@pytest.mark.parametrize("text", ["", "no json", "{}", "[1]", '[{"text": "a"}]'])
def test_doctor_survives_a_damaged_report(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    assert _losses(tmp_path) == []


def test_doctor_calls_a_torn_tail_a_warning() -> None:
    (found,) = check_recovery("/data", [DoctorLoss(False, "a torn tail")], [])
    assert found.state is State.WARNING


def test_doctor_lists_stray_logs_with_what_to_do(tmp_path: Path) -> None:
    names = [f"orders-{index}.{'0' * 31}1-stray" for index in range(7)]
    for name in (*names, "orders-9", f"gone-0.{'0' * 32}-delete"):
        (tmp_path / name).mkdir()
    (finding,) = check_strays(str(tmp_path), _strays(tmp_path))
    assert finding.state is State.WARNING
    assert names[0] in finding.detail
    assert finding.detail.endswith("and 2 more")
    assert "ottla log dump" in finding.fix
    assert check_strays("/data", _strays(tmp_path / "none")) == []
