"""Which objects are of exports, by their names."""

from __future__ import annotations

from rootline.catalog.retained_exports import metadata_locations
from rootline.schemas.object_keys import OwnKind, own_kind


def test_only_names_that_exporters_give_are_of_exports() -> None:
    folder = f"export/v3/{'a' * 16}"
    for name, kind in {
        f"{folder}/metadata/{'0' * 16}-12.metadata.json": OwnKind.EXPORT_METADATA,
        f"{folder}/lists/{'0' * 16}-12-{'b' * 16}.avro": OwnKind.EXPORT_LIST,
        f"{folder}/lists/{'0' * 16}-12-{'c' * 16}-{'b' * 16}.avro": OwnKind.EXPORT_LIST,
        f"{folder}/manifests/{'b' * 32}.avro": OwnKind.EXPORT_MANIFEST,
        f"{folder}/manifests/{'b' * 32}-{'c' * 16}.avro": OwnKind.EXPORT_MANIFEST,
        f"export/v2/deletes/{'b' * 32}-1-200.parquet": OwnKind.EXPORT_DELETES,
        f"export/v3/vectors/{'b' * 32}-1-200-3.{'c' * 16}.puffin": OwnKind.EXPORT_DELETES,
        f"{folder}/metadata/x.metadata.json": None,
        f"{folder}/manifests/{'b' * 32}.avro.part": None,
        f"export/v4/{'a' * 16}/manifests/{'b' * 32}.avro": None,
        f"export/v3/vectors/{'b' * 32}.puffin": None,
        "export/x.metadata.json": None,
    }.items():
        assert own_kind(name) is kind, name


def test_the_locations_of_exports_are_found_in_a_listing() -> None:
    name = f"export/v3/{'a' * 16}/metadata/{'0' * 16}-12.metadata.json"
    assert metadata_locations("demo/t/", [f"demo/t/{name}", "demo/t/export/other", "demo/t/data/x"]) == [name]
