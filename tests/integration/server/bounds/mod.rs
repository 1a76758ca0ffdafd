//! The bounds in docs/reference/limits.md: how much memory a key can take, how long a command can take,
//! and what the module keeps outside of keys.
//!
//! Each row of a table in the document names an extreme. A test builds the extreme on real
//! servers and measures it. The test fails if the measurement exceeds the row's bound, or if a
//! row is not measured.

mod filled;
mod memory;
mod outside;
mod time;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;

/// A table of the document.
struct Table {
    heading: &'static str,
    rows: Vec<Row>,
    /// The names of the rows that were measured.
    measured: RefCell<BTreeSet<String>>,
    /// The measurements beyond a bound, or too far below it.
    violations: RefCell<Vec<String>>,
}

/// A bound in a table: its name, from the first cell of its row and from its column, and its number.
struct Row {
    name: String,
    bound: f64,
}

impl Table {
    /// Reads the tables under a heading. A column whose heading contains "at most" has bounds. The text
    /// after "at most" is appended to the names of these bounds.
    fn under(heading: &'static str) -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/limits.md");
        let text = fs::read_to_string(path).expect("the document");
        let (_, rest) = text.split_once(&format!("\n## {heading}\n")).expect(heading);
        let section = rest.split("\n## ").next().expect("a section");
        let (mut columns, mut rows) = (Vec::new(), Vec::new());
        for line in section.lines() {
            let inner = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
            let cells: Vec<&str> = inner.into_iter().flat_map(|line| line.split(" | ")).collect();
            let ends = cells
                .iter()
                .enumerate()
                .filter_map(|(column, cell)| Some((column, cell.split_once("at most")?.1)));
            let headings: Vec<_> = ends.collect();
            if !headings.is_empty() {
                columns = headings;
            } else if let Some(name) = cells.first() {
                rows.extend(columns.iter().map(|(column, end)| Row {
                    name: format!("{name}{end}"),
                    bound: cells[*column].replace(',', "").parse().expect("a number"),
                }));
            }
        }
        assert!(!rows.is_empty(), "{heading}");
        Self { heading, rows, measured: RefCell::default(), violations: RefCell::default() }
    }

    /// The bound of a row.
    fn bound(&self, name: &str) -> f64 {
        let row = self.rows.iter().find(|row| row.name == name);
        row.unwrap_or_else(|| panic!("no row '{name}' in {}", self.heading)).bound
    }

    /// Compares what was measured with the bound of a row.
    fn judge(&self, server: &str, name: &str, measured: f64) {
        eprintln!("{server} | {name} | {measured}");
        let bound = self.bound(name);
        if measured > bound {
            let beyond = format!("{server}: {name}: {measured}, more than the documented {bound}");
            self.violations.borrow_mut().push(beyond);
        }
        self.measured.borrow_mut().insert(name.to_string());
    }

    /// Compares a measurement with half of a row's bound: a bound that is far away says little,
    /// and may belong to another extreme.
    fn judge_nearness(&self, server: &str, name: &str, measured: f64) {
        let half = self.bound(name) / 2.0;
        if measured < half {
            let far = format!("{server}: {name}: {measured}, less than half of what is documented");
            self.violations.borrow_mut().push(far);
        }
    }

    /// Checks that each row was measured, and that each measurement fits its bound.
    fn assert_all_hold(&self) {
        let measured = self.measured.borrow();
        for row in &self.rows {
            assert!(measured.contains(&row.name), "no test measures '{}'", row.name);
        }
        let violations = self.violations.borrow();
        assert!(violations.is_empty(), "{}:\n{}", self.heading, violations.join("\n"));
    }
}
