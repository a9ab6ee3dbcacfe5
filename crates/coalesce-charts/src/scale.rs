//! Axes: they map values to coordinates, and place the ticks.

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    Linear,
    Log,
    /// Percentiles by their number of nines: 90, 99 and 99.9 are one unit apart.
    Nines,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Scale {
    spread: Spread,
    domain: (f64, f64),
    range: (f64, f64),
    /// The values that have a tick, with their labels.
    pub ticks: Vec<(f64, String)>,
}

/// Percentiles that have a tick.
pub const NINES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

impl Scale {
    /// From 0 to at least `max`, over `range` in pixels.
    #[must_use]
    pub fn linear(max: f64, range: (f64, f64)) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        let decade = 10f64.powf(max.log10().floor());
        let steps = |step: &f64| (max / step - 2e-3).ceil(); // with rounding, so that 0.3 / 0.1 is 3 and 1.0004 is 1
        // The finest step that divides the axis into at most five.
        let step = [0.2, 0.5, 1.0].map(|part| part * decade).into_iter().find(|step| steps(step) <= 5.0);
        let step = step.unwrap_or(2.0 * decade);
        let steps = steps(&step);
        let ticks = (0..=steps as u32).map(|n| f64::from(n) * step).map(|value| (value, short(value))).collect();
        Self { spread: Spread::Linear, domain: (0.0, steps * step), range, ticks }
    }

    /// From 0 to exactly `max`, with about ten ticks.
    #[must_use]
    pub fn to(max: f64, range: (f64, f64)) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        let decade = 10f64.powf((max / 10.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|part| part * decade).into_iter().find(|step| max / step <= 12.0);
        let step = step.unwrap_or(max);
        let ticks =
            (0..=(max / step + 1e-9) as u32).map(|n| f64::from(n) * step).map(|value| (value, short(value))).collect();
        Self { spread: Spread::Linear, domain: (0.0, max), range, ticks }
    }

    /// Logarithmic, from `min` to `max`, both positive, up to 10^15.
    #[must_use]
    pub fn log(min: f64, max: f64, range: (f64, f64)) -> Self {
        let (min, max) = (min.clamp(1e-3, 1e15), max.min(1e15));
        let domain = (min / 1.08, max.max(min * 1.5) * 1.08);
        // The most ticks that fit.
        let steps: &[f64] = match domain.1 / domain.0 {
            factor if factor < 2.0 => &[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 3.0, 4.0, 6.0, 8.0],
            factor if factor < 6.0 => &[1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0],
            factor if factor < 200.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let decades = domain.0.log10().floor() as i32..=domain.1.log10().ceil() as i32;
        let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
        let ticks = all.filter(|tick| (domain.0..=domain.1).contains(tick)).map(|tick| (tick, short(tick)));
        Self { spread: Spread::Log, domain, range, ticks: ticks.collect() }
    }

    /// Logarithmic, from `min` to `max`, both positive, with a tick at each doubling of `min`.
    #[must_use]
    pub fn doublings(min: f64, max: f64, range: (f64, f64)) -> Self {
        let values =
            std::iter::successors(Some(min), |value| Some(value * 2.0)).take_while(|value| *value <= max * 1.001);
        let ticks = values.map(|value| (value, short(value))).collect();
        Self { spread: Spread::Log, domain: (min, max), range, ticks }
    }

    /// Logarithmic, for ratios around 1.
    #[must_use]
    pub fn ratio(min: f64, max: f64, range: (f64, f64)) -> Self {
        let domain = (min.clamp(0.02, 0.8) / 1.04, max.clamp(1.25, 50.0) * 1.04);
        let all: &[f64] = if domain.1 / domain.0 < 3.0 {
            &[0.4, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5]
        } else if domain.1 / domain.0 < 8.0 {
            &[0.15, 0.25, 0.5, 1.0, 2.0, 4.0, 6.0]
        } else {
            &[0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
        };
        let ticks = all.iter().filter(|&&tick| (domain.0..=domain.1).contains(&tick)).map(|&tick| (tick, short(tick)));
        Self { spread: Spread::Log, domain, range, ticks: ticks.collect() }
    }

    /// From the median to `max`, one of [`NINES`].
    #[must_use]
    pub fn nines(max: f64, range: (f64, f64)) -> Self {
        let ticks = NINES.into_iter().filter(|&tick| tick <= max).map(|tick| (tick, format!("{tick}")));
        Self { spread: Spread::Nines, domain: (NINES[0], max), range, ticks: ticks.collect() }
    }

    /// The coordinate of `value`, clamped to the end of the axis.
    #[must_use]
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = (self.position(self.domain.0), self.position(self.domain.1));
        let share = if high > low { (self.position(value) - low) / (high - low) } else { 0.0 };
        self.range.0 + share.clamp(0.0, 1.0) * (self.range.1 - self.range.0)
    }

    /// Whether `value` lies beyond the axis.
    #[must_use]
    pub fn is_beyond(&self, value: f64) -> bool {
        !(self.domain.0..=self.domain.1).contains(&value)
    }

    fn position(&self, value: f64) -> f64 {
        match self.spread {
            Spread::Linear => value,
            Spread::Log => value.max(f64::MIN_POSITIVE).log10(),
            Spread::Nines => nines(value),
        }
    }
}

/// Number of nines of a percentile: 1 for 90, 2 for 99, 3 for 99.9.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).max(1e-9).log10()
}

/// A number in about four characters: 0.25, 1.5, 20, 500, 2k, 1M.
#[must_use]
pub fn short(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e4 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let digits = match value {
        v if v >= 100.0 => 0,
        v if v >= 0.1 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    [text, unit].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: &Scale) -> String {
        scale.ticks.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn percentile_axis_is_uniform_in_nines() {
        let scale = Scale::nines(99.99, (0.0, 100.0));
        let x = NINES.map(|percent| scale.at(percent));
        assert!(close(x[0], 0.0) && close(x[4], 100.0));
        assert!(close(x[2] - x[1], x[3] - x[2]) && close(x[3] - x[2], x[4] - x[3]), "{x:?}");
        assert!(close(nines(90.0), 1.0) && close(nines(99.9), 3.0) && nines(100.0).is_finite());
        assert_eq!(ticks(&scale), "50 90 99 99.9 99.99");
        assert_eq!(ticks(&Scale::nines(99.0, (0.0, 1.0))), "50 90 99");
    }

    #[test]
    fn a_linear_axis_ends_at_a_tick() {
        for (max, expected) in [
            (1.0, "0 0.2 0.4 0.6 0.8 1"),
            (0.3, "0 0.1 0.2 0.3"),
            (1.3, "0 0.5 1 1.5"),
            (1.0004, "0 0.2 0.4 0.6 0.8 1"),
            (0.0, "0 0.2 0.4 0.6 0.8 1"),
            (2.0, "0 0.5 1 1.5 2"),
            (4.2, "0 1 2 3 4 5"),
            (9.0, "0 2 4 6 8 10"),
            (0.013, "0 0.005 0.01 0.015"),
        ] {
            assert_eq!(ticks(&Scale::linear(max, (0.0, 10.0))), expected, "{max}");
        }
        assert!(close(Scale::linear(1.0, (10.0, 20.0)).at(0.5), 15.0));
    }

    #[test]
    fn doublings_are_equidistant() {
        let scale = Scale::doublings(1.0, 16.0, (0.0, 4.0));
        assert_eq!(ticks(&scale), "1 2 4 8 16");
        assert!(close(scale.at(8.0), 3.0) && close(scale.at(16.0), 4.0));
    }

    #[test]
    fn an_exact_axis_ends_at_its_maximum() {
        for (max, expected) in [
            (95.0, "0 10 20 30 40 50 60 70 80 90"),
            (130.0, "0 20 40 60 80 100 120"),
            (0.6, "0 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5 0.55 0.6"),
        ] {
            let scale = Scale::to(max, (0.0, 1.0));
            assert_eq!(ticks(&scale), expected, "{max}");
            assert!(close(scale.at(max), 1.0));
        }
    }

    #[test]
    fn a_logarithmic_axis_has_round_ticks_within_its_range() {
        let scale = Scale::log(30.0, 700.0, (0.0, 1.0));
        assert_eq!(ticks(&scale), "50 100 200 500");
        assert!(!scale.is_beyond(30.0) && !scale.is_beyond(700.0) && scale.is_beyond(19.0));
        assert!(close(scale.at(200.0) - scale.at(50.0), scale.at(400.0) - scale.at(100.0)));
        assert_eq!(ticks(&Scale::log(5.0, 90_000.0, (0.0, 1.0))), "10 100 1000 10k");
        assert_eq!(ticks(&Scale::log(450.0, 800.0, (0.0, 1.0))), "600 800");
        assert!(Scale::log(f64::MAX, f64::MIN, (0.0, 1.0)).ticks.len() < 10, "of no value at all");
        assert_eq!(ticks(&Scale::ratio(0.9, 1.1, (0.0, 1.0))), "0.8 1 1.25");
        assert!(close(Scale::ratio(0.5, 2.0, (0.0, 1.0)).at(1.0), 0.5));
    }

    #[test]
    fn short_numbers_use_k_and_m() {
        for (value, text) in
            [(0.0, "0"), (0.25, "0.25"), (1.5, "1.5"), (100.0, "100"), (2000.0, "2000"), (5e4, "50k"), (2e6, "2M")]
        {
            assert_eq!(short(value), text);
        }
    }
}
