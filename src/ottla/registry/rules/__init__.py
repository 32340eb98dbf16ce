"""The rules of the registry: records in, state; requests in, records and replies out. Pure."""
