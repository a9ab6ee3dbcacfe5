//! The claims of the committed runs of `make demo`, judged again from the turns that they keep.

use coalesce_demo::paired::{CLAIMS, ERROR, Verdict, compare};
use serde_json::Value;
use std::fs;

/// What is rounded to four digits behind the point is known to this.
const ROUNDED: f64 = 2e-3;
/// The first run that keeps turns.
const FIRST: u32 = 10;

#[test]
fn the_turns_of_a_claim_have_its_verdict() {
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../measurements/runs")).unwrap() {
        let path = file.unwrap().path();
        let run: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let labels: Vec<_> =
            run["policies"].as_array().unwrap().iter().filter_map(|policy| policy["label"].as_str()).collect();
        let mut judged = 0;
        let jobs = ["native", "guest", "nvme"].iter().filter_map(|place| run[place]["jobs"].as_array()).flatten();
        for job in jobs {
            for metric in job["metrics"].as_array().unwrap() {
                // Older runs kept none. Where the baseline is 0 there is no ratio.
                let Ok(turns) = serde_json::from_value(metric["turns"].clone()) else { continue };
                let about = format!("{}, {}, {}", path.display(), job["jobname"], metric["name"]);
                judged += judge_again(turns, job["looks"].as_u64().unwrap(), &labels, &metric["policies"], &about);
            }
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let number: u32 = name.split('-').next().unwrap().parse().expect("runs are numbered");
        assert_eq!(judged > 0, number >= FIRST, "{name}: verdicts that could be judged again: {judged}");
    }
}

/// Expects the verdicts that a run told of policies. How many they are.
fn judge_again(turns: Vec<Vec<f64>>, looks: u64, labels: &[&str], told: &Value, about: &str) -> usize {
    let verdicts = compare(&turns, ERROR / CLAIMS as f64 / looks as f64).verdicts;
    let others = labels.iter().filter(|label| told.get(label).is_some());
    for (label, verdict) in others.zip(&verdicts) {
        let told = &told[label];
        assert_eq!(verdict.differs(), told["verdict"] == "differs", "{about}, {label}: {verdict:?}");
        let (Verdict::Differs(interval) | Verdict::CannotTell(interval)) = verdict else { continue };
        for (again, name) in [(interval.low, "low"), (interval.median, "median"), (interval.high, "high")] {
            let first = told["ratio"][name].as_f64().unwrap();
            assert!((again / first - 1.0).abs() < ROUNDED, "{about}, {label}: {again}, {first}");
        }
    }
    verdicts.len()
}
