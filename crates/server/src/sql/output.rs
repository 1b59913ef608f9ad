//! Results as an aligned table, as CSV or as JSON lines.

use std::io::{self, Write};

/// A column of a result.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub shape: Shape,
}

/// How the text of a value stands in JSON and in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// In quotes; to the left.
    Text,
    /// Bare; to the right.
    Number,
    /// Bare; to the left.
    Bool,
    /// It is JSON already.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Table,
    Csv,
    Json,
}

/// Writes the results of statements as they come.
///
/// Per statement: [`columns`](Self::columns), any number of [`row`](Self::row)s, [`done`](Self::done); a statement
/// without a result has only `done`.
pub struct Printer<'w> {
    out: &'w mut dyn Write,
    format: Format,
    columns: Vec<Column>,
    /// Rows of the table being gathered: its widths are known at its end.
    table: Vec<Vec<Option<String>>>,
    rows: u64,
}

impl<'w> Printer<'w> {
    pub fn new(out: &'w mut dyn Write, format: Format) -> Self {
        Printer { out, format, columns: Vec::new(), table: Vec::new(), rows: 0 }
    }

    pub fn columns(&mut self, columns: Vec<Column>) -> io::Result<()> {
        self.columns = columns;
        self.rows = 0;
        if self.format == Format::Csv {
            let names: Vec<_> = self.columns.iter().map(|c| Some(c.name.as_str())).collect();
            write_csv_line(self.out, &names)?;
        }
        Ok(())
    }

    pub fn row(&mut self, values: &[Option<&str>]) -> io::Result<()> {
        self.rows += 1;
        match self.format {
            Format::Table => {
                self.table.push(values.iter().map(|v| v.map(str::to_owned)).collect());
                Ok(())
            }
            Format::Csv => write_csv_line(self.out, values),
            Format::Json => write_json_line(self.out, &self.columns, values),
        }
    }

    /// Ends a statement. `tag` is what the server said it did.
    pub fn done(&mut self, tag: &str) -> io::Result<()> {
        if self.columns.is_empty() {
            if self.format == Format::Table && !tag.is_empty() {
                writeln!(self.out, "{tag}")?;
            }
        } else if self.format == Format::Table {
            write_table(self.out, &self.columns, &self.table)?;
            writeln!(self.out, "({} row{})", self.rows, if self.rows == 1 { "" } else { "s" })?;
        }
        self.columns.clear();
        self.table.clear();
        self.out.flush()
    }
}

fn write_table(out: &mut dyn Write, columns: &[Column], rows: &[Vec<Option<String>>]) -> io::Result<()> {
    let printable = |text: &str| text.replace('\n', "\\n").replace('\t', "\\t");
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|v| v.as_deref().map_or(String::new(), printable)).collect())
        .collect();
    let width = |i: usize, column: &Column| {
        cells.iter().map(|row| row[i].chars().count()).chain([column.name.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(|(i, column)| width(i, column)).collect();
    let line = |cells: &[String], heading: bool| {
        let padded =
            cells.iter().zip(&widths).zip(columns).map(|((cell, &width), column)| match column.shape {
                Shape::Number if !heading => format!(" {cell:>width$} "),
                _ => format!(" {cell:<width$} "),
            });
        padded.collect::<Vec<_>>().join("|").trim_end().to_owned()
    };
    let names: Vec<String> = columns.iter().map(|c| c.name.clone()).collect();
    writeln!(out, "{}", line(&names, true))?;
    let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width + 2)).collect();
    writeln!(out, "{}", rules.join("+"))?;
    cells.iter().try_for_each(|row| writeln!(out, "{}", line(row, false)))
}

/// Writes a line of CSV as PostgreSQL does: null is nothing, the empty text is `""`.
pub fn write_csv_line(out: &mut dyn Write, values: &[Option<&str>]) -> io::Result<()> {
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        match value {
            None => {}
            Some(text) if text.is_empty() || text.contains([',', '"', '\n', '\r']) || *text == "\\." => {
                write!(out, "\"{}\"", text.replace('"', "\"\""))?;
            }
            Some(text) => out.write_all(text.as_bytes())?,
        }
    }
    out.write_all(b"\n")
}

fn write_json_line(out: &mut dyn Write, columns: &[Column], values: &[Option<&str>]) -> io::Result<()> {
    out.write_all(b"{")?;
    for (i, (column, value)) in columns.iter().zip(values).enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        write!(out, "{}:", serde_json::Value::from(column.name.as_str()))?;
        match (value, column.shape) {
            (None, _) => out.write_all(b"null")?,
            // JSON has no word for what is not finite.
            (Some(text), Shape::Number) if text.parse::<f64>().is_ok_and(f64::is_finite) => {
                out.write_all(text.as_bytes())?;
            }
            (Some(text), Shape::Bool | Shape::Json) => out.write_all(text.as_bytes())?,
            (Some(text), _) => write!(out, "{}", serde_json::Value::from(*text))?,
        }
    }
    out.write_all(b"}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(format: Format) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(&mut out, format);
        let column = |name: &str, shape| Column { name: name.into(), shape };
        printer
            .columns(vec![
                column("id", Shape::Number),
                column("name", Shape::Text),
                column("doc", Shape::Json),
            ])
            .unwrap();
        printer.row(&[Some("1"), Some("a \"b\", c"), Some("{\"x\":1}")]).unwrap();
        printer.row(&[Some("NaN"), Some(""), None]).unwrap();
        printer.done("SELECT 2").unwrap();
        printer.done("DELETE 1").unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_is_aligned() {
        let expected = " id  | name     | doc\n-----+----------+---------\n   1 | a \"b\", c | {\"x\":1}\n NaN |          |\n\
                        (2 rows)\nDELETE 1\n";
        assert_eq!(print(Format::Table), expected);
    }

    #[test]
    fn csv_tells_null_from_the_empty_text() {
        assert_eq!(print(Format::Csv), "id,name,doc\n1,\"a \"\"b\"\", c\",\"{\"\"x\"\":1}\"\nNaN,\"\",\n");
    }

    #[test]
    fn json_lines_hold_an_object_per_row() {
        assert_eq!(
            print(Format::Json),
            "{\"id\":1,\"name\":\"a \\\"b\\\", c\",\"doc\":{\"x\":1}}\n{\"id\":\"NaN\",\"name\":\"\",\"doc\":null}\n"
        );
    }
}
