"""What a command prints and reads: tables, JSON, progress, prompts, errors."""
