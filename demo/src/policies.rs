//! The list of policies that are compared.

use coalesce_charts::series::{STYLES, styles};
use coalesce_policy::Spec;

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

    /// These and further points of the picture.
    pub fn and_further(&self, further: &Self) -> Result<Self, String> {
        let texts: Vec<_> = self.0.iter().chain(&further.0).map(|policy| policy.text.as_str()).collect();
        let mut all = parse_policies(&texts.join(","))?;
        all.0.iter_mut().skip(self.0.len()).for_each(|policy| policy.is_further = true);
        Ok(all)
    }

    /// The variants of a block: the baseline, the baseline again, the others.
    pub fn with_control(&self) -> Vec<&Policy> {
        [self.baseline(); 2].into_iter().chain(self.others()).collect()
    }
}

/// A comma separates policies as well as the keys of one; a piece `key=value` goes on with the policy before it.
pub fn parse_policies(list: &str) -> Result<Policies, String> {
    let mut texts: Vec<String> = Vec::new();
    for piece in list.split(',').map(str::trim) {
        let goes_on = piece.find([':', '=']).is_some_and(|at| piece[at..].starts_with('='));
        match texts.last_mut() {
            Some(text) if goes_on => *text += &format!(",{piece}"),
            _ => texts.push(piece.into()),
        }
    }
    let specs = texts.iter().map(|text| text.parse::<Spec>().map_err(|error| error.to_string()));
    let specs: Vec<_> = specs.collect::<Result<_, _>>()?;
    if specs.len() > STYLES {
        return Err(format!("at most {STYLES} policies"));
    }
    let names: Vec<_> = specs.iter().map(Spec::name).collect();
    let styles = styles(&names).ok_or("too many policies of the same name: at most three more")?;
    let mut policies: Vec<Policy> = Vec::new();
    for (spec, (label, style)) in specs.iter().zip(styles) {
        let text = spec.to_string();
        if policies.iter().any(|policy| policy.text == text) {
            return Err(format!("{text} is given twice"));
        }
        let is_taken = |label: &str| policies.iter().any(|policy| policy.label == label);
        let label = by_value(&text).filter(|short| label.contains('#') && !is_taken(short)).unwrap_or(label);
        policies.push(Policy { label, text, style, is_further: false });
    }
    Ok(Policies(policies))
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
            |list: &str, further| parse_policies(list).unwrap().and_further(&parse_policies(further).unwrap());
        let all = policies("none,auto,vic", "auto:budget=2%,auto:budget=2%,max_hold=1ms").unwrap();
        let labels: Vec<_> = all.0.iter().map(|policy| (policy.label.as_str(), policy.is_further)).collect();
        assert_eq!(labels, [("none", false), ("auto", false), ("vic", false), ("auto 2%", true), ("auto#3", true)]);
        assert_eq!(all.judged().unwrap().1.label, "auto");
        assert_eq!(policies("none,vic", "auto:budget=2%").unwrap().judged().unwrap().1.label, "vic");
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
