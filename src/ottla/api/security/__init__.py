"""Who may send which request: decisions of the authorizer, and delegation tokens."""
