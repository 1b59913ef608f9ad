//! What a query cost, part by part: from its plan as `EXPLAIN (ANALYZE, FORMAT JSON)` tells it. And the table of all queries,
//! which is saved and read again.

use oribi_types::{Error, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::Path;

/// What is measured of a query. A figure that is not known is no number.
///
/// `ms` is the time until the last row is there, without `EXPLAIN`, and `cpu` the processor time of the process meanwhile. The
/// next five are milliseconds by the plan's own clocks, which stand still for nobody: on a machine that others keep busy they
/// are too high.
const NAMES: [&str; 9] =
    ["ms", "cpu", "planning", "scan", "join", "aggregate", "rest", "KiB read", "rows decoded"];
const MS: usize = 0;
const CPU: usize = 1;
const PLANNING: usize = 2;
const SCAN: usize = 3;
const JOIN: usize = 4;
const AGGREGATE: usize = 5;
const REST: usize = 6;
const KIB_READ: usize = 7;
const ROWS_DECODED: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures([f64; NAMES.len()]);

impl Figures {
    /// # Errors
    /// `Internal` for what is no explanation.
    pub fn new(ms: f64, cpu: Option<f64>, explained: &str) -> Result<Self> {
        let odd = || Error::internal(format!("not an explanation: {explained:.200}"));
        let explained: Value = serde_json::from_str(explained).map_err(|_| odd())?;
        let mut figures = Figures::default();
        figures.0[MS] = ms;
        figures.0[CPU] = cpu.unwrap_or(f64::NAN);
        figures.0[PLANNING] = explained[0]["Planning Time"].as_f64().ok_or_else(odd)?;
        figures.add_operators(&explained[0]["Plan"]);
        Ok(figures)
    }

    fn add_operators(&mut self, plan: &Value) {
        let figure = |name: &str| plan[name].as_f64().unwrap_or(0.0);
        self.0[part(plan["Node Type"].as_str().unwrap_or_default())] += figure("Compute Time");
        self.0[KIB_READ] += (figure("Memory Bytes") + figure("File Bytes")) / 1024.0;
        self.0[ROWS_DECODED] += figure("Memory Rows") + figure("File Rows");
        plan["Plans"].as_array().into_iter().flatten().for_each(|below| self.add_operators(below));
    }

    /// None is known.
    pub fn of_nothing() -> Self {
        Figures([f64::NAN; NAMES.len()])
    }

    pub fn ms(&self) -> f64 {
        self.0[MS]
    }

    /// The median of each figure.
    pub fn median(runs: &[Figures]) -> Self {
        let median = |figure: usize| {
            let mut of_runs: Vec<f64> = runs.iter().map(|run| run.0[figure]).collect();
            of_runs.sort_by(f64::total_cmp);
            of_runs.get(of_runs.len() / 2).copied().unwrap_or(f64::NAN)
        };
        Figures(std::array::from_fn(median))
    }

    fn to_json(self) -> Value {
        NAMES
            .iter()
            .zip(self.0)
            .map(|(name, figure)| ((*name).to_owned(), json!(figure)))
            .collect::<Map<_, _>>()
            .into()
    }

    fn of_json(value: &Value) -> Self {
        Figures(NAMES.map(|name| value[name].as_f64().unwrap_or(f64::NAN)))
    }

    /// The names of the figures, each as wide as what stands below it.
    pub fn heading(with_baseline: bool) -> String {
        let cell = |(name, width): (&str, usize)| match with_baseline {
            true => format!(" {name:>width$} {:width$}  ", ""),
            false => format!(" {name:>width$}"),
        };
        NAMES.into_iter().zip(WIDTHS).map(cell).collect()
    }

    /// The figures as a line, each beside that of an earlier measurement if there is one.
    pub fn line(&self, baseline: Option<Figures>) -> String {
        let cell = |figure: usize| {
            let (width, now) = (WIDTHS[figure], number(figure, self.0[figure]));
            let before = baseline.map(|before| format!("({})", number(figure, before.0[figure])));
            before.map_or_else(
                || format!(" {now:>width$}"),
                |before| format!(" {now:>width$} {before:<bracketed$}", bracketed = width + 2),
            )
        };
        (0..NAMES.len()).map(cell).collect()
    }
}

/// What the figures of a table take at most.
const WIDTHS: [usize; NAMES.len()] = [8, 8, 8, 8, 8, 9, 8, 9, 12];

fn number(figure: usize, value: f64) -> String {
    match figure {
        _ if value.is_nan() => "-".to_owned(),
        KIB_READ | ROWS_DECODED => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}

/// Which figure the time of an operator is part of, by DataFusion's name of it.
fn part(operator: &str) -> usize {
    match operator {
        "DataSourceExec" => SCAN,
        "AggregateExec" => AGGREGATE,
        join if join.contains("Join") => JOIN,
        _ => REST,
    }
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Figures) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, figure)| *sum += figure);
    }
}

/// The figures of queries by number, and how they were taken.
#[derive(Debug, Default, PartialEq)]
pub struct Table {
    /// In words.
    pub taken: String,
    pub queries: BTreeMap<u8, Figures>,
}

impl Table {
    /// # Errors
    /// Those of the file system.
    pub fn save(&self, path: &Path) -> Result<()> {
        let queries: Map<_, _> =
            self.queries.iter().map(|(number, figures)| (number.to_string(), figures.to_json())).collect();
        let text = format!("{:#}\n", json!({ "taken": self.taken, "queries": queries }));
        std::fs::write(path, text).map_err(|e| Error::from(e).context(path.display()))
    }

    /// # Errors
    /// Those of the file system; `Invalid` for what [`save`](Self::save) does not write.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::from(e).context(path.display()))?;
        let saved: Value = serde_json::from_str(&text).unwrap_or_default();
        let queries = saved["queries"].as_object();
        let queries =
            queries.ok_or_else(|| Error::invalid(format!("{} is no saved table", path.display())))?;
        let figures =
            |(number, figures): (&String, &Value)| Some((number.parse().ok()?, Figures::of_json(figures)));
        let taken = saved["taken"].as_str().unwrap_or_default().to_owned();
        Ok(Table { taken, queries: queries.iter().filter_map(figures).collect() })
    }

    /// The sum over those queries that `other` has too.
    pub fn total(&self, other: &Table) -> Figures {
        let mut total = Figures::default();
        self.queries
            .iter()
            .filter(|(number, _)| other.queries.contains_key(number))
            .for_each(|(_, f)| total += *f);
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPLAINED: &str = r#"[{"Planning Time": 2.5, "Execution Time": 9.0, "Plan":
        {"Node Type": "AggregateExec", "Compute Time": 1.0, "Plans": [
            {"Node Type": "HashJoinExec", "Compute Time": 2.0, "Plans": [
                {"Node Type": "DataSourceExec", "Compute Time": 4.0, "File Bytes": 2048, "File Rows": 10},
                {"Node Type": "FilterExec", "Compute Time": 0.5, "Plans": [
                    {"Node Type": "DataSourceExec", "Compute Time": 3.0, "Memory Bytes": 1024, "Memory Rows": 5}]}]}]}}]"#;

    #[test]
    fn operators_are_summed_by_what_they_do() {
        let figures = Figures::new(10.0, Some(20.0), EXPLAINED).unwrap();
        assert_eq!(figures, Figures([10.0, 20.0, 2.5, 7.0, 2.0, 1.0, 0.5, 3.0, 15.0]));
        assert_eq!(
            figures.line(None),
            "     10.0     20.0      2.5      7.0      2.0       1.0      0.5         3           15"
        );
        assert!(Figures::new(1.0, None, "QUERY PLAN").is_err());
    }

    #[test]
    fn each_figure_stands_beside_that_of_before() {
        let figures = Figures::new(10.0, None, EXPLAINED).unwrap();
        let line = figures.line(Some(Figures([11.0; NAMES.len()])));
        assert!(line.starts_with("     10.0 (11.0)            - (11.0)"), "{line}");
        assert_eq!(line.len(), Figures::heading(true).len());
        assert_eq!(figures.line(None).len(), Figures::heading(false).len());
    }

    #[test]
    fn a_saved_table_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table.json");
        let figures = Figures::new(10.0, Some(1.5), EXPLAINED).unwrap();
        let table = Table { taken: "at scale 1".into(), queries: [(1, figures), (22, figures)].into() };
        table.save(&path).unwrap();
        assert_eq!(Table::read(&path).unwrap(), table);
        std::fs::write(&path, "[]").unwrap();
        assert!(Table::read(&path).is_err());
    }

    #[test]
    fn the_median_is_of_each_figure_by_itself() {
        let runs = [[1.0; 9], [3.0; 9], [2.0; 9]].map(Figures);
        assert_eq!(Figures::median(&runs), Figures([2.0; 9]));
    }
}
