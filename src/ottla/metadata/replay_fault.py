"""The error of a metadata log that decodes but cannot be replayed."""


class ReplayFault(Exception):
    """A record does not apply to the image it is replayed on.

    Either the log is not the one that produced the image, or a controller wrote an invalid record.
    A node that continued would act on a state that no other node has, so it stops instead.
    """
