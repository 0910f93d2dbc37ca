"""Hamilton's Ray adapter: each node of a graph of functions is a task; the results are those without it."""

from __future__ import annotations

import pandas
from graphs import spending
from hamilton import base, driver
from hamilton.plugins import h_ray

WANTED = ["spend_per_signup", "spend_zero_mean", "spend_mean"]


def main() -> None:
    with_ray = h_ray.RayGraphAdapter(
        result_builder=base.DictResult(), ray_init_config={"num_cpus": 2}, shutdown_ray_on_completion=True
    )
    theirs = driver.Driver({"rows": 1000}, spending, adapter=with_ray).execute(WANTED)
    ours = driver.Driver({"rows": 1000}, spending, adapter=base.DefaultAdapter()).execute(WANTED)
    pandas.testing.assert_series_equal(theirs["spend_per_signup"], ours["spend_per_signup"])
    pandas.testing.assert_series_equal(theirs["spend_zero_mean"], ours["spend_zero_mean"])
    assert theirs["spend_mean"] == ours["spend_mean"]
    print("equal")


if __name__ == "__main__":
    main()
