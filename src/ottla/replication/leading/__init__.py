"""The leader's side of a partition: appends, followers, ISR, high watermark, waiters."""
