//! A method that `forward!` does not know would not reach the policy inside a wrapper.

const SOURCE: &str = include_str!("../src/policy.rs");

fn between(start: &str, end: &str) -> &'static str {
    SOURCE.split_once(start).unwrap().1.split_once(end).unwrap().0
}

#[test]
fn forward_knows_every_method_of_a_policy() {
    let lines = between("pub trait Policy", "\n}\n").lines();
    let methods: Vec<_> = lines.filter_map(|line| line.strip_prefix("    fn ")?.split(['(', '<']).next()).collect();
    assert!(methods.len() > 20, "{methods:?}");
    let list = between("@all [$($own)*] $to $self;", ")");
    let known: Vec<_> = list.split(',').map(str::trim).collect();
    for method in &methods {
        assert!(known.contains(method), "forward! does not know {method}");
        assert!(SOURCE.contains(&format!("(@but [{method} $($own:ident)*] {method} ")), "nobody can write {method}");
    }
    assert_eq!(known.len(), methods.len(), "{known:?}");
}
