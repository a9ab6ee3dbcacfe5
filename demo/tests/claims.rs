//! The claims of the committed runs of `make demo`, judged again from the turns that they keep.

use coalesce_demo::paired::{CLAIMS, ERROR, Verdict, compare};
use serde_json::Value;
use std::fs;

/// What is rounded to four digits behind the point is known to this.
const ROUNDED: f64 = 2e-3;

#[test]
fn the_turns_of_a_claim_have_its_verdict() {
    let mut judged = 0;
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../measurements/runs")).unwrap() {
        let path = file.unwrap().path();
        let run: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let jobs = ["native", "guest", "nvme"].iter().filter_map(|place| run[place]["jobs"].as_array()).flatten();
        for job in jobs {
            for metric in job["metrics"].as_array().unwrap() {
                let about = format!("{}, {}, {}", path.display(), job["jobname"], metric["name"]);
                // Older runs kept none. Where the baseline is 0 there is no ratio.
                let Ok(turns) = serde_json::from_value::<Vec<Vec<f64>>>(metric["turns"].clone()) else { continue };
                let looks = job["looks"].as_u64().unwrap() as f64;
                let comparison = compare(&turns, ERROR / CLAIMS as f64 / looks);
                let labels = run["policies"].as_array().unwrap().iter().filter_map(|policy| policy["label"].as_str());
                let others = labels.filter(|label| metric["policies"].get(label).is_some());
                for (label, verdict) in others.zip(&comparison.verdicts) {
                    let told = &metric["policies"][label];
                    assert_eq!(verdict.differs(), told["verdict"] == "differs", "{about}, {label}: {verdict:?}");
                    if let Verdict::Differs(interval) | Verdict::CannotTell(interval) = verdict {
                        for (again, name) in
                            [(interval.low, "low"), (interval.median, "median"), (interval.high, "high")]
                        {
                            let first = told["ratio"][name].as_f64().unwrap();
                            assert!((again / first - 1.0).abs() < ROUNDED, "{about}, {label}: {again}, {first}");
                        }
                    }
                    judged += 1;
                }
            }
        }
    }
    assert!(judged >= CLAIMS, "{judged}");
}
