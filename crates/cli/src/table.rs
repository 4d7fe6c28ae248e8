//! Owns the layout of text tables, and of JSON. Never knows their content.

use serde_json::Value;

/// The alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A reply of the API, as `--json` prints it.
pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// A head and rows, with columns two spaces apart and no trailing spaces. Widths count characters.
pub fn table(head: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let titles: Vec<String> = head.iter().map(|(title, _)| (*title).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for ((cell, (_, align)), &width) in row.iter().zip(head).zip(&widths) {
            match align {
                Align::Left => line.push_str(&format!("{cell:<width$}  ")),
                Align::Right => line.push_str(&format!("{cell:>width$}  ")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Names with their values, one per line. All names are as wide as the widest.
pub fn pairs(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:<width$}  {value}").trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["übung".to_owned(), "1234".to_owned()]];
        assert_eq!(
            table(&[("NAME", Align::Left), ("N", Align::Right)], &rows),
            "NAME      N\n\
             a         1\n\
             übung  1234\n"
        );
        assert_eq!(pairs(&[("a", "1".to_owned()), ("long", String::new())]), "a     1\nlong\n");
    }
}
