"""The client settings that ``ottla up`` prints, ready to paste. Pure."""

from ottla.security.local_cluster import LocalSecurity


def client_config(security: LocalSecurity | None, bootstrap: str) -> dict[str, str]:
    """Return a client's settings by librdkafka's names; None: of a cluster without security."""
    if security is None:
        return {"bootstrap.servers": bootstrap}
    return security.client_config(bootstrap)


def client_settings(security: LocalSecurity | None, bootstrap: str) -> str:
    """Return settings for confluent-kafka, Java and kcat, and for ``ottla`` itself."""
    if security is None:
        return f"client settings: bootstrap.servers={bootstrap}\n"
    config = security.client_config(bootstrap)
    lines = ["", "# confluent-kafka (Python)", "config = {"]
    lines += [f'    "{key}": "{value}",' for key, value in config.items()]
    lines += ["}", "", "# Java and kafka-*.sh --command-config: client.properties"]
    lines += [f"{key}={value}" for key, value in security.java_config(bootstrap).items()]
    words = [f"-X {key}={value}" for key, value in config.items() if key != "bootstrap.servers"]
    lines += ["", "# kcat", " \\\n  ".join([f"kcat -L -b {bootstrap}", *words])]
    lines += ["", "# ottla", f"ottla profile set local -f {security.directory}/client.properties"]
    lines += ["ottla topic list --profile local", ""]
    return "\n".join(lines)
