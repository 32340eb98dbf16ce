"""Numbers with their nouns: 1 record, 2 records, 1 partition is, 3 partitions are. Pure."""


def plural(count: int, noun: str) -> str:
    """Return a number with its noun. Nouns of several words end with the one that is counted."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun and verb: 1 partition is, 3 partitions are."""
    return f"{plural(count, noun)} {'is' if count == 1 else 'are'}"


def were(count: int, noun: str) -> str:
    """Return a number with its noun and verb in the past: 1 record was, 3 records were."""
    return f"{plural(count, noun)} {'was' if count == 1 else 'were'}"
