"""Iceberg tables: metadata and manifests as a snapshot, and a commit to it."""
