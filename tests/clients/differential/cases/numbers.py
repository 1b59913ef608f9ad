"""Numbers: arithmetic, functions, aggregates, literals, casts."""

CASES = []

STATEMENTS = []
