"""The controller mutation quotas of all clients (KIP-599), as the active controller charges them.

Every client with a quota has a bucket (`mutation_quota.py`). The quotas are those of the image that
a decision is made on. A new active controller begins with full buckets.
"""

import itertools

from ottla.controller.decision import Refusal
from ottla.controller.mutation_quota import (
    MutationQuota,
    TokenBucket,
    charge,
    full,
    is_strict,
    refilled,
    refusal_of,
)
from ottla.metadata.image import Image
from ottla.protocol.types import Millis
from ottla.quotas.client_quotas import ClientQuotas, QuotaKind

BUCKETS_MAX = 10_000
"""Buckets that are kept; above this, buckets that are full again are dropped."""

Entity = tuple[str | None, str | None]


class RequestQuota:
    """Charges the changes of one request; ``throttle_ms`` is what its reply has to report."""

    def __init__(
        self, quotas: "MutationQuotas", entity: Entity, quota: MutationQuota, strict: bool
    ) -> None:
        self._quotas = quotas
        self._entity = entity
        self._quota = quota
        self._strict = strict
        self._now = quotas.now
        self.throttle_ms = 0

    def __call__(self, changes: int) -> Refusal | None:
        """Charge some changes; return the error if they are too many."""
        bucket = self._quotas.bucket(self._entity, self._quota, self._now)
        charged = charge(bucket, self._quota, changes, self._now, self._strict)
        self._quotas.store(self._entity, charged.bucket)
        self.throttle_ms = max(self.throttle_ms, charged.throttle_ms)
        return refusal_of(charged)


class MutationQuotas:
    """The buckets of one controller. ``burst_seconds``: how many seconds can be saved up."""

    def __init__(self, burst_seconds: float = 11.0) -> None:
        self._burst_seconds = burst_seconds
        self._quotas = ClientQuotas()
        self._followed: object = None
        self._buckets: dict[Entity, TokenBucket] = {}
        self.now = Millis(0)

    def of(
        self, image: Image, client: tuple[str, str], api_key: int, version: int, now: Millis
    ) -> RequestQuota | None:
        """Return the quota of a request; None if none applies. ``now`` is monotonic."""
        if self._followed is not image.client_quotas:
            self._followed = image.client_quotas
            self._quotas.update(image.client_quotas.by_entity)
        limit = self._quotas.limit_of(QuotaKind.MUTATION, client)
        if limit is None or limit.rate <= 0:
            return None
        self.now = now
        quota = MutationQuota(limit.rate, self._burst_seconds)
        return RequestQuota(self, limit.entity, quota, is_strict(api_key, version))

    def bucket(self, entity: Entity, quota: MutationQuota, now: Millis) -> TokenBucket:
        """Return the bucket of an entity; a full one if it has none."""
        found = self._buckets.get(entity)
        if found is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._drop_full(quota, now)
            return full(quota, now)
        return found

    def store(self, entity: Entity, bucket: TokenBucket) -> None:
        """Keep the bucket of an entity after a charge."""
        self._buckets[entity] = bucket

    def _drop_full(self, quota: MutationQuota, now: Millis) -> None:
        """Drop buckets without debt; if all are in debt, the older half: the walk is then rare."""
        kept = {
            entity: bucket
            for entity, bucket in self._buckets.items()
            if refilled(bucket, quota, now).tokens < 0
        }
        if len(kept) >= BUCKETS_MAX:
            kept = dict(itertools.islice(kept.items(), BUCKETS_MAX // 2, None))
        self._buckets = kept
