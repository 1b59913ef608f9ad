"""Dates, times, intervals: their functions, operators and casts."""

from ..values import COUNTS, NULL, Some, quoted

DATES = Some("date", quoted("2024-01-31", "2024-02-29", "1970-01-01", "0001-01-01", "0044-03-15 BC", "9999-12-31", "infinity", "-infinity") + (NULL,))
TIMESTAMPS = Some(
    "timestamp",
    quoted(
        "2024-01-31 10:20:30.456789", "2024-02-29 23:59:59.999999", "1969-12-31 12:34:56.789", "0001-01-01 00:00:00", "1677-09-21 00:00:00",
        "2262-04-12 00:00:00", "0044-03-15 12:00:00 BC", "9999-12-31 23:59:59", "infinity", "-infinity",
    )
    + (NULL,),
)
INTERVALS = Some(
    "interval",
    quoted(
        "1 day", "1 month", "-1 month 02:03:04.5", "0", "1 year 2 months 3 days 04:05:06.789", "30 days", "24 hours", "100 hours", "-1 day -02:00",
        "1000 years", "1.5 months",
    )
    + (NULL,),
)
SPANS = Some(
    "text",
    quoted(
        "1 day", "1 day 2 hours", "1 02:03:04", "1-2", "-1-2", "1-2 3 04:05:06", "12:34.5", "04:05", "04:05:06.789", "-04:05", "1day", "1 day ago", "@ 1 day",
        "P1Y2M3DT4H5M6S", "PT1.5S", "P1W", "1.5 days", "1.5 weeks", "1.5 years", "1.2345 hours", ".5 min", "1 century", "2 decades", "1 millennium", "5 ms",
        "5 us", "1 mon", "1 m", "1 h", "1 y", "1 w", "1 d", "1 s", "1 quarter", "1 day 2 days", "1 fortnight", "day", "1e3", "", " ", "x", "-", "1-13", "12:60",
        "99999999999 years", "2147483647 days", "2147483648 days", "1 day x", "1 dayx", "infinity", "-5.5 seconds", "+1 day -1 hour", "1 microsecond",
        "3 milliseconds", "1 day,2 hours", "1 hour 30", "1 year 1-2",
    ),
)
WRITTEN = Some(
    "text",
    quoted(
        "2024-01-02", "2024-1-2", "20240102", "0124-01-02", "24-01-02", "2024-02-30", "2024-13-01", "2024-00-01", "0000-01-01", "2024-01-02 03:04",
        "2024-01-02 03:04:05", "2024-01-02T03:04:05.123456", "2024-01-02 03:04:05.1234567", "2024-01-02 24:00:00", "2024-01-02 23:59:60", "2024-01-02 25:00",
        "2024-01-02 3", "epoch", "infinity", "-infinity", "0044-03-15 BC", "4714-11-24 BC", "4714-11-23 BC", "99999-01-01", "x", "", " 2024-01-02 ",
        "2024-01-02 03:04:05Z", "2024-01-02 x", "12:00", "1 day", "today", "1/2/2024", "5874898-01-01",
    ),
)
FIELDS = Some(
    "text",
    quoted(
        "year", "YEARS", "y", "month", "mon", "day", "d", "hour", "minute", "min", "second", "sec", "millisecond", "milliseconds", "ms", "microseconds", "us",
        "week", "quarter", "decade", "century", "millennium", "dow", "isodow", "doy", "isoyear", "epoch", "julian", "timezone", "timezone_hour", "nosuch", "",
    )
    + (NULL,),
)
# Fields of `extract`, which are words rather than texts.
EXTRACTED = [
    "year", "month", "day", "hour", "minute", "second", "milliseconds", "microseconds", "week", "quarter", "decade", "century", "millennium", "dow", "isodow",
    "doy", "isoyear", "epoch", "julian", "timezone", "nosuch",
]
NUMBERS = Some("double precision", quoted("0", "1", "-1", "1.5", "0.3333333", "1e10", "1e20", "NaN", "Infinity") + (NULL,))
SECONDS = Some("double precision", quoted("0", "1.5", "-1.5", "1704067200.123456", "1e11", "9e12", "1e300", "NaN", "Infinity", "-Infinity") + (NULL,))
NUMBERS_OF_SECONDS = Some("double precision", SECONDS.values[:5] + (NULL,))
YEARS = Some("integer", ("2024", "1", "0", "(-1)", "(-44)", "5874897", "5874898", "(-4714)", NULL))
COMPARED = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
MOMENTS = [DATES, TIMESTAMPS]

CASES = [
    ("{0} + {1}", DATES, COUNTS),
    ("{0} - {1}", DATES, COUNTS),
    ("{1} + {0}", DATES, COUNTS),
    ("{0} - {1}", DATES, DATES),
    ("{0} + {1} * 2", DATES, COUNTS),
    *[(f"{{0}} {op} {{1}}", of, INTERVALS) for of in MOMENTS for op in ["+", "-"]],
    *[("{1} + {0}", of, INTERVALS) for of in MOMENTS],
    ("({0} + {1})::date", DATES, INTERVALS),
    ("{0} - {1}", TIMESTAMPS, TIMESTAMPS),
    ("{0} - {1}", DATES, TIMESTAMPS),
    ("{0} - {1}", TIMESTAMPS, DATES),
    *[(f"{{0}} {op} {{1}}", INTERVALS, INTERVALS) for op in ["+", "-", *COMPARED]],
    ("{0} * {1}", INTERVALS, NUMBERS),
    ("{1} * {0}", INTERVALS, NUMBERS),
    ("{0} / {1}", INTERVALS, NUMBERS),
    ("{0} * {1}", INTERVALS, COUNTS),
    ("{0} / {1}", INTERVALS, COUNTS),
    ("{0} * 1.5", INTERVALS),
    ("- {0}", INTERVALS),
    ("{0}::text", INTERVALS),
    *[(f"{{0}} {op} {{1}}", DATES, TIMESTAMPS) for op in COMPARED],
    *[(f"{{0}} {op} {{1}}", TIMESTAMPS, TIMESTAMPS) for op in COMPARED],
    ("{0} BETWEEN {1} AND {1}", DATES, TIMESTAMPS),
    ("{1} IN ({0}, {1})", DATES, TIMESTAMPS),
    ("coalesce({0}, {1})", DATES, TIMESTAMPS),
    ("coalesce({0}, '2024-01-01')", DATES),
    ("coalesce({0}, '1 day')", INTERVALS),
    ("nullif({0}, {1})", INTERVALS, INTERVALS),
    ("greatest({0}, {1})", DATES, DATES),
    ("least({0}, {1})", TIMESTAMPS, TIMESTAMPS),
    ("CASE {0} WHEN {1} THEN 1 END", DATES, TIMESTAMPS),
    *[("date_part({1}, {0})", of, FIELDS) for of in [DATES, TIMESTAMPS, INTERVALS]],
    *[(f"extract({field} FROM {{0}})", of) for field in EXTRACTED for of in [DATES, TIMESTAMPS, INTERVALS]],
    *[("date_trunc({1}, {0})", of, FIELDS) for of in [DATES, TIMESTAMPS, INTERVALS]],
    ("date_trunc('month', {0})::date", DATES),
    ("make_date({0}, {1}, {2})", YEARS, COUNTS, COUNTS),
    ("to_timestamp({0})", SECONDS),
    ("to_timestamp({0})", COUNTS),
    ("to_timestamp({0})", "numeric(12,4)"),
    ("to_timestamp({0})::text", SECONDS),
    ("to_timestamp({0})::date", SECONDS),
    ("to_timestamp({0})::timestamp", SECONDS),
    ("{0} < to_timestamp({1})", TIMESTAMPS, NUMBERS_OF_SECONDS),
    ("{0}::timestamp", DATES),
    ("{0}::date", TIMESTAMPS),
    ("{0}::text", TIMESTAMPS),
    ("{0}::interval", SPANS),
    ("{0}::date", WRITTEN),
    ("{0}::timestamp", WRITTEN),
    ("{0}::timestamp(0)", TIMESTAMPS),
    ("ARRAY[{0}]", INTERVALS),
    ("ARRAY[{0}]", TIMESTAMPS),
    ("concat({0}, '')", INTERVALS),
    ("{0} || ''", TIMESTAMPS),
    ("{0} || ''", INTERVALS),
]

STATEMENTS = [
    "SELECT date '2024-01-01' + '1 day'",
    "SELECT date '2024-01-01' - '2023-12-01'",
    "SELECT '2025-01-01' - date '2024-01-01'",
    "SELECT timestamp '2024-01-01' + '1 day', '1 day' + timestamp '2024-01-01'",
    "SELECT timestamp '2024-01-01' - '1 day'",
    "SELECT timestamp '2024-01-01' - '2023-01-01'",
    "SELECT interval '1 day' + '1 hour', '2' * interval '1 day', interval '1 day' / '2'",
    "SELECT '2024-01-01' + interval '1 day'",
    "SELECT date '2024-01-01' + NULL",
    "SELECT date '2024-01-01' + 1::bigint",
    "SELECT date '2024-01-01' + 1::smallint",
    "SELECT date '2024-01-01' + 2147483648",
    "SELECT 1 - date '2024-01-01'",
    "SELECT date '2024-01-01' + 1.5",
    "SELECT timestamp '2024-01-01' + 1",
    "SELECT date '2024-01-01' + time '01:00'",
    "SELECT interval '1 day' + 1",
    "SELECT (-2147483648) * interval '1 day', 2147483647 * interval '1 month'",
    "SELECT 2147483648 * interval '1 day'",
    "SELECT date '2024-01-01' + date '2024-01-01'",
    "SELECT date_part('day', '2024-01-01')",
    "SELECT date_part('day', NULL)",
    "SELECT date_trunc('day', '2024-01-01')",
    "SELECT extract(day FROM '2024-01-01')",
    "SELECT interval '1' day, interval '2' year, interval '3' hour, interval '-1' month",
    "SELECT interval '1-2' year to month",
    "SELECT interval '1 day 3 hours' day",
    "SELECT interval '1.5' day",
    "SELECT - interval '1 day'",
    "SELECT + interval '1 day'",
    "SELECT interval '1 day' BETWEEN interval '1 hour' AND interval '25 hours'",
    "SELECT interval '1 month' IN (interval '30 days')",
    "SELECT i FROM (VALUES (interval '30 days'), (interval '1 month'), (interval '1 hour')) v(i) ORDER BY i",
    "SELECT DISTINCT i FROM (VALUES (interval '30 days'), (interval '1 month')) v(i)",
    "SELECT i, count(*) FROM (VALUES (interval '30 days'), (interval '1 month')) v(i) GROUP BY i",
    "SELECT interval '30 days' UNION SELECT interval '1 month'",
    "SELECT count(DISTINCT i) FROM (VALUES (interval '30 days'), (interval '1 month')) v(i)",
    "SELECT min(i), max(i) FROM (VALUES (interval '30 days'), (interval '1 month')) v(i)",
    "SELECT sum(i) FROM (VALUES (interval '30 days'), (interval '1 month')) v(i)",
    "SELECT avg(i) FROM (VALUES (interval '30 days')) v(i)",
    "SELECT count(i) FROM (VALUES (interval '30 days'), (NULL)) v(i)",
    "SELECT row_number() OVER (ORDER BY i) FROM (VALUES (interval '30 days')) v(i)",
    "SELECT a.i FROM (VALUES (interval '30 days')) a(i) JOIN (VALUES (interval '1 month')) b(i) ON a.i = b.i",
    "SELECT a.i FROM (VALUES (interval '30 days')) a(i) JOIN (VALUES (interval '1 month')) b(i) USING (i)",
    "SELECT a.i FROM (VALUES (date '2024-01-01')) a(i) JOIN (VALUES (timestamp '2024-01-01')) b(i) ON a.i = b.i",
    "SELECT a.i FROM (VALUES (date '2024-01-01')) a(i) JOIN (VALUES (timestamp '2024-01-01')) b(i) USING (i)",
    "SELECT 1 WHERE date '2024-01-01' IN (SELECT timestamp '2024-01-01')",
    "SELECT date '2024-01-01' UNION SELECT timestamp '2024-01-01'",
    "SELECT min(d), max(d), count(d), count(DISTINCT d) FROM (VALUES (date 'infinity'), (date '0044-03-15 BC'), (NULL)) v(d)",
    "SELECT min(t), max(t) FROM (VALUES (timestamp 'infinity'), (timestamp '0044-03-15 BC'), (NULL)) v(t)",
    "SELECT t FROM (VALUES (timestamp 'infinity'), (timestamp '0044-03-15 BC'), (timestamp '-infinity')) v(t) ORDER BY t",
    "SELECT x + interval '1 day', x::date FROM (SELECT date '2024-01-31' + interval '1 month' AS x) s",
    "SELECT max(x) FROM (SELECT date '2024-01-31' + interval '1 month' AS x) s GROUP BY x HAVING x > date '2024-02-01'",
    "SELECT now() - interval '1 day' < now(), now() > '2024-01-01', now() BETWEEN timestamp '2024-01-01' AND 'infinity'",
    "SELECT timestamp '0001-01-01' < now(), timestamp 'infinity' > now(), date 'infinity' > now()",
    "SELECT now() = current_timestamp, now()::date = current_date, current_date - 1 < now()",
    "SELECT now() - now(), now() - (now() - interval '1 hour')",
    "SELECT coalesce(now(), '2024-01-01') = now()",
    "SELECT extract(year FROM now()) = date_part('year', now()), date_trunc('day', now()) = current_date",
    "SELECT current_date - interval '1 day' < current_date",
    "SELECT timestamp '2024-01-01 00:00:00+02'",
    "SELECT time '12:00'",
    "SELECT timestamptz '2024-01-01'",
    "SELECT extract(year FROM date '2024-01-01') + 1, 2 * date_part('day', date '2024-01-03')",
]
