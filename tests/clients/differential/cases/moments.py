"""Dates, times, intervals: their functions, operators and casts."""

CASES = []

STATEMENTS = []
