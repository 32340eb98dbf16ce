"""How a command reaches a cluster: options, profiles, sessions, and what is said if it fails."""
