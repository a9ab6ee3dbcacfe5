//! What the documents name is in the code: symbols, tests and files; and what the cores cite is in the documents.
//!
//! Sources are read as text. They are formatted, so an item ends at the first line that is `}` and no more.

use coalesce_decision::{HoldReason, Reason};
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    read_to_string(root().join("docs").join(name)).unwrap()
}

/// A Rust source, by its path from the folder of the crates: `cint-core/src/fast.rs`.
struct Source {
    path: String,
    text: String,
}

fn sources() -> Vec<Source> {
    let crates = root().join("crates");
    let (mut folders, mut sources) = (vec![crates.clone()], vec![]);
    while let Some(folder) = folders.pop() {
        for entry in read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = read_to_string(&path).unwrap();
                let path = path.strip_prefix(&crates).unwrap().to_str().unwrap().to_owned();
                sources.push(Source { path, text });
            }
        }
    }
    sources
}

/// Whether `text` has `word` with no letter, digit or underscore beside it.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_part)
            && !text[at + word.len()..].chars().next().is_some_and(is_part)
    })
}

fn is_type_name(word: &str) -> bool {
    word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphanumeric)
}

fn is_item_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_lowercase()) && word.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The definition of a type and its `impl` blocks, as far as they are in this source. A macro that defines a type begins its
/// body with the type's name alone.
fn blocks_of<'a>(source: &'a Source, name: &str) -> Vec<&'a str> {
    let in_macro = format!("    {name} {{\n");
    let opens = |line: &str| {
        if line == in_macro {
            return true;
        }
        let line = line.trim_start_matches("pub ").trim_start_matches("pub(crate) ");
        ["struct ", "enum ", "trait ", "type ", "impl "].iter().any(|keyword| line.starts_with(keyword))
            && has_word(line, name)
            || line.starts_with("impl<") && has_word(line, name)
    };
    let mut blocks = vec![];
    let mut at = 0;
    for line in source.text.split_inclusive('\n') {
        if opens(line) {
            let rest = &source.text[at..];
            let end =
                if line.trim_end().ends_with('{') { rest.find("\n}\n").unwrap_or(rest.len()) } else { line.len() };
            blocks.push(&rest[..end]);
        }
        at += line.len();
    }
    blocks
}

/// Whether one of these lines declares a function, a constant, a field or a variant of this name.
fn declares(text: &str, item: &str) -> bool {
    text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")).any(|line| {
        let names = |rest: &str, ends: &[&str]| {
            rest.strip_prefix(item).is_some_and(|rest| ends.iter().any(|end| rest.starts_with(end)))
        };
        let plain = line.trim_start_matches("pub ").trim_start_matches("pub(crate) ");
        line.split_once("fn ").is_some_and(|(_, rest)| names(rest, &["(", "<"]))
            || plain.strip_prefix("const ").is_some_and(|rest| names(rest, &[":"]))
            || names(plain, &[":"])
            || item.starts_with(char::is_uppercase) && names(plain, &[",", " =", " {", "("])
    })
}

/// `Type`, `Type::item`, `function` or `field`, anywhere in these sources.
fn exists(sources: &[Source], symbol: &str) -> bool {
    let in_src = || sources.iter().filter(|source| source.path.contains("/src/"));
    match symbol.split_once("::") {
        Some((name, item)) => in_src().any(|source| blocks_of(source, name).iter().any(|block| declares(block, item))),
        None if is_type_name(symbol) => in_src().any(|source| !blocks_of(source, symbol).is_empty()),
        None => in_src().any(|source| declares(&source.text, symbol)),
    }
}

fn is_symbol(text: &str) -> bool {
    match text.split_once("::") {
        Some((name, item)) => is_type_name(name) && (is_item_name(item) || is_type_name(item)),
        None => is_type_name(text) || is_item_name(text),
    }
}

/// Whether the file has a test of this name, or a table of them.
fn has_test(source: &Source, test: &str) -> bool {
    if source.text.contains(&format!("rows!(\n    {test},\n")) {
        return true;
    }
    let Some(at) = source.text.find(&format!("fn {test}(")) else { return false };
    let attributes = source.text[..at].trim_end().lines().rev().take_while(|line| line.trim_start().starts_with("#["));
    attributes.into_iter().any(|line| line.trim() == "#[test]")
}

/// What is between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A row of a table of `papers.md`, with the heading that it is under.
struct Row {
    heading: String,
    cited: String,
    symbols: String,
    tests: String,
}

impl Row {
    /// The crates whose tests are meant if none is named.
    fn crates(&self) -> Vec<&str> {
        match quoted(&self.heading).find_map(|path| path.strip_prefix("crates/")) {
            Some(name) => vec![name],
            None if self.tests.contains("(both)") => vec!["vic-core", "cint-core"],
            None => vec![],
        }
    }
}

/// The rows of the tables that have a column for tests.
fn rows(page: &str) -> Vec<Row> {
    let (mut heading, mut columns, mut rows) = (String::new(), vec![], vec![]);
    for line in page.lines() {
        if line.starts_with("## ") {
            heading = line.to_owned();
        }
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            columns.clear();
        } else if columns.is_empty() {
            columns = cells.iter().map(|&cell| cell.to_owned()).collect();
        } else if columns.iter().any(|name| name == "test") && !line.starts_with("|--") {
            assert_eq!(cells.len(), columns.len(), "{line}");
            let cell = |name: &str| {
                columns.iter().position(|column| column == name).map_or(String::new(), |at| cells[at].to_owned())
            };
            rows.push(Row {
                heading: heading.clone(),
                cited: cell("where"),
                symbols: cell("symbol"),
                tests: cell("test"),
            });
        }
    }
    rows
}

#[test]
fn symbols_named_in_papers_md_exist() {
    let (page, sources) = (page("papers.md"), sources());
    let in_rows: Vec<String> = rows(&page).iter().flat_map(|row| quoted(&row.symbols)).map(str::to_owned).collect();
    let in_text = quoted(&page).filter(|text| text.contains("::")).map(str::to_owned);
    let symbols: Vec<_> = in_rows.into_iter().chain(in_text).filter(|text| is_symbol(text)).collect();
    assert!(symbols.len() > 60, "{symbols:?}");
    let missing: Vec<_> = symbols.iter().filter(|symbol| !exists(&sources, symbol)).collect();
    assert!(missing.is_empty(), "not in the code: {missing:?}");
}

#[test]
fn paths_named_in_papers_md_exist() {
    let page = page("papers.md");
    let is_path = |text: &&str| text.contains('/') && !text.contains([' ', ':', '(']) && !text.starts_with("tests/");
    let paths: Vec<_> = quoted(&page).filter(is_path).filter(|path| path.chars().any(char::is_alphabetic)).collect();
    assert!(paths.len() > 5, "{paths:?}");
    let missing: Vec<_> = paths.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "no such file or folder: {missing:?}");
}

/// `file.rs: test` or `crate file.rs: test` or `crate/tests/file.rs: test`; behind it, and behind "the same" of the next row, a name alone is
/// in the same file.
#[test]
fn tests_named_in_papers_md_exist() {
    let (page, sources) = (page("papers.md"), sources());
    let (mut named, mut missing, mut files) = (0, vec![], vec![]);
    for row in rows(&page) {
        assert!(quoted(&row.tests).next().is_some() || row.tests.starts_with("the same"), "no test: {}", row.symbols);
        if !row.tests.starts_with("the same") {
            files.clear();
        }
        for text in quoted(&row.tests) {
            let (file, test) = match text.split_once(": ") {
                Some((file, test)) => (Some(file), Some(test)),
                None if text.ends_with(".rs") => (Some(text), None),
                None => (None, Some(text)),
            };
            if let Some(file) = file {
                files = match (file.split_once(' '), file.contains('/')) {
                    (Some((krate, file)), _) => vec![format!("{krate}/tests/{file}")],
                    (None, true) => vec![file.to_owned()],
                    (None, false) => row.crates().iter().map(|krate| format!("{krate}/tests/{file}")).collect(),
                };
                assert!(!files.is_empty(), "{text}: of which crate?");
            }
            let Some(test) = test else {
                missing.extend(files.iter().filter(|file| sources.iter().all(|source| source.path != **file)).cloned());
                continue;
            };
            // Rules and shells of the property-test kit, and its name, stand where a file is not named.
            if files.is_empty() {
                if !root().join("crates").join(test).exists() && !exists(&sources, test) {
                    missing.push(test.to_owned());
                }
                continue;
            }
            named += 1;
            let is_there = |file: &String| sources.iter().any(|source| source.path == *file && has_test(source, test));
            missing.extend(files.iter().filter(|file| !is_there(file)).map(|file| format!("{file}: {test}")));
        }
    }
    assert!(named > 40, "{named}");
    assert!(missing.is_empty(), "not in the code: {missing:?}");
}

#[test]
fn tests_named_in_robustness_md_exist() {
    let (page, sources) = (page("robustness.md"), sources());
    let named: Vec<_> = quoted(&page).filter_map(|text| text.split_once("::")).collect();
    assert!(named.len() > 30, "{named:?}");
    for (file, test) in named {
        let is_there = |source: &Source| {
            let path = source.path.strip_prefix("coalesce-");
            path.is_some_and(|path| path.ends_with(&format!("/{file}.rs"))) && has_test(source, test)
        };
        assert!(sources.iter().any(is_there), "{file}::{test}: no such test");
    }
}

/// What can be cited of a paper: its sections and its algorithms.
struct Paper {
    /// In `papers.md`; in sources also `cint`.
    name: &'static str,
    sections: usize,
    algorithms: &'static [Algorithm],
}

struct Algorithm {
    lines: usize,
    /// Lines without a rule: declarations, initial values, loops, a lone `else`. All others must be cited.
    without_rule: &'static [usize],
}

impl Algorithm {
    const fn new(lines: usize, without_rule: &'static [usize]) -> Self {
        Self { lines, without_rule }
    }
}

const PAPERS: [Paper; 3] = [
    Paper {
        name: "vIC", // its lines have no numbers: all that are printed count
        sections: 8,
        algorithms: &[Algorithm::new(24, &[1, 2, 3, 4]), Algorithm::new(21, &[1, 2, 3, 4])],
    },
    Paper {
        name: "cinterrupts",
        sections: 7,
        algorithms: &[
            Algorithm::new(11, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]), // Algorithm 2 contains it
            Algorithm::new(19, &[1, 2, 3, 5, 14]),
        ],
    },
    Paper { name: "Xen", sections: 6, algorithms: &[Algorithm::new(29, &[])] },
];

/// `§3.5` or `Alg. 2 l.17` of a paper.
#[derive(Clone, Debug, PartialEq)]
struct Citation {
    paper: &'static str,
    part: String,
    line: usize, // 0: none
}

impl std::fmt::Display for Citation {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} {}", self.paper, self.part)?;
        if self.line > 0 { write!(f, " l.{}", self.line) } else { Ok(()) }
    }
}

impl Citation {
    fn check(&self) -> Result<(), String> {
        let paper = PAPERS.iter().find(|paper| paper.name == self.paper).unwrap();
        let number = |text: &str| text.split('.').next().and_then(|text| text.parse::<usize>().ok());
        let is_there = if let Some(section) = self.part.strip_prefix('§') {
            number(section).is_some_and(|section| (1..=paper.sections).contains(&section))
        } else {
            let number = number(self.part.trim_start_matches("Alg. ")).unwrap_or(0);
            let algorithm = number.checked_sub(1).and_then(|at| paper.algorithms.get(at));
            algorithm.is_some_and(|algorithm| self.line <= algorithm.lines)
        };
        if is_there { Ok(()) } else { Err(format!("the paper has no such place: {self}")) }
    }
}

/// The lines of `12` or `12-15`.
fn lines(text: &str) -> Option<std::ops::RangeInclusive<usize>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (0 < first && first <= last).then_some(first..=last)
}

/// The citations in a text, one for each line of an algorithm. A paper that is named holds for the rest of its line.
fn citations(text: &str, paper_of_the_file: &'static str) -> Vec<Citation> {
    let mut found = vec![];
    for line in text.lines() {
        let line = line.replace("Algorithm ", "Alg. ");
        let mut paper = paper_of_the_file;
        let mut part = String::new();
        let words: Vec<_> = line.split(|c: char| c.is_whitespace() || "(),;:`[]|".contains(c)).collect();
        for (at, word) in words.iter().enumerate() {
            let word = word.trim_end_matches('.');
            if let Some(named) =
                PAPERS.iter().find(|paper| paper.name == word || paper.name.starts_with(word) && word == "cint")
            {
                paper = named.name;
                part.clear();
            } else if word.starts_with('§') {
                found.push(Citation { paper, part: word.to_owned(), line: 0 });
            } else if word == "Alg"
                && words.get(at + 1).is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit()))
            {
                part = format!("Alg. {}", words[at + 1].trim_end_matches('.'));
                found.push(Citation { paper, part: part.clone(), line: 0 });
            } else if let Some(cited) = word.strip_prefix("l.") {
                assert!(!part.is_empty(), "a line of what? {line}");
                let lines = lines(cited).unwrap_or_else(|| panic!("which lines? {line}"));
                found.extend(lines.map(|line| Citation { paper, part: part.clone(), line }));
            }
        }
    }
    found
}

fn paper_under(heading: &str) -> &'static str {
    PAPERS.iter().find(|paper| heading.starts_with(&format!("## {}:", paper.name))).map_or("vIC", |paper| paper.name)
}

#[test]
fn citations_in_papers_md_are_places_of_the_papers() {
    let page = page("papers.md");
    let deviations =
        page.lines().filter(|line| line.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok())).count();
    let mut cited = 0;
    for row in rows(&page).iter().filter(|row| !row.cited.is_empty()) {
        let citations = citations(&row.cited, paper_under(&row.heading));
        cited += citations.len();
        citations.iter().for_each(|citation| citation.check().unwrap_or_else(|error| panic!("{error}")));
        let deviation = row.cited.strip_prefix("deviation ").map(|number| number.parse::<usize>().unwrap());
        assert!(deviation.is_none_or(|number| (1..=deviations).contains(&number)), "{}", row.cited);
        let says_where = ["ours", "Table", "Figure", "deviation", "Xen"].iter().any(|word| row.cited.contains(word));
        assert!(says_where || !citations.is_empty(), "where is that? {}", row.cited);
    }
    assert!(cited > 25, "{cited}");
}

/// The sources of a core that define a symbol of this row or name it.
fn files_of<'a>(row: &Row, sources: &'a [Source]) -> Vec<&'a Source> {
    let folders: Vec<_> = row.crates().iter().map(|krate| format!("{krate}/src/")).collect();
    let has = |source: &Source, symbol: &str| {
        source.text.contains(symbol)
            || symbol
                .split_once("::")
                .is_some_and(|(name, item)| blocks_of(source, name).iter().any(|block| declares(block, item)))
    };
    let of_the_core = sources.iter().filter(|source| folders.iter().any(|folder| source.path.starts_with(folder)));
    of_the_core.filter(|source| quoted(&row.symbols).any(|symbol| has(source, symbol))).collect()
}

const CORES: [(&str, &str); 2] = [("vic-core", "vIC"), ("cint-core", "cinterrupts")];

/// Every line that a row cites is cited in the code of its symbols; every line that the code cites is cited in a row with a symbol
/// of that file; and a section that the code cites has a row, of itself or of one below or above it.
#[test]
fn rows_of_papers_md_and_the_cores_cite_the_same_lines() {
    let (page, sources) = (page("papers.md"), sources());
    let paper_of = |source: &Source| {
        CORES.iter().find(|(krate, _)| source.path.starts_with(&format!("{krate}/src/"))).map(|&(_, paper)| paper)
    };
    let cited_by = |source: &Source| paper_of(source).map_or(vec![], |paper| citations(&source.text, paper));
    let below =
        |part: &str, of: &str| part.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let (mut of_rows, mut wrong) = (vec![], vec![]);
    for row in rows(&page).iter().filter(|row| !row.cited.is_empty()) {
        let files = files_of(row, &sources);
        let in_files: Vec<_> = files.iter().flat_map(|source| cited_by(source)).collect();
        for cited in citations(&row.cited, paper_under(&row.heading)) {
            if cited.line > 0 && !in_files.contains(&cited) {
                wrong.push(format!("{}: {cited} is not cited there", row.symbols));
            }
            of_rows.push((cited, files.clone()));
        }
    }
    for source in &sources {
        for cited in cited_by(source) {
            cited.check().unwrap_or_else(|error| panic!("{}: {error}", source.path));
            let is_row = |(row, files): &(Citation, Vec<&Source>)| match cited.line {
                0 => row.paper == cited.paper && (below(&row.part, &cited.part) || below(&cited.part, &row.part)),
                _ => *row == cited && files.iter().any(|file| file.path == source.path),
            };
            if !of_rows.iter().any(is_row) {
                wrong.push(format!("{}: {cited} has no row with a symbol of this file", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/papers.md and the code differ:\n{}", wrong.join("\n"));
}

/// A reader who knows a paper finds each of its lines in `algorithm.rs`.
#[test]
fn algorithm_rs_cites_every_line_of_its_papers() {
    for (krate, paper) in CORES {
        let text = read_to_string(root().join("crates").join(krate).join("src/algorithm.rs")).unwrap();
        let cited = citations(&text, paper);
        for paper in PAPERS.iter().filter(|paper| cited.iter().any(|cited| cited.paper == paper.name)) {
            for (at, algorithm) in paper.algorithms.iter().enumerate() {
                let part = format!("Alg. {}", at + 1);
                let missing: Vec<_> = (1..=algorithm.lines)
                    .filter(|line| !algorithm.without_rule.contains(line))
                    .filter(|&line| !cited.contains(&Citation { paper: paper.name, part: part.clone(), line }))
                    .collect();
                assert!(missing.is_empty(), "{krate}: {} {part}: lines {missing:?} are not cited", paper.name);
            }
        }
    }
}

/// The words of a text without what marks a comment, a quotation or code.
fn words(text: &str) -> String {
    let text = text.replace(['`', '"'], "");
    let words = text.split_whitespace().map(|word| word.trim_start_matches("**"));
    words.filter(|word| !["//", "///", "//!", ">", "*"].contains(word)).collect::<Vec<_>>().join(" ")
}

/// Sources, documents and scripts.
fn texts() -> Vec<PathBuf> {
    let (mut folders, mut texts) = (vec![root()], vec![]);
    while let Some(folder) = folders.pop() {
        for entry in read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_ours = !name.starts_with('.') && !["target", "measurements", "CHANGELOG.md"].contains(&name);
            if path.is_dir() && !path.is_symlink() && is_ours && !path.join("CACHEDIR.TAG").exists() {
                folders.push(path);
            } else if is_ours
                && path
                    .extension()
                    .is_some_and(|of| ["md", "rs", "sh", "h", "c", "html", "js", "toml"].iter().any(|kind| of == *kind))
            {
                texts.push(path);
            }
        }
    }
    texts
}

/// What the default policy promises is said in one sentence, everywhere: that of its text form, which help and reports print. And where
/// it begins, no part of it is left out.
#[test]
fn the_contract_of_the_default_is_the_same_sentence_everywhere() {
    const BEGINS: &str = "adds at most 5 % to";
    let keys = words(&read_to_string(root().join("crates/coalesce-policy/src/keys.rs")).unwrap());
    let contract = keys.split_once("about: the default: w").unwrap().1.split_once(", profiles:").unwrap().0;
    assert!(contract.contains(BEGINS) && contract.len() > 200, "{contract}");
    let mut missing = vec![
        "README.md",
        "docs/budget.md",
        "docs/policies.md",
        "docs/results.md",
        "docs/release-0.1.0.md",
        "scripts/deb.sh",
        "crates/budget-core/README.md",
        "crates/budget-core/src/lib.rs",
        "crates/ffi/src/budget.rs",
        "crates/ffi/include/coalesce.h",
    ];
    for path in texts().iter().filter(|path| !path.ends_with(file!())) {
        let text = words(&read_to_string(path).unwrap());
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        if text.contains(contract) {
            missing.retain(|file| *file != name);
        }
        assert_eq!(
            text.matches(BEGINS).count(),
            text.matches(contract).count(),
            "{name}: it says a part of the sentence"
        );
    }
    assert!(missing.is_empty(), "not in {missing:?}");
}

#[test]
fn every_reason_is_in_the_glossary_with_its_meaning() {
    let glossary = page("glossary.md");
    let delivered = Reason::ALL.iter().map(|reason| (reason.name(), reason.meaning()));
    let held = HoldReason::ALL.iter().map(|reason| (reason.name(), reason.meaning()));
    for (name, meaning) in delivered.chain(held) {
        let row = format!("\n| `{name}` | {meaning} |\n");
        assert!(glossary.contains(&row), "docs/glossary.md, Reasons: there is no row{row}");
    }
}

/// The fields of a struct that JSON is read into or written from, and whether each may be left out.
fn fields(source: &str, name: &str) -> Vec<(String, bool)> {
    let definition = source.split_once(&format!("struct {name} {{")).unwrap_or_else(|| panic!("no struct {name}")).1;
    let (mut fields, mut has_default) = (vec![], false);
    for line in definition.split('}').next().unwrap().lines().map(str::trim) {
        if line.starts_with("#[") {
            has_default |= line.starts_with("#[serde(default");
        } else if let (false, Some((field, kind))) = (line.starts_with("//"), line.split_once(": ")) {
            let may_be_left_out = std::mem::take(&mut has_default) || kind.starts_with("Option<");
            fields.push((field.trim_start_matches("pub ").to_owned(), may_be_left_out));
        }
    }
    fields
}

/// The rows of a section's tables: the first cell, and what is behind it.
fn section<'a>(page: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let text = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no section {heading}")).1;
    let text = text.split("\n#").next().unwrap();
    text.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | ")).collect()
}

#[test]
fn control_md_has_the_methods_parameters_members_and_codes_of_the_control_socket() {
    let page = page("control.md");
    let read = |path: &str| read_to_string(root().join("crates/coalesce-target/src").join(path)).unwrap();
    let (control, config) = (read("supervision/control.rs"), read("config.rs"));

    let methods = control.split_once("const METHODS").unwrap().1.split("];").next().unwrap();
    let of_code = methods.split('"').skip(1).step_by(2).map(|method| {
        let arm =
            control.split_once(&format!("\n        \"{method}\" => {{")).unwrap_or_else(|| panic!("no {method}")).1;
        let arm = arm.split("\n        }\n").next().unwrap();
        let parameters = match arm.split_once("let ") {
            Some((_, parsed)) => fields(&control, parsed.split(' ').next().unwrap()),
            None => fields(&config, "DiskConfig"),
        };
        (method, parameters)
    });
    let rows = section(&page, "## Methods").into_iter().take_while(|(first, _)| *first != "parameter");
    let of_page = rows.filter(|(method, _)| method.starts_with('`')).map(|(method, rest)| {
        let parameters = rest.split('|').next().unwrap().split(',').filter(|parameter| parameter.contains('`'));
        let named = |parameter: &str| (quoted(parameter).next().unwrap().to_owned(), parameter.contains('['));
        (method.trim_matches('`'), parameters.map(named).collect::<Vec<_>>())
    });
    let sorted = |(method, mut parameters): (&str, Vec<(String, bool)>)| {
        parameters.sort();
        (method.to_owned(), parameters)
    };
    let of_code: Vec<_> = of_code.map(sorted).collect();
    assert!(of_code.len() > 10 && of_code.iter().any(|(_, parameters)| parameters.len() > 20), "{of_code:?}");
    assert_eq!(of_page.map(sorted).collect::<Vec<_>>(), of_code, "left: the page; right: the code");

    let members = |heading: &str| -> Vec<String> {
        section(&page, heading).iter().flat_map(|(names, _)| quoted(names)).map(str::to_owned).collect()
    };
    let names = |source: &str, name: &str| fields(source, name).into_iter().map(|(field, _)| field).collect::<Vec<_>>();
    let added = control.split("about[\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
    let about_each = ["ctrlr", "record_error"]; // of other methods
    let added = added.filter(|member| !about_each.contains(&member.as_str()));
    let mut of_list: Vec<_> = names(&read("server.rs"), "DiskInfo").into_iter().chain(added).collect();
    let mut documented = members("### list");
    of_list.sort();
    documented.sort();
    assert_eq!(documented, of_list, "left: the page; right: the code");
    assert_eq!(members("### get_stats"), names(&read("stats.rs"), "QueueStats"), "left: the page; right: the code");

    let codes = control.lines().filter_map(|line| line.strip_prefix("const ")?.split_once(": i32 = "));
    let codes: Vec<_> = codes.map(|(_, code)| code.trim_end_matches(';')).collect();
    let of_page = section(&page, "## Errors").into_iter().map(|(code, _)| code).filter(|code| code.starts_with('-'));
    assert_eq!(of_page.collect::<Vec<_>>(), codes, "left: the page; right: the code");
}
