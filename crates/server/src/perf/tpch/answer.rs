//! The rows that a query answered, and whether another database answered the same.

use oribi_types::{Error, Result};

/// Rows as texts. In CSV null and the empty text are one.
pub struct Answer {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Answer {
    /// An answer that was printed as CSV, the names of its columns first.
    ///
    /// # Errors
    /// `Internal` for what is no CSV.
    pub fn of_csv(text: &[u8]) -> Result<Self> {
        let mut lines = csv::ReaderBuilder::new().has_headers(false).from_reader(text).into_records();
        let mut next = || -> Result<Option<Vec<String>>> {
            let line = lines.next().transpose().map_err(|e| Error::internal(format!("answer: {e}")))?;
            Ok(line.map(|line| line.iter().map(str::to_owned).collect()))
        };
        let columns = next()?.unwrap_or_default();
        let mut rows = Vec::new();
        while let Some(row) = next()? {
            rows.push(row);
        }
        Ok(Answer { columns, rows })
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The only value of an answer that has one.
    pub fn value(&self) -> Option<&str> {
        Some(self.rows.first()?.first()?.as_str())
    }

    /// The first rows as lines of text.
    pub fn lines(&self, rows: usize) -> impl Iterator<Item = String> {
        std::iter::once(&self.columns).chain(self.rows.iter().take(rows)).map(|row| row.join(" | "))
    }

    /// Compares the rows with those of `reference`, in whatever order they came: rows that a query does not tell apart have
    /// none. Names of columns are each database's own. A sum or an average may have other digits in its last places.
    ///
    /// # Errors
    /// `Internal`, with the first two rows that differ.
    pub fn same_as(&self, reference: &Answer) -> Result<()> {
        if self.rows.len() != reference.rows.len() {
            let (ours, theirs) = (self.rows.len(), reference.rows.len());
            return Err(Error::internal(format!("{ours} rows, but {theirs} in the reference")));
        }
        for (ours, theirs) in self.sorted().into_iter().zip(reference.sorted()) {
            if ours.len() != theirs.len() || !ours.iter().zip(theirs).all(|(ours, theirs)| same(ours, theirs))
            {
                let (ours, theirs) = (ours.join(" | "), theirs.join(" | "));
                return Err(Error::internal(format!("a row is\n{ours}\nbut in the reference\n{theirs}")));
            }
        }
        Ok(())
    }

    fn sorted(&self) -> Vec<&Vec<String>> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_cached_key(|row| row.iter().map(|value| key(value)).collect::<Vec<_>>());
        rows
    }
}

/// What values are ordered by: alike for those that are the [`same`], but where one is rounded up and the other down.
fn key(value: &str) -> String {
    value.parse::<f64>().map_or_else(|_| value.to_owned(), |number| format!("{number:.1}"))
}

fn same(ours: &str, theirs: &str) -> bool {
    match (ours.parse::<f64>(), theirs.parse::<f64>()) {
        (Ok(ours), Ok(theirs)) => {
            // An average of decimals has so many digits behind the point.
            let tolerance = 1e-6_f64.max(1e-9 * ours.abs().max(theirs.abs()));
            ours == theirs || (ours - theirs).abs() <= tolerance
        }
        _ => ours == theirs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        Answer::of_csv(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_same_rows_in_another_order_are_the_same_answer() {
        let ours = answer("name,avg\n\"a, b\",0.5000000\nc,7\n");
        ours.same_as(&answer("n,avg(x)\nc,7.0000001\n\"a, b\",0.5\n")).unwrap();
        assert_eq!(ours.lines(1).collect::<Vec<_>>(), ["name | avg", "a, b | 0.5000000"]);
    }

    #[test]
    fn another_value_or_number_of_rows_is_another_answer() {
        let ours = answer("name,sum\na,1\nb,2\n");
        for other in
            ["name,sum\na,1\nb,2.1\n", "name,sum\na,1\nc,2\n", "name,sum\na,1\n", "name,sum\na,1\na,1\n"]
        {
            assert!(ours.same_as(&answer(other)).is_err(), "{other}");
        }
    }
}
