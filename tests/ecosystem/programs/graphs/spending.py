"""A graph of functions, as Hamilton reads it: a function's parameters are the functions it needs."""

import pandas


def spend(rows: int) -> pandas.Series:
    return pandas.Series(range(rows), dtype=float)


def signups(rows: int) -> pandas.Series:
    return pandas.Series(range(1, rows + 1), dtype=float)


def spend_mean(spend: pandas.Series) -> float:
    return spend.mean()


def spend_per_signup(spend: pandas.Series, signups: pandas.Series) -> pandas.Series:
    return spend / signups


def spend_zero_mean(spend: pandas.Series, spend_mean: float) -> pandas.Series:
    return spend - spend_mean
