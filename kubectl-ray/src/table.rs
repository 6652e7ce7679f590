//! Columns as kubectl prints them.

use std::cmp::Ordering;

use crate::error::{Failure, Result};

/// A cell: what is shown, and where it stands among others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    rank: Option<f64>,
}

impl Cell {
    /// A number.
    pub(crate) fn number(value: impl Into<i64>) -> Self {
        let value: i64 = value.into();
        Self::ranked(value.to_string(), value as f64)
    }

    /// What is shown.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// A text that is sorted by a number, such as an age.
    pub(crate) fn ranked(text: String, rank: f64) -> Self {
        Self {
            text,
            rank: Some(rank),
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            // A cell is one line, whatever people put into names and commands.
            text: text.into().replace('\n', " "),
            rank: None,
        }
    }
}

/// A row of cells, one for each column.
pub(crate) type Row = Vec<Cell>;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// Shown with `-o wide` only.
    pub(crate) wide: bool,
}

/// A column of every table.
pub(crate) const fn column(name: &'static str) -> Column {
    Column { name, wide: false }
}

/// A column of wide tables.
pub(crate) const fn wide(name: &'static str) -> Column {
    Column { name, wide: true }
}

/// Orders `rows` by the column of that name (case and spaces do not matter).
pub(crate) fn sort(columns: &[Column], rows: &mut [Row], by: &str) -> Result<()> {
    let Some(at) = columns.iter().position(|c| plain(c.name) == plain(by)) else {
        let names: Vec<_> = columns.iter().map(|c| c.name).collect();
        return Err(Failure::usage(format!("--sort-by: there is no column `{by}`"))
            .hint(format!("the columns are: {}", names.join(", "))));
    };
    rows.sort_by(|a, b| match (a.get(at), b.get(at)) {
        (Some(a), Some(b)) => compare(a, b),
        _ => Ordering::Equal,
    });
    Ok(())
}

fn plain(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .collect::<String>()
        .to_lowercase()
}

fn compare(a: &Cell, b: &Cell) -> Ordering {
    match (a.rank, b.rank) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.text.cmp(&b.text),
    }
}

/// Lays rows out; keeps its widths, so that the rows of a watch stay aligned.
pub(crate) struct Layout {
    columns: Vec<Column>,
    widths: Vec<usize>,
    show_wide: bool,
}

impl Layout {
    /// A layout of these columns.
    pub(crate) fn new(columns: Vec<Column>, show_wide: bool) -> Self {
        Self {
            widths: columns.iter().map(|c| c.name.len()).collect(),
            columns,
            show_wide,
        }
    }

    /// The header and `rows` as text.
    pub(crate) fn render(&mut self, header: bool, rows: &[Row]) -> String {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let mut text = String::new();
        if header {
            let names: Row = self.columns.iter().map(|c| c.name.into()).collect();
            self.push_line(&mut text, &names);
        }
        for row in rows {
            self.push_line(&mut text, row);
        }
        text
    }

    fn push_line(&self, text: &mut String, row: &[Cell]) {
        let mut line = String::new();
        for ((column, width), cell) in self.columns.iter().zip(&self.widths).zip(row) {
            if column.wide && !self.show_wide {
                continue;
            }
            let shown = if cell.text.is_empty() {
                "<none>"
            } else {
                &cell.text
            };
            line.push_str(&format!("{shown:<width$}   "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        vec![
            vec!["b".into(), Cell::number(10), "x".into()],
            vec!["a".into(), Cell::number(9), "".into()],
        ]
    }

    const COLUMNS: [Column; 3] = [column("NAME"), column("WORKERS"), wide("NODE TYPE")];

    #[test]
    fn columns_are_aligned_and_wide_ones_hidden() {
        let mut layout = Layout::new(COLUMNS.to_vec(), false);
        assert_eq!(
            layout.render(true, &rows()),
            "NAME   WORKERS\nb      10\na      9\n"
        );
        let mut layout = Layout::new(COLUMNS.to_vec(), true);
        assert_eq!(
            layout.render(false, &rows()),
            "b      10        x\na      9         <none>\n"
        );
    }

    #[test]
    fn rows_sort_by_number_and_by_text() {
        let mut sorted = rows();
        sort(&COLUMNS, &mut sorted, "workers").unwrap();
        assert_eq!(sorted[0][0].text, "a");
        sort(&COLUMNS, &mut sorted, "nodeType").unwrap();
        assert_eq!(sorted[1][2].text, "x");
        assert!(sort(&COLUMNS, &mut sorted, "nope").is_err());
    }
}
