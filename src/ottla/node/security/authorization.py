"""The authorizer of a node: constructed from its settings, kept up to date with the image.

``authorizer.class.name`` switches it on. Before the first image it allows super users alone, so
that nodes can form a cluster that nobody else can use yet. Loaded only where it is switched on.
"""

from typing import Final

from ottla.config.loading import Loaded
from ottla.config.unenforced import ALLOW_EVERYONE
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.node.security.audit_log import AuditLog
from ottla.node.security.listener_rules import super_users_of
from ottla.security.authorizer import AclAuthorizer

_TRUE: Final = "true"


class AclPublisher:
    """`Publisher`: passes changes of the ACLs to the authorizer. ``audit_log`` is its service."""

    name = "acls"

    def __init__(self, authorizer: AclAuthorizer) -> None:
        self.authorizer = authorizer
        self.audit_log = AuditLog(authorizer.trail)
        self._is_loaded = False

    def on_image(self, delta: Delta, image: Image) -> None:
        """Load the first image, then apply what each delta changes."""
        if not self._is_loaded:
            self._is_loaded = True
            self.authorizer.load(image.acls.values())
        elif delta.acls:
            changes = delta.acls.values()
            self.authorizer.update(
                [each.new for each in changes if each.new is not None],
                [each.old for each in changes if each.old is not None],
            )


def build_acl_publisher(loaded: Loaded) -> AclPublisher:
    """Return the authorizer of a node that is configured to have one, with its publisher."""
    allow = loaded.static.get(ALLOW_EVERYONE, "").strip().lower() == _TRUE
    return AclPublisher(AclAuthorizer(super_users_of(loaded.static), allow_if_no_acl=allow))
