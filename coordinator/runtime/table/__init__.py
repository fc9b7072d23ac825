"""One table: the task that owns it, the requests that its machine asks for, the verdicts that it tells."""
