//! `include/coalesce.h` is generated from the sources: `UPDATE=1 cargo test -p libcoalesce --test header` writes it.

use coalesce::{budget::*, cint::*, error::*, ipi::*, nvme::*, policy::*, reaper::*, stats::*, version::*, vic::*};
use std::path::Path;

/// The lines that check the layout of types.
macro_rules! layouts {
    ($($type:ident)*) => {
        [$((
            concat!("\n} ", stringify!($type), ";\n"),
            format!(
                "COALESCE_LAYOUT({}, {}, {});\n",
                stringify!($type),
                size_of::<$type>(),
                if align_of::<$type>() == align_of::<u64>() { "uint64_t" } else { "uint32_t" },
            ),
        )),*]
    };
}

/// One `#if` over neighbours with the same condition.
fn join_conditions(text: &str) -> String {
    let mut lines = Vec::new();
    let mut condition = "";
    for line in text.lines() {
        if line.starts_with("#if") && line == condition && lines.ends_with(&["#endif", ""]) {
            lines.truncate(lines.len() - 2);
            lines.push("");
            continue;
        }
        if line.starts_with("#if") {
            condition = line;
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}

/// What cbindgen makes of the sources, in C's terms, and the layouts.
fn make(root: &Path) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_crate(root).with_config(config).generate().unwrap();
    let mut made = Vec::new();
    bindings.write(&mut made);
    let mut made = join_conditions(&String::from_utf8(made).unwrap()).replace("// # Safety\n", "// Requires:\n");
    let layouts = layouts![
        coalesce_budget_config coalesce_budget_info coalesce_budget_state coalesce_cint_config coalesce_reaper_entry coalesce_cint_info coalesce_cint_state coalesce_spent coalesce_completion coalesce_error coalesce_mark coalesce_request
        coalesce_stats coalesce_ipi_gate coalesce_nvme_coalescing coalesce_vic_config coalesce_vic_info coalesce_vic_state
    ];
    assert_eq!(made.matches("\ntypedef struct {").count(), layouts.len(), "a type is missing in `layouts`");
    for (end, layout) in layouts {
        assert_eq!(made.matches(end).count(), 1, "{end}");
        made = made.replace(end, &format!("{end}{layout}"));
    }
    made
}

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = make(root);
    let path = root.join("include/coalesce.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(made == committed, "include/coalesce.h is not up to date: run this test with UPDATE=1");
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = format!("{COALESCE_VERSION_MAJOR}.{COALESCE_VERSION_MINOR}.{COALESCE_VERSION_PATCH}");
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}
