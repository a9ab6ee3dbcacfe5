//! The tests that the documents name are there.

use std::path::Path;

/// Where tests of this name are, by the name that documents give the file.
fn source_of(file: &str) -> Option<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let places = [
        format!("coalesce-target/tests/{file}.rs"),
        format!("coalesce-target/src/{file}.rs"),
        format!("coalesce-sim/tests/{file}.rs"),
    ];
    places.iter().find_map(|place| std::fs::read_to_string(crates.join(place)).ok())
}

#[test]
fn every_test_that_is_named_exists() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/robustness.md");
    let page = std::fs::read_to_string(page).unwrap();
    let quoted = page.split('`').skip(1).step_by(2);
    let named: Vec<_> = quoted.filter_map(|text| text.split_once("::")).collect();
    assert!(named.len() > 30, "{named:?}");
    for (file, test) in named {
        let source = source_of(file).unwrap_or_else(|| panic!("{file}::{test}: no such file"));
        assert!(source.contains(&format!("fn {test}(")), "{file}::{test}: no such test");
    }
}
