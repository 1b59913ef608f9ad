"""Compares Oribi with PostgreSQL 15: functions, operators and casts times types and edge values."""

import argparse
import pathlib
import re
import resource
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/clients"))

from conftest import Server
from differential.known import KNOWN
from differential.run import compare


# What the comparison may take itself, so that an answer without end cannot take the machine.
MEMORY_BYTES = 4 << 30


def report(comparison, arguments):
    if arguments.each:
        for group, counts in sorted(comparison.counts.items()):
            print(f"{group}: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    if arguments.refused:
        for group, refused in sorted(comparison.refused.items()):
            for sql, answer in refused[: arguments.show]:
                print(f"refused [{group}] {sql}\n    {answer}")
    shown = {}
    for difference in comparison.differences:
        shown[difference.group] = shown.get(difference.group, 0) + 1
        if shown[difference.group] <= arguments.show:
            print(difference)
    known = f", {comparison.known_seen} known" if comparison.known_seen else ""
    agree, refused, differ = (comparison.total(verdict) for verdict in ("agree", "refused", "differ"))
    print(f"{agree} agree, {refused} refused, {differ} differ{known}")
    return differ


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--short", action="store_true", help="as `make test` does, with fewer values")
    parser.add_argument("--only", type=re.compile, help="groups that match, such as 'function lpad' or 'cast .* to date'")
    parser.add_argument("--each", action="store_true", help="a line for each group")
    parser.add_argument("--refused", action="store_true", help="what is refused, too")
    parser.add_argument("--all", action="store_true", help="count differences that are known, too")
    parser.add_argument("--show", type=int, default=3, help="how many of a group are shown")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="oribi-compare-"))
    server = Server(folder / "data")
    # Behind the server, which would inherit it.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        with server.sql() as connection:
            known = [] if arguments.all else KNOWN
            comparison = compare(connection, arguments.short, arguments.seed, arguments.only, known)
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if report(comparison, arguments) else 0


if __name__ == "__main__":
    sys.exit(main())
