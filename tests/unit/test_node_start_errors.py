"""Start errors as one line: metadata of a newer release, and a refused registration."""

import pytest

from ottla.metadata.image import EMPTY
from ottla.metadata.replay import replay_all
from ottla.metadata.replay_fault import ReplayFault
from ottla.node.broker.broker_lifecycle import RegistrationRefused
from ottla.node.directories.start_errors import START_FAULTS, start_error
from ottla.protocol.internal.metadata_cluster import FeatureLevelRecord
from ottla.protocol.internal.metadata_records import NewerMetadataRecord, decode_metadata_record

# RegisterBrokerRecord (type 0) in a version that no release writes yet.
NEWER = bytes([1, 0, 5]) + bytes(40)


def test_record_of_a_newer_release_names_the_supported_levels() -> None:
    with pytest.raises(NewerMetadataRecord) as caught:
        decode_metadata_record(NEWER)
    assert isinstance(caught.value, START_FAULTS)
    line = start_error(caught.value)
    assert "RegisterBrokerRecord has no version 5" in line
    assert "supports 7 (3.3-IV3) to 33 (4.4-IV2)" in line and "\n" not in line


def test_newer_level_names_itself_and_the_supported_levels() -> None:
    with pytest.raises(ReplayFault) as caught:
        replay_all(EMPTY, [FeatureLevelRecord("metadata.version", 34)])
    assert isinstance(caught.value, START_FAULTS)
    line = start_error(caught.value)
    assert "metadata.version 34" in line and "supports 7 to 33" in line


def test_refused_registration_is_an_error_of_the_start() -> None:
    assert issubclass(RegistrationRefused, START_FAULTS)
