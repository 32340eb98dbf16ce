"""What can be wrong with a metadata log that decodes."""


class ReplayFault(Exception):
    """A record does not fit the image it is replayed on.

    Either the log is not the one that made the image, or a controller wrote what it must not.
    A node that went on would act on a state that no other node has: it goes down instead.
    """
