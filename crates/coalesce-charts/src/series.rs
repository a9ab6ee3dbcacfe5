//! The policies of a figure: one label, colour and marker for each, the same in every figure.

/// A policy in a figure.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// Its label.
    pub label: &'a str,
    /// Index of its colour and marker.
    pub style: usize,
}

/// Names with a fixed style. The styles after these are for other names, and for a name's second and later occurrences.
const STYLED: [&str; 8] = ["none", "nvme", "vic", "cint", "auto", "batch", "dim", "spdk_vhost"];

/// The number of styles that the page defines, and so the most policies in a figure.
pub const STYLES: usize = 11;

/// The labels and styles of policies. A label is the policy's name, numbered if it occurs again. `None` if no style is
/// left.
#[must_use]
pub fn styles(names: &[&str]) -> Option<Vec<(String, usize)>> {
    let mut spare = STYLED.len()..STYLES;
    let style = |(index, name): (usize, &&str)| {
        let nth = 1 + names[..index].iter().filter(|other| *other == name).count();
        let own = STYLED.iter().position(|styled| styled == name).filter(|_| nth == 1);
        let label = if nth == 1 { (*name).to_owned() } else { format!("{name}#{nth}") };
        Some((label, own.or_else(|| spare.next())?))
    };
    names.iter().enumerate().map(style).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_distinct_styles_until_none_is_left() {
        let of = |names: &[&str]| {
            styles(names)
                .map(|all| all.into_iter().map(|(label, style)| format!("{label} {style}")).collect::<Vec<_>>())
        };
        assert_eq!(of(&["auto", "vic", "none", "vic"]).unwrap(), ["auto 4", "vic 2", "none 0", "vic#2 8"]);
        assert_eq!(of(&["x", "x", "x"]).unwrap(), ["x 8", "x#2 9", "x#3 10"]);
        assert_eq!(of(&["vic"; 5]), None);
    }
}
