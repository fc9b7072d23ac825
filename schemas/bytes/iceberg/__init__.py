"""Manifests and manifest lists of Iceberg V1 to V3, read as our own."""
