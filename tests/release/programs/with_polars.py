"""The extra `polars`: rows come from a data frame and are read as one."""

import polars as pl

import rootline

with rootline.connect("./lake") as lake:
    trips = lake.create_table("demo.trips", {"id": "long", "city": "string"})
    trips.append(pl.DataFrame({"id": [1, 2], "city": ["Kyiv", None]}))
    assert trips.scan(where="city is not null").to_polars()["id"].to_list() == [1]
