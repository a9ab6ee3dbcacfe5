//! Tables for a terminal.

/// Nanoseconds as tables have them, in µs: 5.9.
#[must_use]
pub fn us(ns: u64) -> String {
    mean_us(ns as f64)
}

/// A mean of such.
#[must_use]
pub fn mean_us(ns: f64) -> String {
    format!("{:.1}", ns / 1000.0)
}

/// Aligned columns under their heads, of which each line has as many: the first are words, the others numbers.
#[must_use]
pub fn aligned<L: AsRef<[String]>>(heads: &[&str], lines: &[L]) -> String {
    let heads: Vec<_> = heads.iter().map(|&head| head.to_owned()).collect();
    let all = || std::iter::once(heads.as_slice()).chain(lines.iter().map(AsRef::as_ref));
    let mut widths = vec![0; heads.len()];
    for cells in all() {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    let aligned = |cells: &[String]| {
        let columns = cells.iter().zip(&widths).enumerate();
        let padded = columns.map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    all().map(aligned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_to_the_left_and_numbers_to_the_right() {
        let lines = [["cint".to_owned(), "7".to_owned()], ["vic".to_owned(), "12345".to_owned()]];
        assert_eq!(aligned(&["policy", "n"], &lines), "policy      n\ncint        7\nvic     12345\n");
    }
}
