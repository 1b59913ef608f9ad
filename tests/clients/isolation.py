"""Whether a history of transactions could have come from a database that isolates them as it says.

Each transaction appends values that nobody else appends to lists, and reads whole lists. So a list that was read tells in which
order its values came, and with it who wrote before whom, who read whose write, and whose read missed which write: the
dependencies of Adya's thesis, found as Elle (Kingsbury and Alvaro, 2020) finds them.

    ww   the later of two transactions that appended to a list one after the other
    wr   who read a list that ends with the other's value
    rw   who appended the value that the other's list did not have yet
    rt   who began when the other had been answered

SERIALIZABLE has no cycle of them. SNAPSHOT has none in which no two `rw` follow each other (Cerone and Gotsman, 2018), which
excludes lost updates, and reads of half a transaction. READ_COMMITTED has none of `ww` and `wr` alone.
"""

from collections import defaultdict
from dataclasses import dataclass, field

READ_COMMITTED, SNAPSHOT, SERIALIZABLE = "read committed", "snapshot", "serializable"

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


@dataclass
class Transaction:
    """`steps` are ("append", list, value) and ("read", list, values), in order. The outcome is unknown if the answer to the
    commit was lost."""

    name: str
    began: int = 0
    ended: int = 0
    outcome: str = COMMITTED
    steps: list = field(default_factory=list)

    def appends(self):
        return [(step[1], step[2]) for step in self.steps if step[0] == "append"]


def anomalies(transactions, final, level):
    """What contradicts `level`, as sentences. `final` has the lists as they were when everybody had ended."""
    writers = {}
    for transaction in transactions:
        for key, value in transaction.appends():
            assert (key, value) not in writers, f"{value} is appended to {key} twice"
            writers[key, value] = transaction
    found = [*lost_or_partial(transactions, final, writers), *impossible_reads(transactions, final, writers)]
    if level != READ_COMMITTED:
        found += moving_reads(transactions)
    return found or cycles(edges(transactions, final, writers), level)


def lost_or_partial(transactions, final, writers):
    """Appends that are gone although they were answered, are there although they were undone, or are there in part."""
    for key, values in final.items():
        for value in values:
            if (key, value) not in writers:
                yield f"list {key} has {value}, which nobody appended"
        if len(set(values)) < len(values):
            yield f"list {key} has a value twice: {values}"
    for transaction in transactions:
        there = [value in final.get(key, []) for key, value in transaction.appends()]
        if transaction.outcome == COMMITTED and not all(there):
            yield f"{transaction.name} was committed and is lost: {transaction.appends()}"
        if transaction.outcome == ABORTED and any(there):
            yield f"{transaction.name} was undone and is there: {transaction.appends()}"
        if transaction.outcome == UNKNOWN and any(there) and not all(there):
            yield f"{transaction.name} is there in part: {transaction.appends()}"


def impossible_reads(transactions, final, writers):
    """Lists that were at no time the list, but for what the reader itself had appended."""
    for transaction in transactions:
        own = defaultdict(list)
        for kind, key, seen in transaction.steps:
            if kind == "append":
                own[key].append(seen)
                continue
            count = len(seen) - len(own[key])
            others = seen[: max(count, 0)]
            if seen[len(others) :] != own[key]:
                yield f"{transaction.name} read {seen} of {key}, and had appended {own[key]}"
            elif others != final.get(key, [])[: len(others)]:
                yield f"{transaction.name} read {seen} of {key}, which became {final.get(key, [])}"
            elif others:
                yield from intermediate(transaction, key, others, writers)


def intermediate(reader, key, seen, writers):
    writer = writers.get((key, seen[-1]))
    if writer is None:
        return
    last = [value for of, value in writer.appends() if of == key][-1]
    if writer is not reader and last != seen[-1]:
        yield f"{reader.name} read {seen} of {key}, in the middle of {writer.name}"


def moving_reads(transactions):
    """Lists that changed between two reads of a transaction."""
    for transaction in transactions:
        before, own = {}, defaultdict(int)
        for kind, key, seen in transaction.steps:
            if kind == "append":
                own[key] += 1
                continue
            others = seen[: len(seen) - own[key]]
            if before.setdefault(key, others) != others:
                yield f"{transaction.name} read {before[key]} of {key} and then {others}"


def edges(transactions, final, writers):
    """`{from: {(to, kind)}}` over names of those that count."""
    there = [t for t in transactions if t.outcome == COMMITTED or took_effect(t, final)]
    names = {t.name for t in there}
    found = defaultdict(set)

    def add(first, then, kind):
        if first.name != then.name and first.name in names and then.name in names:
            found[first.name].add((then.name, kind))

    for key, values in final.items():
        for before, after in zip(values, values[1:]):
            add(writers[key, before], writers[key, after], "ww")
    for transaction in there:
        own = defaultdict(int)
        for kind, key, seen in transaction.steps:
            if kind == "append":
                own[key] += 1
                continue
            count = len(seen) - own[key]
            if count > 0:
                add(writers[key, seen[count - 1]], transaction, "wr")
            if count < len(final.get(key, [])):
                add(transaction, writers[key, final[key][count]], "rw")
    add_real_time(there, add)
    return found


def took_effect(transaction, final):
    appends = transaction.appends()
    return bool(appends) and transaction.outcome == UNKNOWN and all(v in final.get(k, []) for k, v in appends)


def add_real_time(transactions, add):
    """Who began after the answer. An unknown transaction may take effect long after its client gave up, so none follows it."""
    answered = [t for t in transactions if t.outcome == COMMITTED]
    for first in answered:
        for then in transactions:
            if first.ended < then.began:
                add(first, then, "rt")


def cycles(found, level):
    """One sentence for each knot of dependencies that `level` excludes."""
    names = set(found) | {to for targets in found.values() for to, _ in targets}
    if level == SERIALIZABLE:
        graph = {name: [(to, kind) for to, kind in found.get(name, ())] for name in names}
    elif level == READ_COMMITTED:
        # Statements have snapshots of their own there, so who began later may have a statement that read earlier.
        graph = {name: [(to, kind) for to, kind in found.get(name, ()) if kind in ("ww", "wr")] for name in names}
    else:
        # A node for who was reached by `rw`, from whom no `rw` leads on, and one for who was reached otherwise.
        graph = {}
        for name in names:
            targets = [((to, kind == "rw"), kind) for to, kind in found.get(name, ())]
            graph[name, False] = targets
            graph[name, True] = [target for target in targets if target[1] != "rw"]
    return [describe(graph, knot) for knot in knots(graph)]


def describe(graph, knot):
    """A shortest circle through one of its nodes."""
    start = min(knot, key=str)
    paths, seen = [(start, str_of(start))], set()
    for node, text in paths:
        for to, kind in sorted(graph[node], key=str):
            if to == start:
                return f"a cycle: {text} -{kind}-> {str_of(start)}"
            if to in knot and to not in seen:
                seen.add(to)
                paths.append((to, f"{text} -{kind}-> {str_of(to)}"))
    raise AssertionError("a knot has a circle")


def str_of(node):
    return node[0] if isinstance(node, tuple) else node


def knots(graph):
    """Strongly connected components of more than one node (Tarjan's algorithm, without recursion)."""
    index, low, on_stack, stack = {}, {}, set(), []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for to, _ in targets:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, iter(graph[to])))
                    break
                if to in on_stack:
                    low[node] = min(low[node], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = set()
                    while node not in component:
                        component.add(stack.pop())
                    on_stack -= component
                    if len(component) > 1:
                        yield component
