"""Which store holds remote segments, and how it is opened."""

from collections.abc import Mapping
from typing import Final

import msgspec

from ottla.runtime.ports import ObjectStore

DIRECTORY: Final = "directory"
S3: Final = "s3"
S3_OPTIONS: Final = {
    "region": "region",
    "endpoint": "endpoint",
    "access.key.id": "access_key_id",
    "secret.access.key": "secret_access_key",
    "session.token": "session_token",
}
"""The settings of a bucket, and their names in obstore."""


class StoreSettings(msgspec.Struct, frozen=True):
    """Where objects are: in a directory, or in a bucket with obstore's options."""

    kind: str
    place: str
    prefix: str = ""
    options: Mapping[str, str] = msgspec.field(default_factory=dict)
    allow_http: bool = False

    def __repr__(self) -> str:
        # The options may hold a secret key, and may be printed in errors: names only.
        return f"StoreSettings({self.kind}, {self.place}, {self.prefix}, {sorted(self.options)})"

    @property
    def name(self) -> str:
        """The store as an address: a path, or ``s3://bucket/prefix``."""
        place = f"s3://{self.place}" if self.kind == S3 else self.place
        return f"{place}/{self.prefix}" if self.prefix else place

    @property
    def is_grouped(self) -> bool:
        """Whether the store makes several objects durable together (`ObjectGroups`)."""
        return self.kind != S3


def open_store(settings: StoreSettings, *, is_cached: bool = True) -> ObjectStore:
    """Open the store; a bucket is not contacted yet.

    ``is_cached`` False: checksums of a directory are of what is on the disk.

    Raises:
        ImportError: a bucket needs the extra ``objects``, which is not installed.
    """
    if settings.kind == S3:
        from ottla.runtime.objects import ObstoreObjects  # an extra: only for those with a bucket

        return ObstoreObjects.in_s3(
            settings.place, settings.options, allow_http=settings.allow_http
        )
    from ottla.runtime.directory_objects import DirectoryObjects

    return DirectoryObjects(settings.place, is_cached=is_cached)
