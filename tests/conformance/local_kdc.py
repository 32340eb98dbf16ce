"""A Kerberos realm of its own on this machine, with Debian's KDC (krb5-kdc, krb5-admin-server)."""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.free_ports import free_ports

REALM = "OTTLA.TEST"
SECONDS_MAX = 60
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


@dataclass
class Kdc:
    """The realm's files below ``root``; `start` runs the KDC."""

    root: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        for tool in ("krb5kdc", "kdb5_util", "kadmin.local"):
            if shutil.which(tool, path=PATH) is None:
                pytest.skip(f"{tool} is not installed (Debian: krb5-kdc, krb5-admin-server)")
        pytest.importorskip("gssapi", reason="the extra ottla[gssapi] is not installed")
        self.root.mkdir()
        self.port = free_ports(1)[0]
        self.config = self.root / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\nrdns = false\n"
            "dns_canonicalize_hostname = false\nudp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\n kdc = 127.0.0.1:{self.port}\n}}\n"
            f"[domain_realm]\nlocalhost = {REALM}\n"
        )
        self.profile = self.root / "kdc.conf"
        self.profile.write_text(
            f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{self.port}\n"
            f"kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n{REALM} = {{\n database_name = {self.root / 'principal'}\n"
            f" key_stash_file = {self.root / 'stash'}\n acl_file = {self.root / 'acl'}\n}}\n"
            f"[logging]\nkdc = FILE:{self.root / 'kdc.log'}\n"
        )

    @property
    def environment(self) -> dict[str, str]:
        """What programs of this realm need."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.profile),
            "KRB5CCNAME": f"FILE:{self.root / 'tickets'}",
            "PATH": PATH,
        }

    def start(self) -> None:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master-of-this-test")
        with (self.root / "kdc.out").open("wb") as out:
            self.process = subprocess.Popen(
                ["krb5kdc", "-n", "-r", REALM, "-P", str(self.root / "pid")],
                env={**os.environ, **self.environment},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + SECONDS_MAX
        while "commencing operation" not in self._log():
            assert self.process.poll() is None, self._log() + (self.root / "kdc.out").read_text()
            assert time.monotonic() < deadline, "the KDC did not start"
            time.sleep(0.05)

    def keytab(self, principal: str) -> Path:
        """Add a principal; return the file with its key."""
        path = self.root / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(path), principal)
        return path

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(SECONDS_MAX)

    def _log(self) -> str:
        path = self.root / "kdc.log"
        return path.read_text() if path.exists() else ""

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
