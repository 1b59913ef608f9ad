"""Functions, operators and casts answer as PostgreSQL 15 does or are refused: the short form of scripts/compare-postgres."""

import os

from differential.run import compare

SEED = int(os.environ.get("DIFFERENTIAL_SEED", "15"))


def test_what_is_answered_is_what_postgresql_answers(server):
    print(f"DIFFERENTIAL_SEED={SEED}")
    with server.sql() as connection:
        done = compare(connection, short=True, seed=SEED)
    print(f"{done.total('agree')} agree, {done.total('refused')} refused, {len(done.differences)} differ")
    shown = "\n".join(map(str, done.differences[:40]))
    assert not done.differences, f"{len(done.differences)} differ\n{shown}"
    assert done.total("agree") > 3000
