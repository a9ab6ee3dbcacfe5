//! What was measured: numbers of each turn, compared within their blocks.

use coalesce_demo::json::{of_baseline, of_others};
use coalesce_demo::paired::{Block, Comparison, Interval, Plan, Verdict, compare};
use serde_json::{Map, Value, json};

use crate::claims::{error_of, is_claim};
use crate::counts::Counts;
use crate::jobs::Job;
use crate::metric::{Kind, What, has_loop_inside, metrics};
use crate::place::Place;
use crate::policies::{Policies, SETTLE};
use crate::regime::Regime;

/// One job, measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Where.
    pub place: Place,
    /// The job.
    pub job: Job,
    /// The policies.
    pub policies: Policies,
    /// What policies that learn did before the first turn.
    pub learned: Vec<Learned>,
    /// A turn of each variant: the baseline, the baseline again, the other policies.
    pub blocks: Vec<Block<Counts>>,
    /// In which order, and how often it was looked at.
    pub plan: Plan,
}

/// What a policy that learns did from its beginning on, before it was measured.
#[derive(Clone, Debug)]
pub struct Learned {
    /// Its label.
    pub label: String,
    /// One after the other, without what is counted by thread.
    pub stretches: Vec<Counts>,
}

impl Learned {
    /// How long that was.
    pub fn seconds(&self) -> f64 {
        self.stretches.iter().map(|counts| counts.seconds).sum()
    }
}

/// What must be known well for a measurement to end before its time.
fn decisive(job: Job, place: Place) -> &'static [What] {
    match place {
        Place::Counted => &[What::Instructions],
        _ if has_loop_inside(job, place) => &[What::Rate(0)],
        _ => &[What::Rate(0), What::Cpu],
    }
}

/// Whether every interval of what decides is narrow.
pub fn are_narrow(job: Job, place: Place, blocks: &[Block<Counts>], plan: &Plan) -> bool {
    let compared = |what| compare(&values(job, blocks, what), plan.at_each_look(error_of(place, job, what)));
    let narrow = |what| compared(what).verdicts.iter().all(Verdict::is_narrow);
    decisive(job, place).iter().all(|what| narrow(*what))
}

fn values(job: Job, blocks: &[Block<Counts>], what: What) -> Vec<Vec<f64>> {
    blocks.iter().map(|block| block.iter().map(|turn| what.of(job, &turn.value)).collect()).collect()
}

impl Measured {
    /// A number of every policy, compared with the baseline's.
    pub fn compare(&self, what: What) -> Comparison {
        let error = self.plan.at_each_look(error_of(self.place, self.job, what));
        compare(&values(self.job, &self.blocks, what), error)
    }

    /// Whether this number of the judged policy is a claim of the page.
    pub fn is_claim(&self, what: What) -> bool {
        is_claim(self.place, self.job, what)
    }

    /// The median over the turns of a variant.
    pub fn median(&self, variant: usize, what: What) -> f64 {
        let all: Vec<_> = values(self.job, &self.blocks, what).iter().map(|block| block[variant]).collect();
        Interval::of_median(&all, 1.0).map_or(f64::NAN, |interval| interval.median)
    }

    /// Interrupts that the target sent per I/O, by the seconds that a policy was in force since it began anew: at the end of each
    /// stretch in which it learned, and of each turn.
    pub fn in_force(&self, variant: usize) -> Vec<(f64, f64)> {
        let policies = self.policies.with_control();
        let learned = self.learned.iter().find(|learned| learned.label == policies[variant].label);
        let learned = learned.into_iter().flat_map(|learned| &learned.stretches).map(|counts| (0.0, counts));
        let turns = self.blocks.iter().map(|block| (SETTLE.as_secs_f64(), &block[variant].value));
        let mut seconds = 0.0;
        let point = |(before, counts): (f64, &Counts)| {
            seconds += before + counts.seconds;
            (seconds, What::Interrupts.of(self.job, counts))
        };
        learned.chain(turns).map(point).filter(|(_, value)| value.is_finite()).collect()
    }

    /// When a turn is measured, and what a policy had learned by then.
    pub fn turns(&self) -> String {
        let lengths: Vec<_> = self.blocks.iter().flatten().map(|turn| turn.value.seconds).collect();
        let length = Interval::of_median(&lengths, 1.0).map_or(f64::NAN, |interval| interval.median);
        let mut text = format!(
            "each turn from {} ms after the change of policy on, for {:.0} ms",
            SETTLE.as_millis(),
            length * 1e3
        );
        for learned in &self.learned {
            let turns = self.blocks.len() as f64 * (SETTLE.as_secs_f64() + length);
            text += &format!(
                "; {} had {:.1} s before its first turn, keeps what it learns between its turns, and had {:.1} s in the end; in {} of its {} \
                 turns it had a licence",
                learned.label,
                learned.seconds(),
                learned.seconds() + turns,
                self.licensed(&learned.label),
                self.blocks.len()
            );
        }
        text
    }

    /// In how many of its turns a policy held something under a licence.
    fn licensed(&self, label: &str) -> usize {
        let policies = self.policies.with_control();
        let variant = policies.iter().rposition(|policy| policy.label == label);
        variant.map_or(0, |variant| self.blocks.iter().filter(|block| block[variant].value.licensed > 0).count())
    }

    /// How many of its turns a policy had no licence in, if it learns and that is more than half of them; and how many there were.
    pub fn unlicensed(&self, label: &str) -> Option<(usize, usize)> {
        let turns = self.blocks.len();
        let without = turns - self.licensed(label);
        let learns = self.learned.iter().any(|learned| learned.label == label);
        (learns && 2 * without > turns).then_some((without, turns))
    }

    /// The smallest effects that could be seen: "smallest effect seen: reads/s 20 %, CPU µs/IO a factor of 2.3".
    pub fn smallest_effects(&self) -> String {
        let effect = |what| match self.compare(what).smallest_effect() {
            Some(effect) if effect < 1.0 => format!("{:.0} %", effect * 100.0),
            Some(effect) if effect < 9.0 => format!("a factor of {:.1}", 1.0 + effect),
            Some(_) => "none".to_owned(),
            None => "too few turns".to_owned(),
        };
        let named = |what: &What| {
            let metrics = metrics(self.job, self.place);
            let name = metrics.iter().find(|metric| metric.what == *what).map_or("", |metric| metric.name);
            format!("{name} {}", effect(*what))
        };
        let effects: Vec<_> = decisive(self.job, self.place).iter().map(named).collect();
        format!("smallest effect seen: {}", effects.join(", "))
    }

    /// What client and CPUs were like under the baseline.
    pub fn regime(&self) -> Regime {
        Regime::of(self.blocks.iter().flat_map(|block| &block[..2]).map(|turn| &turn.value))
    }

    /// Of the time that client and target wanted a CPU, what they waited for one, and all of it; none: the kernel does not say.
    fn waited(&self) -> Option<(u64, u64)> {
        let mut sum = (0, 0);
        for Counts { waited_ns, client_cpu_ns, target_cpu_ns, .. } in
            self.blocks.iter().flatten().map(|turn| turn.value)
        {
            sum = (sum.0 + waited_ns?, sum.1 + waited_ns? + client_cpu_ns + target_cpu_ns);
        }
        Some(sum)
    }

    /// Seconds that were measured, and those of them that others had the machine's CPUs; turns that were repeated.
    fn lost(&self) -> (f64, f64, u32) {
        let turns = || self.blocks.iter().flatten();
        let sum = |of: fn(&coalesce_demo::paired::Turn<Counts>) -> f64| turns().map(of).sum();
        (
            sum(|turn| turn.value.seconds),
            sum(|turn| turn.value.seconds * turn.lost),
            turns().map(|turn| turn.repeats).sum(),
        )
    }

    fn json(&self) -> Value {
        let rows = metrics(self.job, self.place).into_iter().map(|metric| {
            let (comparison, is_exact) = (self.compare(metric.what), |ratio: &Interval| metric.is_exact(ratio));
            let mut row = of_baseline(metric.name, self.median(0, metric.what), &comparison, is_exact);
            row["counted"] = json!(metric.kind == Kind::Count);
            row["claim"] = json!(self.is_claim(metric.what));
            if self.is_claim(metric.what) {
                let relative = |block: Vec<f64>| block.iter().map(|value| value / block[0]).collect::<Vec<_>>();
                row["turns"] = values(self.job, &self.blocks, metric.what).into_iter().map(relative).collect();
            }
            row["policies"] =
                of_others(self.policies.others().map(|policy| policy.label.as_str()), &comparison, is_exact).into();
            row
        });
        json!({
            "jobname": self.job.name(),
            "about": self.job.about(),
            "blocks": self.blocks.len(),
            "looks": self.plan.looks.len(),
            "regime": self.regime().json(),
            "smallest_effects": self.smallest_effects(),
            "turn": self.turns(),
            "in_force": self.policies.others().enumerate().map(|(nth, policy)| (policy.label.clone(), json!(self.in_force(nth + 2)))).collect::<Map<_, _>>(),
            "metrics": rows.collect::<Vec<_>>(),
            "turns": self.blocks.iter().map(|block| block.iter().map(|turn| {
                let mut counts = json!(turn.value);
                counts["lost"] = json!(turn.lost);
                counts["repeats"] = json!(turn.repeats);
                counts
            }).collect::<Vec<_>>()).collect::<Vec<_>>(),
        })
    }
}

/// All jobs of one place, or why they are not there. Empty: it was not asked for.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// What was measured.
    pub jobs: Vec<Measured>,
    /// The guest; empty: there was none.
    pub about: String,
    /// What the reader must know about it: SKIPPED, FAILED, and why.
    pub notice: Option<String>,
    /// Whether something failed, as opposed to being left out.
    pub failed: bool,
}

impl Section {
    /// A job.
    pub fn job(&self, job: Job) -> Option<&Measured> {
        self.jobs.iter().find(|measured| measured.job == job)
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let jobs: Vec<_> = self.jobs.iter().map(Measured::json).collect();
        json!({ "notice": self.notice, "about": self.about, "jobs": jobs })
    }
}

/// How much the machine differs from itself.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// In half of all blocks two turns of the same thing differ in throughput by more than this share.
    pub rate: f64,
    /// The share of CPU time that others had.
    pub lost: f64,
    /// Turns that were repeated for it.
    pub repeats: u32,
    /// The share of the time that client and target waited while they could run: for each other, and for all other programs.
    /// None: the kernel does not count it.
    pub waited: Option<f64>,
    /// Comparisons of the baseline with itself, and those of them whose interval has 1 in it.
    pub controls: (usize, usize),
}

impl Noise {
    /// Of everything that was measured.
    pub fn of<'a>(sections: impl Iterator<Item = &'a Section>) -> Self {
        let jobs: Vec<_> = sections.flat_map(|section| &section.jobs).collect();
        let timed = jobs.iter().filter(|job| job.place != Place::Counted);
        let noises: Vec<_> = timed.map(|job| job.compare(What::Rate(0)).noise).collect();
        let lost = jobs.iter().map(|job| job.lost());
        let (seconds, lost, repeats) = lost.fold((0.0, 0.0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
        let waited: Option<Vec<_>> = jobs.iter().map(|job| job.waited()).collect();
        let waited = waited.map(|jobs| jobs.into_iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)));
        let controls =
            jobs.iter().flat_map(|job| metrics(job.job, job.place).into_iter().map(|m| job.compare(m.what).control));
        let controls: Vec<_> = controls.flatten().collect();
        Self {
            rate: Interval::of_median(&noises, 1.0).map_or(f64::NAN, |interval| interval.median),
            lost: if seconds > 0.0 { lost / seconds } else { 0.0 },
            repeats,
            waited: waited.filter(|(_, wanted)| *wanted > 0).map(|(waited, wanted)| waited as f64 / wanted as f64),
            controls: (controls.len(), controls.iter().filter(|control| control.contains(1.0)).count()),
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let Self { rate, lost, repeats, waited, controls: (controls, hold) } = self;
        json!({ "rate": rate, "lost": lost, "repeats": repeats, "waited": waited, "controls": controls,
                "controls_with_1": hold })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::policies::parse_policies;
    use coalesce_demo::paired::Turn;

    /// A job of 20 blocks in which variant n completes `work[n].0` requests per second with `work[n].1` interrupts, give or take a
    /// part of a thousand.
    pub fn measured(job: Job, work: &[(u64, u64)]) -> Measured {
        let turn = |block: u64, &(completions, interrupts): &(u64, u64)| {
            let wobble = |value: u64| value * 100 + value * ((block * 7) % 5) / 50;
            let value = Counts {
                seconds: 100.0,
                completions: wobble(completions),
                reads: wobble(completions),
                interrupts: interrupts * 100,
                taken: Some(interrupts * 50),
                client_sleeps: interrupts * 5,
                waited_ns: Some(250 * interrupts * 100),
                client_cpu_ns: 1000 * interrupts * 100,
                ..Counts::default()
            };
            Turn { value, lost: 0.01, repeats: 0 }
        };
        let blocks = (0..20).map(|block| work.iter().map(|work| turn(block, work)).collect());
        let names = if work.len() == 4 { "none,nvme,auto" } else { "none,auto" };
        let policies = parse_policies(names).unwrap();
        Measured {
            place: Place::Guest,
            job,
            policies,
            learned: Vec::new(),
            blocks: blocks.collect(),
            plan: Plan::of_page(work.len(), 20, 1),
        }
    }

    #[test]
    fn numbers_are_per_io_and_compared_with_the_baseline() {
        let job = measured(Job::Depth32, &[(1000, 1000), (1000, 1000), (2000, 500)]);
        assert!((job.median(0, What::Interrupts) - 1.0).abs() < 0.01);
        assert!((job.median(0, What::Rate(0)) - 1000.0).abs() < 10.0);
        for (what, expected) in [(What::Interrupts, 0.25), (What::Cpu, 0.25), (What::Rate(0), 2.0)] {
            let [Verdict::Differs(interval)] = job.compare(what).verdicts[..] else { panic!("{what:?}") };
            assert!((interval.median - expected).abs() < 0.01, "{what:?}: {interval:?}");
        }
        assert_eq!(job.compare(What::TargetCpu).verdicts, [Verdict::TooFew], "0 / 0");
    }

    #[test]
    fn a_policy_is_in_force_while_it_learns_and_in_its_turns() {
        let mut job = measured(Job::Depth32, &[(1000, 1000), (1000, 1000), (2000, 500)]);
        let look = |interrupts| Counts { seconds: 0.5, completions: 100, interrupts, ..Counts::default() };
        job.learned = vec![Learned { label: "auto".into(), stretches: vec![look(100), look(60)] }];
        let points = job.in_force(2);
        assert_eq!((points.len(), points[..2].to_vec()), (22, vec![(0.5, 1.0), (1.0, 0.6)]));
        assert!((points[2].0 - 101.05).abs() < 1e-9 && (points[2].1 - 0.25).abs() < 0.01, "{:?}", points[2]);
        let turns = job.turns();
        assert!(turns.contains("50 ms after") && turns.contains("auto had 1.0 s before its first turn"), "{turns}");
    }

    #[test]
    fn a_policy_without_a_licence_in_most_turns_is_told_of() {
        let mut job = measured(Job::Depth32, &[(1000, 1000), (1000, 1000), (2000, 500)]);
        assert_eq!(job.unlicensed("auto"), None, "it does not learn");
        job.learned = vec![Learned { label: "auto".into(), stretches: Vec::new() }];
        assert_eq!(job.unlicensed("auto"), Some((20, 20)));
        job.blocks[..9].iter_mut().for_each(|block| block[2].value.licensed = 1);
        assert_eq!(job.unlicensed("auto"), Some((11, 20)));
        assert!(job.turns().ends_with("in 9 of its 20 turns it had a licence"), "{}", job.turns());
        job.blocks[9].iter_mut().for_each(|turn| turn.value.licensed = 1);
        assert_eq!(job.unlicensed("auto"), None, "in half of them");
    }

    #[test]
    fn every_metric_of_every_job_has_a_name_of_its_own() {
        use clap::ValueEnum as _;
        for job in Job::value_variants() {
            let mut names: Vec<_> = metrics(*job, Place::Guest).iter().map(|metric| metric.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{job:?}");
        }
    }

    #[test]
    fn the_smallest_effects_are_those_of_the_control() {
        let job = measured(Job::Depth32, &[(1000, 1000), (1100, 1000)]);
        assert_eq!(job.smallest_effects(), "smallest effect seen: reads/s 10 %, CPU µs/IO 10 %");
    }

    #[test]
    fn noise_is_of_all_jobs() {
        let jobs = vec![measured(Job::Depth1, &[(1000, 1000), (1000, 1000), (1000, 1000)])];
        let section = Section { jobs, ..Section::default() };
        let noise = Noise::of([&section].into_iter());
        assert!(noise.rate < 0.01 && (noise.lost - 0.01).abs() < 1e-9, "{noise:?}");
        assert!(noise.waited.is_some_and(|waited| (waited - 0.2).abs() < 1e-9), "{noise:?}");
        assert!(noise.controls.0 > 3 && noise.controls.0 == noise.controls.1, "{noise:?}");
    }
}
