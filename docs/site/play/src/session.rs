//! A plan that is being tried.

use coalesce_charts::series::Series;
use coalesce_charts::timeline::Lane;
use coalesce_policy::{HoldReason, Reason, Spec};
use coalesce_sim::contender::Contender;
use coalesce_sim::engine::{Wanted, simulate};
use coalesce_sim::event::Event;
use coalesce_sim::outcome::Outcome;
use coalesce_sim::plan::{Plan, Point};
use coalesce_sim::report::lanes::lane;
use coalesce_sim::trace::{Options, Trace};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

/// A plan, and the trace that its threads of kind `trace` replay.
#[derive(Debug, Default)]
pub struct Session {
    trace: Arc<[u8]>,
    point: Option<Point>,
    contenders: Vec<Contender>,
}

/// What one policy did.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The numbers.
    pub outcome: Outcome,
    /// The first interrupt line after the warm-up, if it was asked for.
    pub lane: Option<Value>,
}

impl Session {
    /// The text of a trace, for the threads of later plans, whatever path they name.
    pub fn set_trace(&mut self, trace: Vec<u8>) {
        *self = Self { trace: trace.into(), ..Self::default() };
    }

    /// Takes a plan without a sweep. Returns the text forms of its policies.
    ///
    /// # Errors
    /// What is wrong with the plan or the trace, and where.
    pub fn load(&mut self, plan: &str) -> Result<Vec<String>, String> {
        self.contenders.clear();
        let plan = Plan::parse("plan", plan).map_err(|error| error.to_string())?;
        if !plan.sweep.is_empty() {
            return Err("plan: a sweep has no place here; allowed: one value of each key".into());
        }
        let contenders = plan.contenders().map_err(|wrong| wrong.to_string())?;
        let mut point = Point { settings: Vec::new(), plan };
        let trace = &self.trace;
        let open = |_: &_| Ok(Trace::new(Box::new(Cursor::new(Arc::clone(trace))), Options::default()));
        // What the last plan has read of the trace is not read again.
        point.load_with(self.point.as_slice(), open).map_err(|wrong| wrong.to_string())?;
        self.point = Some(point);
        self.contenders = contenders;
        Ok(self.contenders.iter().map(ToString::to_string).collect())
    }

    /// Simulates the plan under one of its policies. `events`: those of a time line, at most; 0: none is wanted.
    ///
    /// # Errors
    /// There is no such policy, or a clock in ns cannot carry one of its parameters.
    pub fn simulate(&self, nth: usize, events: usize) -> Result<Answer, String> {
        let (Some(point), Some(contender)) = (&self.point, self.contenders.get(nth)) else {
            return Err(format!("policy {nth} of a plan that has {}", self.contenders.len()));
        };
        let from = point.plan.warmup.0;
        let wanted = Wanted { progress: None, timeline: (events > 0).then_some((from, events)) };
        let run = simulate(point, contender, &wanted).map_err(|error| error.to_string())?;
        let lane = run.timelines.first().map(|events| drawn(from, events));
        Ok(Answer { outcome: run.outcome, lane })
    }
}

/// The policies with their parameters, and what the reasons of their decisions mean.
#[must_use]
pub fn policies() -> Value {
    let key = |key: &coalesce_policy::KeyInfo| json!({ "name": key.name, "about": key.about, "allowed": key.allowed, "default": key.default });
    let policies: Vec<_> = Spec::policies()
        .iter()
        .map(|policy| json!({ "name": policy.name, "about": policy.about, "keys": policy.keys.iter().map(key).collect::<Vec<_>>() }))
        .collect();
    let reasons: BTreeMap<_, _> = Reason::ALL.iter().map(|reason| (reason.name(), reason.meaning())).collect();
    let holds: BTreeMap<_, _> = HoldReason::ALL.iter().map(|reason| (reason.name(), reason.meaning())).collect();
    json!({ "policies": policies, "reasons": reasons, "holds": holds })
}

/// What happened on a line from an instant on, in µs after it: to be drawn.
fn drawn(from: u64, events: &[Event]) -> Value {
    let to = events.last().map_or(from, |event| event.at).max(from + 1);
    let Lane { completions, holds, interrupts, .. } = lane(Series { label: "", style: 0 }, events, (from, to));
    json!({
        "span": (to - from) as f64 / 1000.0,
        "completions": completions.iter().map(|of| json!([of.at, of.marked, of.hover])).collect::<Vec<_>>(),
        "holds": holds,
        "interrupts": interrupts.iter().map(|of| json!([of.at, of.hover])).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(thread: &str) -> String {
        format!(
            "name = 'play'\nduration = '5ms'\nwarmup = '1ms'\npolicies = ['auto', 'none']\ndevice.preset = 'optane_p4800x'\n\
             [[threads]]\nname = 'load'\n{thread}\n"
        )
    }

    #[test]
    fn numbers_are_those_of_a_run() {
        let text = plan("kind = 'async'\ndepth = 16");
        let mut session = Session::default();
        assert_eq!(session.load(&text).unwrap(), ["auto", "none"]);
        let outcomes = coalesce_sim::run::run(&Plan::parse("plan", &text).unwrap()).unwrap();
        for (nth, outcome) in outcomes.iter().enumerate() {
            assert_eq!(&session.simulate(nth, 100 * nth).unwrap().outcome, outcome);
        }
        assert!(session.simulate(2, 0).unwrap_err().contains("policy 2 of a plan that has 2"));
    }

    #[test]
    fn a_time_line_begins_after_the_warm_up() {
        let mut session = Session::default();
        session.load(&plan("kind = 'sync'")).unwrap();
        assert_eq!(session.simulate(1, 0).unwrap().lane, None);
        let lane = session.simulate(1, 30).unwrap().lane.unwrap();
        let (completions, interrupts) =
            (lane["completions"].as_array().unwrap(), lane["interrupts"].as_array().unwrap());
        assert_eq!((completions.len(), interrupts.len()), (15, 15), "{lane}");
        assert!(completions[0][0].as_f64().unwrap() < 20.0 && lane["span"].as_f64().unwrap() < 300.0, "{lane}");
    }

    #[test]
    fn a_trace_is_the_one_that_was_given() {
        let mut session = Session::default();
        let text = plan("kind = 'trace'\ntrace = 'somewhere'\ndepth = 8");
        assert!(session.load(&text).unwrap_err().contains("it is empty"), "no trace yet");
        let line = |at: u64, id: u64, event: &str| format!("{{\"time_ns\":{at},\"event\":\"{event}\",\"id\":{id}}}\n");
        let trace =
            |gap: u64| (0..100).map(|n| line(n * gap, n, "submit") + &line(n * gap, n, "complete")).collect::<String>();
        for (gap, iops) in [(100_000, 10_000.0), (200_000, 5_000.0)] {
            session.set_trace(trace(gap).into_bytes());
            for _ in 0..2 {
                session.load(&text).unwrap();
                let seen = session.simulate(1, 0).unwrap().outcome.iops;
                assert!((seen - iops).abs() < 400.0, "{seen}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut session = Session::default();
        for (text, message) in [
            (plan("kind = 'async'\ndepth = 0"), "plan:9: threads.0.depth: is 0; allowed: 1 to 65535"),
            (plan("kind = 'sync'").replace("'auto'", "'auto:budget=101%'"), "allowed:"),
            (plan("kind = 'sync'") + "[sweep]\nseed = [1, 2]\n", "a sweep has no place here"),
            ("x".into(), "plan:1:"),
        ] {
            let error = session.load(&text).unwrap_err();
            assert!(error.contains(message), "{error}");
            assert!(session.simulate(0, 0).is_err());
        }
    }

    #[test]
    fn every_policy_and_every_reason_is_explained() {
        let about = policies();
        assert_eq!(about["policies"].as_array().unwrap().len(), Spec::policies().len());
        assert_eq!(about["policies"][0]["keys"][0]["default"], "5%");
        assert!(
            about["reasons"]["urgent"].as_str().unwrap().contains("waits") && about["holds"]["company"].is_string()
        );
    }
}
