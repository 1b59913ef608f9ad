"""Whether a history of operations on one row can be explained by some order of them.

The search is Wing and Gong's with Lowe's memory of states seen: repeatedly take an operation that began before every
operation not yet taken had ended, and apply it to the state. Operations on one row overlap by at most the number of
clients, so the frontier stays small.
"""

from dataclasses import dataclass


@dataclass
class Operation:
    """`apply(state)` gives the state afterwards, or None if the observed answer is impossible in `state`."""

    began: int
    ended: int
    apply: object
    text: str
    # Whether it only looked. A look that fits the state may be taken at once: leaving it for later explains nothing
    # that taking it now does not.
    looks: bool = False


def explain(operations, initial):
    """None if some order explains all answers; otherwise the operations around which the search got stuck."""
    operations = sorted(operations, key=lambda op: op.began)
    count = len(operations)
    # A node: every operation below `low` is taken, and those whose bits are set in `taken`, counted from `low`.
    start = (0, 0, initial)
    stack, seen, furthest = [start], {start}, 0
    while stack:
        low, taken, state = stack.pop()
        if low == count:
            return None
        furthest = max(furthest, low)
        nodes = [node for node in next_nodes(operations, low, taken, state) if node not in seen]
        seen.update(nodes)
        stack.extend(nodes)
    return operations[max(0, furthest - 5) : furthest + 10]


def next_nodes(operations, low, taken, state):
    """The nodes after one more operation; the operation that ended first comes last, to be tried first."""
    found, horizon = [], None
    for i in not_taken(low, taken, len(operations)):
        operation = operations[i]
        if horizon is not None and operation.began > horizon:
            break
        horizon = operation.ended if horizon is None else min(horizon, operation.ended)
        after = operation.apply(state)
        if after is not None:
            node = (*advance(low, taken | 1 << (i - low)), after)
            if operation.looks:
                return [node]
            found.append((operation.ended, node))
    found.sort(key=lambda pair: -pair[0])
    return [node for _, node in found]


def not_taken(low, taken, count):
    width = taken.bit_length()
    free = ~taken & ((1 << width) - 1)
    while free:
        lowest = free & -free
        yield low + lowest.bit_length() - 1
        free ^= lowest
    yield from range(low + width, count)


def advance(low, taken):
    # As many operations as there are ones at the end of `taken`.
    ones = (~taken & (taken + 1)).bit_length() - 1
    return low + ones, taken >> ones
