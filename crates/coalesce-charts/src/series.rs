//! Policies in pictures: one label, colour and marker for each, the same everywhere.

/// A policy in a picture.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// Its label.
    pub label: &'a str,
    /// Number of its colour and marker.
    pub style: usize,
}

/// Names with a style of their own; the styles after these are for other names, and for a name's second and later forms.
const STYLED: [&str; 8] = ["none", "nvme", "vic", "cint", "auto", "batch", "dim", "spdk_vhost"];

/// Styles that the page defines: so many policies at most look different.
pub const STYLES: usize = 11;

/// Label and style of policies by their names: the name, numbered if it comes twice. `None`: no style is left.
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
    fn each_policy_has_a_style_until_there_is_none_left() {
        let of = |names: &[&str]| {
            styles(names)
                .map(|all| all.into_iter().map(|(label, style)| format!("{label} {style}")).collect::<Vec<_>>())
        };
        assert_eq!(of(&["auto", "vic", "none", "vic"]).unwrap(), ["auto 4", "vic 2", "none 0", "vic#2 8"]);
        assert_eq!(of(&["x", "x", "x"]).unwrap(), ["x 8", "x#2 9", "x#3 10"]);
        assert_eq!(of(&["vic"; 5]), None);
    }
}
