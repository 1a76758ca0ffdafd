//! The bounds in docs/reference/limits.md: how much memory a key can take, how long a command can take,
//! and what the module keeps outside of keys.
//!
//! Each row of a table in the document names an extreme. A test builds the extreme on real
//! servers and measures it. The test fails if the measurement exceeds the row's bound, or if a
//! row is not measured. `make limits` writes the bounds instead: with `RATELIMIT_WRITE_BOUNDS`, a bound
//! that does not fit its measurements is replaced in the document.

mod filled;
mod memory;
mod outside;
mod time;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::{env, fs};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/limits.md");

/// A table of the document.
struct Table {
    heading: &'static str,
    rows: Vec<Row>,
    /// The largest measurement of each row that was measured, by its name.
    measured: RefCell<BTreeMap<String, f64>>,
    /// The measurements beyond a bound, or too far below it.
    violations: RefCell<Vec<String>>,
}

/// A bound in a table: its name, from the first cell of its row and from its column, and its number.
struct Row {
    name: String,
    first: String,
    column: usize,
    bound: f64,
    is_time: bool,
}

impl Row {
    /// Whether a measurement is within the bound, and not so far below it that the bound says little.
    fn fits(&self, measured: f64) -> bool {
        let far = if self.is_time { (measured * 16.0).max(1.0) } else { measured * 2.0 };
        (measured..=far).contains(&self.bound)
    }

    /// A bound for a measurement, with room for other servers and machines: two digits, then zeros.
    fn bound_of(&self, measured: f64) -> String {
        let wanted = measured * if self.is_time { 4.0 } else { 1.25 };
        let unit = 10_f64.powf((wanted.log10().floor() - 1.0).max(0.0));
        let digits = ((wanted / unit).ceil() * unit).max(1.0).to_string();
        let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
        groups.collect::<Vec<_>>().join(",")
    }
}

/// The cells of a line of a table; empty for any other line.
fn cells(line: &str) -> Vec<&str> {
    let inner = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
    inner.into_iter().flat_map(|line| line.split(" | ")).collect()
}

impl Table {
    /// Reads the tables under a heading. A column whose heading contains "at most" has bounds. The text
    /// after "at most" is appended to the names of these bounds.
    fn under(heading: &'static str) -> Self {
        let text = fs::read_to_string(DOCUMENT).expect("the document");
        let (_, rest) = text.split_once(&format!("\n## {heading}\n")).expect(heading);
        let section = rest.split("\n## ").next().expect("a section");
        let (mut columns, mut rows) = (Vec::new(), Vec::new());
        for line in section.lines() {
            let cells = cells(line);
            let headings: Vec<(usize, &str, bool)> = cells
                .iter()
                .enumerate()
                .filter_map(|(at, cell)| {
                    Some((at, cell.split_once("at most")?.1, cell.starts_with("ms")))
                })
                .collect();
            if !headings.is_empty() {
                columns = headings;
            } else if let Some(first) = cells.first() {
                rows.extend(columns.iter().map(|&(column, end, is_time)| Row {
                    name: format!("{first}{end}"),
                    first: (*first).to_string(),
                    column,
                    bound: cells[column].replace(',', "").parse().expect("a number"),
                    is_time,
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
        let mut all = self.measured.borrow_mut();
        let largest = all.entry(name.to_string()).or_insert(measured);
        *largest = largest.max(measured);
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

    /// Checks that each row was measured, and that each measurement fits its bound, or writes the bounds.
    fn assert_all_hold(&self) {
        let measured = self.measured.borrow();
        for row in &self.rows {
            assert!(measured.contains_key(&row.name), "no test measures '{}'", row.name);
        }
        if env::var_os("RATELIMIT_WRITE_BOUNDS").is_some() {
            return self.write(&measured);
        }
        let violations = self.violations.borrow();
        assert!(violations.is_empty(), "{}:\n{}", self.heading, violations.join("\n"));
    }

    /// Replaces the bounds that do not fit in the document.
    fn write(&self, measured: &BTreeMap<String, f64>) {
        static WRITING: Mutex<()> = Mutex::new(());
        let _alone = WRITING.lock().expect("no test panics while it writes");
        let text = fs::read_to_string(DOCUMENT).expect("the document");
        let is_wrong = |row: &&Row| !row.fits(measured[&row.name]);
        let mut is_here = false;
        let lines = text.lines().map(|line| {
            if let Some(heading) = line.strip_prefix("## ") {
                is_here = heading == self.heading;
            }
            let mut cells = cells(line);
            let here = cells.first().filter(|_| is_here).map(ToString::to_string);
            let wrong =
                self.rows.iter().filter(|row| here.as_ref() == Some(&row.first)).filter(is_wrong);
            let bounds: Vec<_> =
                wrong.map(|row| (row.column, row.bound_of(measured[&row.name]))).collect();
            bounds.iter().for_each(|(column, bound)| cells[*column] = bound);
            if bounds.is_empty() { line.to_string() } else { format!("| {} |", cells.join(" | ")) }
        });
        let written = lines.collect::<Vec<_>>().join("\n") + "\n";
        fs::write(DOCUMENT, written).expect("the document is written");
    }
}
