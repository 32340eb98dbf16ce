"""The API surface as one table, its routes, and what a handler may return."""
