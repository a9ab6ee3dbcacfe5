//! Lines that need no knowledge of the field.

use coalesce_demo::paired::{ERROR, Interval, Verdict};

use crate::claims;
use crate::jobs::Job;
use crate::metric::What;
use crate::place::Place;
use crate::policies::Policies;
use crate::results::{Measured, Noise, Section};

/// The noise, what is saved where much is in flight, and what that costs a requester that waits for each request: the claims of the
/// page, and what is explored beside them.
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
    let told = |measured: &Measured, nth: usize, numbers: &[(&'static str, What)]| -> Vec<_> {
        let of = |&(name, what)| Told {
            name,
            verdict: measured.compare(what).verdicts.get(nth).copied(),
            is_claim: measured.is_claim(what),
        };
        numbers.iter().map(of).collect()
    };
    let deep_at = |place| {
        let section = sections.iter().find(|(at, _)| *at == place).map(|(_, section)| section);
        section.and_then(|section| section.job(Job::Depth32))
    };
    let first = found(Job::Depth32);
    if let Some((place, deep)) = first {
        let (policy, who, regime) = (&policy.text, who(place), deep.regime().name());
        let mut numbers = told(deep, nth, &numbers);
        if let Some(counted) = deep_at(Place::Counted).filter(|_| place == Place::Guest) {
            numbers.extend(told(counted, 0, &[("instructions of the guest per read", What::Instructions)]));
        }
        lines.push(format!(
            "{policy} instead of {baseline}, {who} with 32 reads in flight ({regime}): {}.",
            claimed_and_explored(&numbers)
        ));
    }
    for (place, whom) in [
        (Place::Nvme, "The same with an NVMe disk, whose driver cannot ask for fewer interrupts"),
        (Place::Native, "The same for a program on the host"),
    ] {
        if let Some(deep) = deep_at(place).filter(|_| first.is_none_or(|(first, _)| first != place)) {
            let (regime, told) = (deep.regime().name(), claimed_and_explored(&told(deep, nth, &numbers)));
            lines.push(format!("{whom} ({regime}): {told}."));
        }
    }
    if let Some((place, single)) = found(Job::Depth1) {
        let (who, regime) = (who(place), single.regime().name());
        lines.push(format!(
            "The same where nothing can be saved, {who} that waits for each read ({regime}): {}.",
            claimed_and_explored(&told(single, nth, &numbers))
        ));
    }
    lines.push(format!(
        "Decided before anything was measured: {} of {}. These ten share an error of {:.0} %; each number that is explored has one of \
         its own.",
        claims::ABOUT,
        policy.label,
        ERROR * 100.0
    ));
    lines
}

const fn who(place: Place) -> &'static str {
    match place {
        Place::Native => "a program on the host",
        Place::Guest | Place::Counted | Place::Nvme => "a Linux guest",
    }
}

/// A number, and what may be said of it.
#[derive(Clone, Copy, Debug)]
struct Told {
    name: &'static str,
    verdict: Option<Verdict>,
    is_claim: bool,
}

/// The claims, then what is explored.
fn claimed_and_explored(numbers: &[Told]) -> String {
    let (claims, explored): (Vec<Told>, Vec<Told>) = numbers.iter().partition(|number| number.is_claim);
    let explored = if explored.is_empty() { String::new() } else { format!("explored: {}", changes(&explored)) };
    [changes(&claims), explored].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Each number with its change; then, together, those of which nothing can be told.
fn changes(numbers: &[Told]) -> String {
    let (noisy, told): (Vec<&Told>, Vec<&Told>) =
        numbers.iter().partition(|number| matches!(number.verdict, Some(Verdict::TooNoisy)));
    let mut told: Vec<_> =
        told.iter().map(|number| format!("{} {}", number.name, change(number.verdict.as_ref()))).collect();
    let noisy: Vec<_> = noisy.iter().map(|number| number.name).collect();
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
        assert_eq!(lines.len(), 4, "no NVMe");
        assert!(lines[0].contains("took 1.0 % of the CPU"), "{}", lines[0]);
        assert!(lines[0].ends_with("waited for a CPU 20 % of the time that they could run."), "{}", lines[0]);
        assert_eq!(
            lines[1],
            "auto:budget=2% instead of an interrupt for each completion, a program on the host with 32 reads in flight (CPUs contended, client awake): \
             interrupts −83 % (−83 to −83 %); CPU time per read −83 % (−83 to −83 %); reads per second +50 % (+50 to +50 %)."
        );
        assert!(
            lines[2].ends_with(
                "each read (CPUs contended, client awake): reads per second unchanged; explored: interrupts unchanged; CPU time per read unchanged."
            ),
            "{}",
            lines[2]
        );
        assert!(
            lines[3].contains("of depth1 in the guest with the virtio-blk disk of auto. These ten share"),
            "{}",
            lines[3]
        );
        let with_others = [(Place::Guest, &section), (Place::Nvme, &section), sections[0], (Place::Counted, &section)];
        let with_others = headline(&with_others, &policies, &noise);
        assert!(with_others[1].contains("; explored: instructions of the guest per read"), "{}", with_others[1]);
        assert!(
            with_others[2].starts_with("The same with an NVMe disk") && with_others[2].contains("interrupts −83 %")
        );
        assert!(with_others[3].starts_with("The same for a program on the host (CPUs contended"), "{}", with_others[3]);
        assert_eq!(with_others[4..].len(), 2);
    }

    #[test]
    fn a_difference_within_the_noise_is_not_claimed() {
        let told = |verdict| change(Some(&verdict));
        let interval = Interval { median: 0.98, low: 0.901, high: 1.03 };
        assert_eq!(told(Verdict::CannotTell(interval)), "no difference seen (−9.9 to +3.0 %)");
        let number = |name, verdict, is_claim| Told { name, verdict: Some(verdict), is_claim };
        let (less, noisy) = (Verdict::Differs(Interval { median: 0.5, low: 0.4, high: 0.6 }), Verdict::TooNoisy);
        assert_eq!(
            claimed_and_explored(&[
                number("a", noisy, true),
                number("b", less, true),
                number("c", noisy, true),
                number("d", less, false)
            ]),
            "b −50 % (−60 to −40 %); too noisy to tell: a, c; explored: d −50 % (−60 to −40 %)"
        );
    }
}
