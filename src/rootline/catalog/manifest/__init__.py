"""Manifests, manifest lists and definitions of Iceberg V2 and V3 as bytes."""
