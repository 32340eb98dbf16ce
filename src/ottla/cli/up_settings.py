"""The client settings that ``ottla up`` prints, ready to paste. Pure."""

from ottla.security.local_cluster import LocalSecurity


def client_settings(security: LocalSecurity, bootstrap: str) -> str:
    """Return settings for confluent-kafka, Java and kcat, and for ``ottla`` itself."""
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


def plain_settings(bootstrap: str) -> str:
    """Return the settings of clients of a cluster without security."""
    return f"client settings: bootstrap.servers={bootstrap}\n"
