"""The error of schemas of any format, without the libraries that read them."""


class BadSchema(ValueError):
    """A schema that cannot be mapped to columns; the message names the place in the schema."""
