//! The list of policies that are compared.

use coalesce_charts::series::{STYLES, styles};
use coalesce_policy::Spec;
use std::time::Duration;

/// Not measured, after each change of the policy.
pub const SETTLE: Duration = Duration::from_millis(50);

/// One policy that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Short and unique: its name; if that comes twice, with the value of its only key, or numbered.
    pub label: String,
    /// Its whole text form.
    pub text: String,
    /// Number of its colour and marker, the same in every report.
    pub style: usize,
    /// Whether it is a further point of the picture: compared where that is drawn, and nowhere else.
    pub is_further: bool,
}

impl Policy {
    /// Its name, without parameters.
    pub fn name(&self) -> &str {
        self.text.split(':').next().unwrap_or_default()
    }

    /// Whether it is a number and a time and nothing else, as NVMe's Feature 08h.
    pub fn is_timer(&self) -> bool {
        self.name() == "nvme"
    }

    /// What it is called before everything is explained.
    pub fn title(&self) -> String {
        if self.is_timer() { self.label.replacen("nvme", "fixed timer", 1) } else { self.label.clone() }
    }
}

/// The policies that are compared, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies(pub Vec<Policy>);

impl Policies {
    /// What the others are compared to: `none`, or the first if that is not there.
    pub fn baseline(&self) -> &Policy {
        self.0.iter().find(|policy| policy.text == "none").unwrap_or(&self.0[0])
    }

    /// The others, in order.
    pub fn others(&self) -> impl Iterator<Item = &Policy> {
        self.0.iter().filter(|policy| *policy != self.baseline())
    }

    /// The one that the headline is about, and its place among the others.
    pub fn judged(&self) -> Option<(usize, &Policy)> {
        let candidates = || self.others().enumerate().filter(|(_, policy)| !policy.is_further);
        let auto = candidates().find(|(_, policy)| policy.label == "auto");
        auto.or_else(|| candidates().last())
    }

    /// These and further points of the picture, which have the colour of the policy of that name.
    pub fn and_further(&self, further: &Further) -> Result<Self, String> {
        let mut all = self.clone();
        for spec in &further.0 {
            let own = styles(&[spec.name()]).map_or(0, |styles| styles[0].1);
            let style = all.0.iter().find(|policy| policy.name() == spec.name()).map_or(own, |policy| policy.style);
            all.push(spec, style, true)?;
        }
        Ok(all)
    }

    fn push(&mut self, spec: &Spec, style: usize, is_further: bool) -> Result<(), String> {
        let (name, text) = (spec.name(), spec.to_string());
        if self.0.iter().any(|policy| policy.text == text) {
            return Err(format!("{text} is given twice"));
        }
        let is_free = |label: &String| self.0.iter().all(|policy| policy.label != *label);
        let numbered = (2..).map(|nth| format!("{name}#{nth}"));
        let label = [name.to_owned()].into_iter().chain(by_value(&text)).chain(numbered).find(is_free);
        self.0.push(Policy { label: label.unwrap_or_default(), text, style, is_further });
        Ok(())
    }

    /// The variants of a block: the baseline, the baseline again, the others.
    pub fn with_control(&self) -> Vec<&Policy> {
        [self.baseline(); 2].into_iter().chain(self.others()).collect()
    }
}

/// Further points of the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Further(Vec<Spec>);

/// Policies that are compared, each with a colour of its own.
pub fn parse_policies(list: &str) -> Result<Policies, String> {
    let specs = specs(list)?;
    if specs.len() > STYLES {
        return Err(format!("at most {STYLES} policies"));
    }
    let names: Vec<_> = specs.iter().map(Spec::name).collect();
    let styles = styles(&names).ok_or("too many policies of the same name: at most three more")?;
    let mut policies = Policies(Vec::new());
    for (spec, (_, style)) in specs.iter().zip(styles) {
        policies.push(spec, style, false)?;
    }
    Ok(policies)
}

/// Any number of policies.
pub fn parse_further(list: &str) -> Result<Further, String> {
    specs(list).map(Further)
}

/// A comma separates policies as well as the keys of one; a piece `key=value` goes on with the policy before it.
fn specs(list: &str) -> Result<Vec<Spec>, String> {
    let mut texts: Vec<String> = Vec::new();
    for piece in list.split(',').map(str::trim) {
        let goes_on = piece.find([':', '=']).is_some_and(|at| piece[at..].starts_with('='));
        match texts.last_mut() {
            Some(text) if goes_on => *text += &format!(",{piece}"),
            _ => texts.push(piece.into()),
        }
    }
    texts.iter().map(|text| text.parse::<Spec>().map_err(|error| error.to_string())).collect()
}

/// "auto 2%" of "auto:budget=2%".
fn by_value(text: &str) -> Option<String> {
    let (name, keys) = text.split_once(':')?;
    let (_, value) = keys.split_once('=').filter(|_| !keys.contains(','))?;
    Some(format!("{name} {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_policies_and_keys() {
        let Policies(list) =
            parse_policies("none, nvme:time=200us,thr=3,vic:cif_threshold=2,vic:epoch=100ms,auto").unwrap();
        let texts: Vec<_> = list.iter().map(|policy| policy.text.as_str()).collect();
        assert_eq!(texts, ["none", "nvme:thr=3,time=200us", "vic:cif_threshold=2", "vic:epoch=100ms", "auto"]);
        let labels: Vec<_> = list.iter().map(|policy| policy.label.as_str()).collect();
        assert_eq!(labels, ["none", "nvme", "vic", "vic 100ms", "auto"]);
        let mut styles: Vec<_> = list.iter().map(|policy| policy.style).collect();
        assert_eq!((styles[0], styles[4]), (0, 4));
        styles.dedup();
        assert_eq!(styles.len(), 5);
    }

    #[test]
    fn further_policies_are_never_judged() {
        let policies =
            |list: &str, further| parse_policies(list).unwrap().and_further(&parse_further(further).unwrap());
        let all = policies("none,auto,vic", "auto:budget=2%,auto:budget=2%,max_hold=1ms").unwrap();
        let labels: Vec<_> = all.0.iter().map(|policy| (policy.label.as_str(), policy.is_further)).collect();
        assert_eq!(labels, [("none", false), ("auto", false), ("vic", false), ("auto 2%", true), ("auto#2", true)]);
        assert_eq!(all.judged().unwrap().1.label, "auto");
        assert_eq!(policies("none,vic", "auto:budget=2%").unwrap().judged().unwrap().1.label, "vic");
        let budgets =
            policies("none,auto", "auto:budget=1%,auto:budget=2%,auto:budget=10%,auto:budget=20%,auto:budget=50%");
        assert!(budgets.unwrap().others().all(|policy| policy.style == all.judged().unwrap().1.style), "one colour");
        assert!(policies("none,vic", "auto,vic").unwrap_err().contains("vic is given twice"));
    }

    #[test]
    fn wrong_lists_are_refused() {
        for (list, part) in [
            ("none,vix", "unknown policy \"vix\""),
            ("none,auto,none", "none is given twice"),
            ("thr=3", "unknown policy"),
            ("none,vic:epoch=5", "no unit"),
            ("dim,batch,none,nvme,vic:margin=1us,vic:margin=2us,vic:margin=3us,vic:margin=4us,vic:margin=5us", "more"),
        ] {
            let error = parse_policies(list).unwrap_err();
            assert!(error.contains(part), "{list}: {error}");
        }
    }

    #[test]
    fn the_baseline_is_none_wherever_it_stands() {
        let labels = |list: &str| {
            let policies = parse_policies(list).unwrap();
            policies.with_control().iter().map(|policy| policy.label.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels("auto,none,vic"), "none none auto vic");
        assert_eq!(labels("auto,vic"), "auto auto vic");
    }
}
