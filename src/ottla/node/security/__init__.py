"""Security of a node from its settings: TLS, logins, authorizer, quotas and limits of
connections."""
