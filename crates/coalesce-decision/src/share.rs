//! A share of something, with its unit in its constructor.

/// A share, to 1/100 %. A bare number would not say of which unit it is.
///
/// ```
/// use coalesce_decision::Share;
///
/// assert_eq!(Share::percent(5), Share::basis_points(500));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Share(u16);

impl Share {
    /// So many percent, at most 655.
    #[must_use]
    pub const fn percent(percent: u16) -> Self {
        Self(percent.saturating_mul(100))
    }

    /// So many basis points: 1/100 %.
    #[must_use]
    pub const fn basis_points(basis_points: u16) -> Self {
        Self(basis_points)
    }

    /// In basis points (1/100 %).
    #[must_use]
    pub const fn as_basis_points(self) -> u16 {
        self.0
    }
}
