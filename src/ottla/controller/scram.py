"""AlterUserScramCredentials and DescribeUserScramCredentials (KIP-554, RFC 5802).

A request carries the salted password; only two keys derived from it are kept, from which the
password cannot be recovered:

    ClientKey = HMAC(SaltedPassword, "Client Key")    StoredKey = H(ClientKey)
    ServerKey = HMAC(SaltedPassword, "Server Key")

A user may be altered only once in a request, whatever the mechanism. Neither errors nor replies
contain a salt, a key or a password.
"""

from collections import Counter
from typing import Final

from ottla.controller.decision import (
    RECORDS_MAX,
    ROWS_PER_STEP,
    Decision,
    Refusal,
    Steps,
    finish,
)
from ottla.metadata.access import ScramUser
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_security import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.security.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    server_key,
    stored_key,
)

TWICE = "A user can be altered only once in a request"


def is_mechanism(number: int) -> bool:
    """Return whether a mechanism has this number."""
    return number in ScramMechanism._value2member_map_


def credential_record(
    user: ScramUser, salt: bytes, salted: bytes, iterations: int
) -> UserScramCredentialRecord:
    """Return the record of a credential."""
    mechanism = ScramMechanism(user.mechanism)
    return UserScramCredentialRecord(
        name=user.name,
        mechanism=mechanism,
        salt=salt,
        stored_key=stored_key(mechanism, salted),
        server_key=server_key(mechanism, salted),
        iterations=iterations,
    )


def decide_alter_user_scram_credentials(
    image: Image, request: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    """Set and remove credentials, each user on its own."""
    return finish(alter_user_scram_credentials_steps(image, request))


def alter_user_scram_credentials_steps(
    image: Image, request: AlterUserScramCredentialsRequest
) -> Steps[Decision[AlterUserScramCredentialsResponse]]:
    """Decide as `decide_alter_user_scram_credentials` does, in steps."""
    outcomes: dict[str, Versioned | Refusal] = {}
    for count, deletion in enumerate(request.deletions, 1):
        if not count % ROWS_PER_STEP:
            yield
        _add_outcome(
            outcomes, deletion.name, _refuse_deletion(image, deletion) or _removed(deletion)
        )
    for count, upsertion in enumerate(request.upsertions, 1):
        if not count % ROWS_PER_STEP:
            yield
        _add_outcome(
            outcomes, upsertion.name, _refuse_upsertion(image, upsertion) or _set(upsertion)
        )
    records = [found for found in outcomes.values() if isinstance(found, Versioned)]
    if len(records) > RECORDS_MAX:
        refusal = Refusal(ErrorCode.POLICY_VIOLATION, f"More than {RECORDS_MAX} users")
        outcomes, records = dict.fromkeys(outcomes, refusal), []
    yield
    results = [_result(name, found) for name, found in outcomes.items()]
    return Decision(records, AlterUserScramCredentialsResponse(results=results))


def _add_outcome(
    outcomes: dict[str, Versioned | Refusal], name: str, found: Versioned | Refusal
) -> None:
    # The first error of a user is the one reported.
    if not isinstance(outcomes.get(name), Refusal):
        twice = Refusal(ErrorCode.DUPLICATE_RESOURCE, TWICE)
        outcomes[name] = twice if name in outcomes else found


def _result(name: str, found: Versioned | Refusal) -> AlterUserScramCredentialsResult:
    if isinstance(found, Refusal):
        return AlterUserScramCredentialsResult(
            user=name, error_code=found.code, error_message=found.message
        )
    return AlterUserScramCredentialsResult(user=name, error_message=None)


def _removed(deletion: ScramCredentialDeletion) -> Versioned:
    record = RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism)
    return Versioned(record, 0)


def _set(upsertion: ScramCredentialUpsertion) -> Versioned:
    user = ScramUser(upsertion.mechanism, upsertion.name)
    record = credential_record(
        user, bytes(upsertion.salt), bytes(upsertion.salted_password), upsertion.iterations
    )
    return Versioned(record, 0)


# -- errors --------------------------------------------------------------------------------------


def _refuse_user(image: Image, name: str, mechanism: int) -> Refusal | None:
    if not image.metadata_version().is_scram_supported():
        message = f"metadata.version {image.metadata_version()} does not support SCRAM"
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, message)
    if not name:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The user name is empty")
    if not is_mechanism(mechanism):
        message = f"Unknown SCRAM mechanism {mechanism}"
        return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, message)
    return None


def _refuse_deletion(image: Image, deletion: ScramCredentialDeletion) -> Refusal | None:
    refusal = _refuse_user(image, deletion.name, deletion.mechanism)
    if refusal is None and ScramUser(deletion.mechanism, deletion.name) not in image.scram:
        return Refusal(ErrorCode.RESOURCE_NOT_FOUND, "The credential does not exist")
    return refusal


def _refuse_upsertion(image: Image, upsertion: ScramCredentialUpsertion) -> Refusal | None:
    refusal = _refuse_user(image, upsertion.name, upsertion.mechanism)
    if refusal is not None:
        return refusal
    if upsertion.iterations < ITERATIONS_MIN:
        message = f"The iterations must be at least {ITERATIONS_MIN}"
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if upsertion.iterations > ITERATIONS_MAX:
        message = f"The iterations must be at most {ITERATIONS_MAX}"
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if not upsertion.salted_password:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password is empty")
    return None


# -- description ---------------------------------------------------------------------------------

# Kafka's words: its tests compare them.
_DESCRIBED_TWICE: Final = (
    "Cannot describe SCRAM credentials for the same user twice in a single request: "
)
_DESCRIBED_UNKNOWN: Final = "Attempt to describe a user credential that does not exist: "


def describe_user_scram_credentials(
    image: Image, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Return mechanisms and iterations of the given users, or of all."""
    by_name: dict[str, list[CredentialInfo]] = {}
    for user in sorted(image.scram):
        info = CredentialInfo(user.mechanism, image.scram[user].iterations)
        by_name.setdefault(user.name, []).append(info)
    named = [user.name for user in request.users or ()] or sorted(by_name)
    results = [_described(name, times, by_name.get(name)) for name, times in Counter(named).items()]
    return DescribeUserScramCredentialsResponse(results=results)


def _described(
    name: str, times: int, infos: list[CredentialInfo] | None
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name)
    if times > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = _DESCRIBED_TWICE + name
    elif infos is None:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = _DESCRIBED_UNKNOWN + name
    else:
        result.credential_infos = infos
    return result
