"""The extra `pandas`: rows come from a data frame and are read as one."""

import pandas as pd

import rootline

with rootline.connect("./lake") as lake:
    trips = lake.create_table("demo.trips", {"id": "long", "city": "string"})
    trips.append(pd.DataFrame({"id": [1, 2], "city": ["Kyiv", None]}))
    assert sorted(trips.scan(where="city is not null").to_pandas()["id"]) == [1]
