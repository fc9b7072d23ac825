"""A driver that is killed in any phase of Spark's commit protocol leaves every row in the table exactly once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from rootline.adapters.open import LAKE_FOLDER
from rootline.connect import connect
from rootline.demo.service import running_service
from tests.spark.torture.killing_source import Phase
from tests.spark.torture.tortured_lake import DOOMED, SCHEMA, TABLE, DyingStream, differences, meanwhile

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_driver_that_is_killed_in_any_phase_leaves_each_row_exactly_once(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(exist_ok=True)
    stream = DyingStream(tmp_path, 0, {"warehouse": str(folder), "log": f"sqlite://{folder / LAKE_FOLDER}"})
    with running_service(folder, tmp_path / "up.log"), connect(folder, coordinator="elsewhere") as lake:
        table = lake.create_table(TABLE, SCHEMA)
        for phase in Phase:
            stream.drop()
            stream.drop()
            stream.drop()
            with meanwhile(lake, Counter(), random.Random(7)):
                assert stream.run(phase) != 0
        assert set(stream.deaths) == set(Phase)
        stream.finish()
        table.delete_where(DOOMED)
        assert differences(lake, [stream]) == []
        assert list(table.check()) == []
