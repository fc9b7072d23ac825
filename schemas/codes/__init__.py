"""The stable codes of errors, each with what it means, what to do and what not to do."""
