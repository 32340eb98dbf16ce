"""References to values outside the configuration: files, directories and the environment."""

from pathlib import Path

import pytest

from ottla.config.loading import Loaded, load
from ottla.config.problems import ConfigError

NODE = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=1@localhost:9093
"""
CLASSES = "org.apache.kafka.common.config.provider."
PROVIDERS = f"""
config.providers=file, env,dir
config.providers.file.class={CLASSES}FileConfigProvider
config.providers.env.class={CLASSES}EnvVarConfigProvider
config.providers.dir.class={CLASSES}DirectoryConfigProvider
"""
SECRET = "tall-giraffe"


def read(path: str) -> str:
    return Path(path).read_text()


def loaded(text: str, **environment: str) -> Loaded:
    return load(NODE + text, environment, (), read)


def problems(text: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(text, **environment)
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "secrets.properties").write_text(f"key.password={SECRET}\nbad.port=x{SECRET}\n")
    (tmp_path / "single").write_text(SECRET)
    return tmp_path


def test_each_provider_gives_its_value(secrets: Path) -> None:
    found = loaded(
        PROVIDERS
        + f"ssl.key.password=${{file:{secrets}/secrets.properties:key.password}}\n"
        + f"ssl.truststore.password=${{dir:{secrets}:single}}\n"
        + "ssl.keystore.password=a-${env:THE_SECRET}-b\n",
        THE_SECRET=SECRET,
    )
    for password in (found.broker.ssl_key_password, found.broker.ssl_truststore_password):
        assert password is not None and password.reveal() == SECRET
    assert found.broker.ssl_keystore_password is not None
    assert found.broker.ssl_keystore_password.reveal() == f"a-{SECRET}-b"
    assert SECRET not in repr(found) and found.warnings == ()


def test_values_stay_as_written_without_providers() -> None:
    found = loaded("ssl.key.password=${env:HOME}\n", HOME="/root")
    assert found.broker.ssl_key_password is not None
    assert found.broker.ssl_key_password.reveal() == "${env:HOME}"


def test_missing_values_are_problems_that_name_the_key(secrets: Path) -> None:
    reply = problems(
        PROVIDERS
        + "ssl.key.password=${env:MISSING}\n"
        + f"ssl.keystore.password=${{file:{secrets}/secrets.properties:other}}\n"
        + "ssl.truststore.password=${dir:/nowhere:x}\n"
    )
    assert "ssl.key.password (line" in reply and "MISSING is not set" in reply
    assert "has no key 'other'" in reply
    assert "cannot read /nowhere/x" in reply


def test_bad_value_of_a_reference_is_not_shown(secrets: Path) -> None:
    reply = problems(
        PROVIDERS + f"num.partitions=${{file:{secrets}/secrets.properties:bad.port}}\n"
    )
    assert "num.partitions" in reply


def test_paths_and_variables_can_be_limited(secrets: Path) -> None:
    limits = (
        "config.providers.dir.param.allowed.paths=/run/secrets\n"
        "config.providers.env.param.allowlist.pattern=OTTLA_.*\n"
    )
    reply = problems(
        PROVIDERS
        + limits
        + f"ssl.key.password=${{dir:{secrets}:single}}\n"
        + "ssl.keystore.password=${env:HOME}\n",
        HOME="x",
    )
    assert "not among allowed.paths" in reply and "does not match allowlist.pattern" in reply
    above = problems(PROVIDERS + limits + "ssl.key.password=${dir:/run/secrets/..:passwd}\n")
    assert "without '..'" in above


def test_other_classes_are_refused() -> None:
    reply = problems("config.providers=vault\nconfig.providers.vault.class=com.example.Vault\n")
    assert "config.providers.vault.class=com.example.Vault: must be" in reply
