//! Lines that need no knowledge of the field.

use coalesce_demo::paired::{Interval, Verdict};

use crate::jobs::Job;
use crate::place::Place;
use crate::policies::Policies;
use crate::results::{Measured, Noise, Section, What};

/// The noise, what is saved where much is in flight, and what that costs a requester that waits for each request.
pub fn headline(sections: &[(Place, &Section)], policies: &Policies, noise: &Noise) -> Vec<String> {
    let mut lines = vec![format!(
        "The noise here: half of the time, two turns of the same thing differ by more than {} in speed. Other virtual machines took {} \
         of the CPU time.",
        percent(noise.rate),
        percent(noise.lost)
    )];
    if let Some(waited) = noise.waited {
        lines[0] += &format!(" Client and disk waited for a CPU {} of the time that they could run.", percent(waited));
    }
    // The guest, if there is one: it is what most people have.
    let found = |job| {
        let of = |place| {
            sections.iter().find(|(at, _)| *at == place).and_then(|(_, section)| Some((place, section.job(job)?)))
        };
        of(Place::Guest).or_else(|| of(Place::Native))
    };
    let Some((nth, policy)) = policies.judged() else { return lines };
    let baseline = match policies.baseline().text.as_str() {
        "none" => "an interrupt for each completion",
        other => other,
    };
    let numbers =
        [("interrupts", What::Interrupts), ("CPU time per read", What::Cpu), ("reads per second", What::Rate(0))];
    let verdicts = |measured: &Measured| {
        numbers.map(|(name, what)| (name, measured.compare(what).verdicts.get(nth).copied())).to_vec()
    };
    if let Some((place, deep)) = found(Job::Depth32) {
        let (policy, who, regime) = (&policy.text, who(place), deep.regime().name());
        let counted = sections.iter().find(|(at, _)| *at == Place::Counted && place == Place::Guest);
        let mut told = verdicts(deep);
        if let Some(counted) = counted.and_then(|(_, section)| section.job(Job::Depth32)) {
            told.push((
                "instructions of the guest per read",
                counted.compare(What::Instructions).verdicts.first().copied(),
            ));
        }
        lines.push(format!(
            "{policy} instead of {baseline}, {who} with 32 reads in flight ({regime}): {}.",
            changes(&told)
        ));
    }
    let of_nvme = sections.iter().find(|(at, _)| *at == Place::Nvme).and_then(|(_, section)| section.job(Job::Depth32));
    if let Some(deep) = of_nvme {
        let (regime, told) = (deep.regime().name(), changes(&verdicts(deep)));
        lines.push(format!(
            "The same with an NVMe disk, whose driver cannot ask for fewer interrupts ({regime}): {told}."
        ));
    }
    if let Some((place, single)) = found(Job::Depth1) {
        let (who, regime) = (who(place), single.regime().name());
        lines.push(format!(
            "The same where nothing can be saved, {who} that waits for each read ({regime}): {}.",
            changes(&verdicts(single))
        ));
    }
    lines
}

const fn who(place: Place) -> &'static str {
    match place {
        Place::Native => "a program on the host",
        Place::Guest | Place::Counted | Place::Nvme => "a Linux guest",
    }
}

/// Each number with its change; then, together, those of which nothing can be told.
fn changes(verdicts: &[(&str, Option<Verdict>)]) -> String {
    let is_noisy = |verdict: &Option<Verdict>| matches!(verdict, Some(Verdict::TooNoisy));
    let told = verdicts.iter().filter(|(_, verdict)| !is_noisy(verdict));
    let mut told: Vec<_> = told.map(|(name, verdict)| format!("{name} {}", change(verdict.as_ref()))).collect();
    let noisy = verdicts.iter().filter(|(_, verdict)| is_noisy(verdict)).map(|(name, _)| *name);
    let noisy: Vec<_> = noisy.collect();
    if !noisy.is_empty() {
        told.push(format!("too noisy to tell: {}", noisy.join(", ")));
    }
    told.join("; ")
}

/// "−79 % (−81 to −77 %)".
fn change(verdict: Option<&Verdict>) -> String {
    match verdict {
        Some(Verdict::Differs(Interval { median, low, high })) => {
            format!("{} % ({} to {} %)", signed(*median), signed(*low), signed(*high))
        }
        Some(Verdict::CannotTell(Interval { low, high, .. })) if signed(*low) == signed(*high) => {
            "unchanged".to_owned()
        }
        Some(Verdict::CannotTell(Interval { low, high, .. })) => {
            format!("no difference seen ({} to {} %)", signed(*low), signed(*high))
        }
        Some(Verdict::TooNoisy) => "too noisy to tell".to_owned(),
        Some(Verdict::TooFew) | None => "too few turns to tell".to_owned(),
    }
}

/// What a ratio adds, in percent.
fn signed(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    let digits = usize::from(percent.abs() < 9.95);
    format!("{percent:+.digits$}").replace('-', "−")
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 9.95 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::parse_policies;
    use crate::results::tests::measured;

    #[test]
    fn it_says_what_was_measured() {
        let policies = parse_policies("none,auto:budget=2%").unwrap();
        let jobs = vec![
            measured(Job::Depth32, &[(1000, 1000), (1000, 1000), (1500, 250)]),
            measured(Job::Depth1, &[(1000, 1000), (1000, 1000), (1000, 1000)]),
        ];
        let section = Section { jobs, ..Section::default() };
        let sections = [(Place::Native, &section)];
        let noise = Noise::of(sections.iter().map(|(_, section)| *section));
        let lines = headline(&sections, &policies, &noise);
        assert_eq!(lines.len(), 3, "no NVMe");
        assert!(lines[0].contains("took 1.0 % of the CPU"), "{}", lines[0]);
        assert!(lines[0].ends_with("waited for a CPU 20 % of the time that they could run."), "{}", lines[0]);
        assert_eq!(
            lines[1],
            "auto:budget=2% instead of an interrupt for each completion, a program on the host with 32 reads in flight (CPUs contended, client awake): \
             interrupts −83 % (−83 to −83 %); CPU time per read −83 % (−83 to −83 %); reads per second +50 % (+50 to +50 %)."
        );
        assert!(
            lines[2]
                .ends_with("each read (CPUs contended, client awake): interrupts unchanged; CPU time per read unchanged; reads per second unchanged.")
        );
        let with_nvme = headline(&[sections[0], (Place::Nvme, &section)], &policies, &noise);
        assert!(with_nvme[2].starts_with("The same with an NVMe disk") && with_nvme[2].contains("interrupts −83 %"));
        assert_eq!((with_nvme.len(), &with_nvme[3]), (4, &lines[2]));
    }

    #[test]
    fn a_difference_within_the_noise_is_not_claimed() {
        let told = |verdict| change(Some(&verdict));
        let interval = Interval { median: 0.98, low: 0.901, high: 1.03 };
        assert_eq!(told(Verdict::CannotTell(interval)), "no difference seen (−9.9 to +3.0 %)");
        let (less, noisy) = (Verdict::Differs(Interval { median: 0.5, low: 0.4, high: 0.6 }), Verdict::TooNoisy);
        assert_eq!(
            changes(&[("a", Some(noisy)), ("b", Some(less)), ("c", Some(noisy))]),
            "b −50 % (−60 to −40 %); too noisy to tell: a, c"
        );
    }
}
