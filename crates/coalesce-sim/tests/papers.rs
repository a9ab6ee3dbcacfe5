//! The papers' figures: every row is simulated, and says what it said when its verdict was explained in docs/papers.md.

use coalesce_sim::papers::finding::{Finding, table};
use coalesce_sim::papers::{experiments, findings};
use coalesce_sim::plan::Plan;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::AtomicU64;

fn find(only: &[&str]) -> Vec<Finding> {
    let only: Vec<_> = only.iter().map(|&id| id.to_owned()).collect();
    findings(&only, |_| {}, &AtomicU64::new(0)).unwrap()
}

/// Renewed by `coalesce-sim papers > crates/coalesce-sim/tests/papers.txt`.
#[test]
fn every_row_says_what_it_said() {
    let (now, then) = (table(&find(&[])), include_str!("papers.txt"));
    let changed: Vec<_> = now.lines().filter(|line| !then.lines().any(|old| old == *line)).collect();
    assert!(now == then, "changed:\n{}", changed.join("\n"));
}

#[test]
fn a_row_alone_says_what_it_says_among_all() {
    let alone = find(&["vic.t8.cift4.interrupts"]);
    assert_eq!(alone, find(&["vic.t8"]).into_iter().filter(|finding| finding.id == alone[0].id).collect::<Vec<_>>());
    assert!(find(&["no such row"]).is_empty());
}

#[test]
fn ids_are_unique() {
    let mut ids = HashSet::new();
    assert!(experiments().flat_map(|experiment| experiment.rows).all(|row| ids.insert(row.id)));
}

/// What a verdict other than "agrees" comes from is said, on the row.
#[test]
fn whatever_does_not_agree_has_a_reason() {
    let silent = |line: &&str| {
        !line.contains(" agrees") && ["direction", "differs", "modelled"].iter().any(|verdict| line.ends_with(verdict))
    };
    let lines: Vec<_> = include_str!("papers.txt").lines().filter(silent).collect();
    assert!(lines.is_empty(), "{lines:#?}");
}

#[test]
fn every_plan_is_read_and_named_after_its_file() {
    for folder in ["papers", "search"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans").join(folder);
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            let plan = Plan::read(&path).unwrap_or_else(|error| panic!("{error}"));
            assert!(
                plan.name.ends_with(path.file_stem().unwrap().to_str().unwrap()),
                "{}: {}",
                path.display(),
                plan.name
            );
        }
    }
}
