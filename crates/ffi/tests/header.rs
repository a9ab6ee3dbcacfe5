//! `include/coalesce.h` is made from the sources: `UPDATE=1 cargo test -p libcoalesce --test header` writes it.
//!
//! `coalesce.h.in` has the order in which one reads. Its line `@NAME@` stands for what cbindgen makes of `src/NAME.rs`.

use coalesce::{
    auto::*, budget::*, cint::*, delivery::*, error::*, ipi::*, nvme::*, policy::*, reaper::*, stats::*, version::*,
    vic::*,
};
use std::fs::read_to_string;
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

/// What cbindgen makes of one module.
fn section(root: &Path, name: &str) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let source = root.join("src").join(name).with_extension("rs");
    let mut made = Vec::new();
    cbindgen::Builder::new().with_src(source).with_config(config).generate().unwrap().write(&mut made);
    String::from_utf8(made).unwrap()
}

/// Comments of one line where one is enough, and parentheses around a sign.
fn tidy(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        if let [.., first, only] = lines.as_slice()
            && line.trim() == "*/"
            && let Some((indent, "")) = first.split_once("/**")
            && let short = format!("{indent}/** {} */", only.trim_start().trim_start_matches("* "))
            && short.chars().count() <= 120
        {
            lines.truncate(lines.len() - 2);
            lines.push(short);
        } else if let Some((define, number)) = line.split_once(" -")
            && define.starts_with("#define ")
            && number.parse::<u32>().is_ok()
        {
            lines.push(format!("{define} (-{number})"));
        } else {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

/// The header, with the layouts.
fn make(root: &Path) -> String {
    let frame = read_to_string(root.join("coalesce.h.in")).unwrap();
    let mut made = String::new();
    for line in frame.lines() {
        match line.strip_prefix('@').and_then(|line| line.strip_suffix('@')) {
            Some(name) => made += section(root, name).trim(),
            None => made += line,
        }
        made += "\n";
    }
    let mut made = tidy(&made).replace(" * # Safety\n", " * Requires:\n");
    let layouts = layouts![
        coalesce_auto_state coalesce_budget_config coalesce_budget_info coalesce_budget_state coalesce_cint_config coalesce_cint_info
        coalesce_cint_state coalesce_completion coalesce_delivery_counts coalesce_delivery_view coalesce_error coalesce_ipi_gate coalesce_mark coalesce_nvme_coalescing coalesce_bypassed
        coalesce_reaper_entry coalesce_request coalesce_spent coalesce_stats coalesce_vic_config coalesce_vic_info
        coalesce_vic_state
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
    let committed = read_to_string(&path).unwrap_or_default();
    assert!(made == committed, "include/coalesce.h is not up to date: run this test with UPDATE=1");
}

#[test]
fn each_module_is_in_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (frame, lib) =
        (read_to_string(root.join("coalesce.h.in")).unwrap(), read_to_string(root.join("src/lib.rs")).unwrap());
    let modules = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    for name in modules {
        assert_eq!(frame.lines().filter(|line| *line == format!("@{name}@")).count(), 1, "{name}");
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = format!("{COALESCE_VERSION_MAJOR}.{COALESCE_VERSION_MINOR}.{COALESCE_VERSION_PATCH}");
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}
