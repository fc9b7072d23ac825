"""The rules of a version and from one version to the next, and the changes between versions."""
