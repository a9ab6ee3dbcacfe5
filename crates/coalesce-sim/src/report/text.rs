//! Tables for a terminal.

/// Aligned columns under their heads: the first are words, the others numbers.
#[must_use]
pub fn aligned<const COLUMNS: usize>(heads: &[&str; COLUMNS], lines: &[[String; COLUMNS]]) -> String {
    let mut widths = heads.map(|head| head.chars().count());
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let aligned = |cells: &[String; COLUMNS]| {
        let columns = cells.iter().zip(widths).enumerate();
        let padded = columns.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    std::iter::once(&heads.map(str::to_owned)).chain(lines).map(aligned).collect()
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
