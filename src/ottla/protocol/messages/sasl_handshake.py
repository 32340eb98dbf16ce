"""SaslHandshake: the messages of api key 17, versions 0-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, STRING, Field, Message, Schema, array_of


class SaslHandshakeRequest(Message):
    """SaslHandshake request, versions 0-1, never flexible."""

    mechanism: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=None,
        api_key=17,
        fields=(Field("mechanism", STRING, (0, 1)),),
    )


class SaslHandshakeResponse(Message):
    """SaslHandshake response, versions 0-1, never flexible."""

    error_code: int = 0
    mechanisms: list[str] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=None,
        api_key=17,
        fields=(
            Field("error_code", INT16, (0, 1)),
            Field("mechanisms", array_of(STRING), (0, 1)),
        ),
    )
