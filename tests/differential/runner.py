"""Plays every case on both peers at once and compares the outcomes."""

import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.differential import rights, wire
from tests.differential.catalogue import Case, Family, Ranges
from tests.differential.compare import Difference, compare, led_by
from tests.differential.deliberate import Deliberate
from tests.differential.normalise import Normaliser
from tests.differential.peers import CLUSTER_ID, Peer
from tests.differential.script import Connection, Script, Step

SETUP_PATIENCE_S = 60.0
SLOW_S = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference that no row allows."""

    case: str
    step: Step
    difference: Difference
    is_consequence: bool = False


@dataclass(slots=True)
class Result:
    """What a run found."""

    cases: int = 0
    requests: int = 0
    fields: int = 0
    findings: list[Finding] = field(default_factory=list)
    allowed: dict[Deliberate, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def stale(self, rows: Iterable[Deliberate], families: set[str]) -> list[Deliberate]:
        """Return the rows that allowed nothing although all their families were played."""
        return [row for row in rows if row not in self.allowed and row.family() <= families]


@dataclass(slots=True)
class Player:
    """One peer, its connections and the memory of the family that is being played."""

    peer: Peer
    connection: Connection = field(init=False)
    controller: Connection = field(init=False)
    setup: Connection | None = field(init=False)
    memory: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.connection = Connection(self.peer.port)
        self.controller = Connection(self.peer.controller_port)
        internal = self.peer.internal_port
        self.setup = None if internal is None else Connection(internal)

    def script(self, name: str, patience_s: float) -> Script:
        return Script(
            name,
            self.connection,
            self.controller,
            self.memory,
            patience_s=patience_s,
            setup=self.setup,
        )

    def play(self, case: Case, name: str) -> list[Step]:
        script = self.script(name, case.patience_s)
        try:
            case.play(script)
        except Exception:
            # A script that trips over a reply has found a difference: the steps so far show it.
            words = traceback.format_exc(limit=-2)
            script.steps.append(Step("the script failed", "metadata", 0, f"script: {words}"))
        return script.steps

    def normaliser(self) -> Normaliser:
        peer = self.peer
        words = {
            str(peer.directory): "<directory>",
            f":{peer.port}": ":<port>",
            f":{peer.controller_port}": ":<controller port>",
            CLUSTER_ID: "<cluster>",
        }
        ports = {peer.port: "<port>", peer.controller_port: "<controller port>"}
        if peer.internal_port is not None:
            ports[peer.internal_port] = "<internal port>"
            words[f":{peer.internal_port}"] = ":<internal port>"
        return Normaliser(words, ports)


class Runner:
    """Plays families on a pair of peers."""

    def __init__(self, rows: list[Deliberate], user: str = rights.ALL) -> None:
        self.user = user
        self.players: tuple[Player, ...] = ()
        self.rows = rows
        self.result = Result()
        self._pool = ThreadPoolExecutor(2)
        self.slow: list[tuple[float, str]] = []

    def use(self, kafka: Peer, ottla: Peer) -> None:
        """Play on this pair from now on."""
        self.players = (Player(kafka), Player(ottla))

    def ranges(self) -> Ranges:
        """Ask Kafka which versions it serves on both listeners."""
        script = self.players[0].script("ranges", SETUP_PATIENCE_S)
        return Ranges(
            _offered(script.quietly("api_versions", 0)),
            _offered(script.ask("api_versions", 0, {}, to_controller=True)),
        )

    def run(self, family: Family, cases: list[Case]) -> None:
        """Play the set-up of a family, then its cases."""

        def prepare(player: Player) -> None:
            script = player.script(family.name, SETUP_PATIENCE_S)
            rights.grant(script, self.user, family.name)
            family.setup(script)

        list(self._pool.map(prepare, self.players))
        for number, case in enumerate(cases):
            self._one(case, f"{family.name}-{number}")

    def _one(self, case: Case, name: str) -> None:
        began = time.monotonic()
        kafka, ottla = self._pool.map(lambda player: player.play(case, name), self.players)
        took = time.monotonic() - began
        if took > SLOW_S:
            self.slow.append((took, case.name))
        self.result.cases += 1
        mine = [player.normaliser() for player in self.players]
        for theirs, ours in _paired(kafka, ottla):
            self.result.requests += 1
            compared = compare(mine[0].outcome(theirs), mine[1].outcome(ours))
            self.result.fields += compared.compared
            for difference, cause in led_by(compared.differences).items():
                self._judge(case, theirs, difference, cause)
        for player in self.players:
            if not player.peer.is_alive():
                self.result.broken.append(f"{player.peer.name} ended in {case.name}")
                raise RuntimeError(self.result.broken[-1])

    def _judge(self, case: Case, step: Step, difference: Difference, cause: Difference) -> None:
        """A row that allows an error code allows what follows from it, too."""
        name = case.name if step.label == step.api else f"{case.name}: {step.label}"
        for row in () if _is_let_through(difference) else self.rows:
            if not row.applies_to(self.user):
                continue
            if row.covers(name, difference) or row.covers(name, cause):
                self.result.allowed[row] = self.result.allowed.get(row, 0) + 1
                return
        self.result.findings.append(Finding(name, step, difference, difference is not cause))


def _is_let_through(difference: Difference) -> bool:
    """Say whether Kafka denies what we allow; no row excuses that."""
    names = ("error_code", "partition_error_code")
    is_denied = difference.field() in names and difference.kafka in rights.DENIALS
    return is_denied and difference.ottla == "0"


def _offered(reply: object) -> dict[str, range]:
    assert isinstance(reply, dict), reply
    names = {key: name for name, key in wire.API_KEYS.items()}
    return {
        names[row["api_key"]]: range(row["min_version"], row["max_version"] + 1)
        for row in reply["api_keys"]
        if row["api_key"] in names
    }


def _paired(kafka: list[Step], ottla: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Pair the steps; one that only one peer got to is compared with a sentence that says so."""
    for index in range(max(len(kafka), len(ottla))):
        theirs = kafka[index] if index < len(kafka) else None
        ours = ottla[index] if index < len(ottla) else None
        known = theirs or ours
        assert known is not None
        missing = Step(known.label, known.api, known.version, "the script did not get here")
        yield theirs or missing, ours or missing
