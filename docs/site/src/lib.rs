//! The Markdown of this repository as web pages that need no network and, but for the playground, no script.
//!
//! The site has the folders of the repository: `docs/budget.md` becomes `docs/budget.html`, `README.md` becomes `index.html` in its
//! folder, and a linked file that is no page is copied. So a link of the Markdown is a link of the site, and both are checked.

#![forbid(unsafe_code)]

mod page;
mod playground;

use anyhow::{Context as _, Result, bail};
use coalesce_charts::CSS;
use coalesce_charts::html::escape;
use page::{Page, Target};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// A part of the contents: its title, and for each page a label and its Markdown.
pub type Part = (&'static str, &'static [(&'static str, &'static str)]);

/// All pages, in the order of the contents.
pub const CONTENTS: &[Part] = &[
    (
        "Begin",
        &[
            ("What it decides", "README.md"),
            ("Five minutes", "docs/start.md"),
            ("All documentation", "docs/README.md"),
            ("Policies in pictures", "docs/policies.md"),
            ("Playground", "docs/play.md"),
            ("Install", "docs/install.md"),
            ("Operate", "docs/operating.md"),
            ("What 0.1.0 promises", "docs/release-0.1.0.md"),
            ("Live migration", "docs/migration.md"),
            ("Glossary", "docs/glossary.md"),
        ],
    ),
    (
        "Results",
        &[
            ("Results", "docs/results.md"),
            ("What a policy costs", "docs/cost.md"),
            ("Scoreboard", "docs/score.md"),
            ("Latency budget", "docs/budget.md"),
            ("Robustness", "docs/robustness.md"),
            ("Method", "docs/measuring.md"),
        ],
    ),
    (
        "Use",
        &[
            ("C ABI", "docs/c-abi.md"),
            ("Without a Rust toolchain", "docs/without-rust.md"),
            ("Into another device", "docs/hooks.md"),
            ("Traces", "docs/traces.md"),
            ("JSON, CSV, Python", "docs/json.md"),
            ("Control socket", "docs/control.md"),
            ("SPDK", "spdk/README.md"),
            ("Firmware", "firmware-demo/README.md"),
            ("Linux: what hints carry", "docs/linux-hints.md"),
            ("Linux: the NVMe driver", "linux/README.md"),
        ],
    ),
    (
        "Measurements",
        &[
            ("What is here", "measurements/README.md"),
            ("Runs, summed up", "measurements/summaries.md"),
            ("All tables", "measurements/tables.md"),
            ("Diary", "measurements/diary.md"),
            ("The budget's history", "measurements/budget-history.md"),
            ("The house before and after", "measurements/house.md"),
            ("Linux: a disk that takes its time", "measurements/applications-scaled.md"),
        ],
    ),
    (
        "Project",
        &[
            ("Papers, line by line", "docs/papers.md"),
            ("Architecture", "ARCHITECTURE.md"),
            ("Contributing", "CONTRIBUTING.md"),
            ("Security", "SECURITY.md"),
            ("Changes", "CHANGELOG.md"),
        ],
    ),
];

const STYLE: &str = include_str!("site.css");

/// Every file of the site, by its path. `simulator`: WebAssembly of `coalesce-play`, behind gzip, for the playground; `None`: its page says
/// that it is not there.
///
/// # Errors
/// A page cannot be read, or links are broken: each is named with its page.
pub fn build(root: &Path, contents: &[Part], simulator: Option<&[u8]>) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut pages = BTreeMap::new();
    for (_, source) in contents.iter().flat_map(|(_, pages)| *pages) {
        let text = std::fs::read_to_string(root.join(source)).with_context(|| (*source).to_owned())?;
        pages.insert(PathBuf::from(source), Page::read(&text));
    }
    let mut site = BTreeMap::from([(PathBuf::from("style.css"), format!("{CSS}{STYLE}").into_bytes())]);
    let mut broken = Vec::new();
    for (source, page) in &pages {
        let mut body = page.clone();
        body.links(|link| match target(root, source, link, &pages) {
            Ok(Target::Elsewhere) => None,
            Ok(Target::Page(path)) => Some(relative(source, &path)),
            Ok(Target::File(file, path)) => {
                match std::fs::read(root.join(&file)) {
                    Ok(bytes) => _ = site.insert(path.clone(), bytes),
                    Err(error) => broken.push(format!("{}: {link}: {error}", source.display())),
                }
                Some(relative(source, &path))
            }
            Err(problem) => {
                broken.push(format!("{}: {link}: {problem}", source.display()));
                None
            }
        });
        site.insert(html_path(source), document(source, &body, contents, simulator).into_bytes());
    }
    if !broken.is_empty() {
        bail!("broken links:\n{}", broken.join("\n"));
    }
    Ok(site)
}

/// Where a link of a page leads to.
fn target(root: &Path, source: &Path, link: &str, pages: &BTreeMap<PathBuf, Page>) -> Result<Target> {
    if link.starts_with("https://") || link.starts_with("http://") {
        return Ok(Target::Elsewhere);
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let path =
        if file.is_empty() { source.to_owned() } else { normal(&source.parent().unwrap_or(Path::new("")).join(file))? };
    match (pages.get(&path), anchor) {
        (Some(page), Some(anchor)) if !page.has(anchor) => bail!("{} has no such heading", path.display()),
        (Some(_), _) if file.is_empty() => Ok(Target::Elsewhere),
        (Some(_), None) => Ok(Target::Page(html_path(&path))),
        (Some(_), Some(anchor)) => Ok(Target::Page(PathBuf::from(format!("{}#{anchor}", html_path(&path).display())))),
        (None, _) if path.extension().is_some_and(|extension| extension == "md") => bail!("it is not in the contents"),
        (None, Some(_)) => bail!("an anchor in a file that is no page"),
        (None, None) if !root.join(&path).is_file() => bail!("no such file"),
        // A browser shows these, and would save others.
        (None, None) if path.extension().is_some_and(|extension| extension == "svg" || extension == "png") => {
            Ok(Target::File(path.clone(), path))
        }
        (None, None) => Ok(Target::File(path.clone(), PathBuf::from(format!("{}.txt", path.display())))),
    }
}

/// A path without `..` and `.`.
fn normal(path: &Path) -> Result<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir if normal.pop() => {}
            _ => bail!("it leaves the repository"),
        }
    }
    Ok(normal)
}

fn html_path(source: &Path) -> PathBuf {
    if source.file_name().is_some_and(|name| name == "README.md") {
        source.with_file_name("index.html")
    } else {
        source.with_extension("html")
    }
}

/// `path` as seen from the folder of `source`.
fn relative(source: &Path, path: &Path) -> String {
    let depth = source.components().count() - 1;
    format!("{}{}", "../".repeat(depth), path.display())
}

fn document(source: &Path, page: &Page, contents: &[Part], simulator: Option<&[u8]>) -> String {
    let title = escape(page.title());
    let link = |(label, other): &(&str, &str)| {
        let here = if Path::new(other) == source { " aria-current=\"page\"" } else { "" };
        format!("<li><a href=\"{}\"{here}>{}</a></li>\n", relative(source, &html_path(Path::new(other))), escape(label))
    };
    let parts = contents.iter().map(|(part, pages)| {
        format!("<h2>{}</h2>\n<ul>\n{}</ul>\n", escape(part), pages.iter().map(link).collect::<String>())
    });
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <link rel=\"stylesheet\" href=\"{}\">\n</head>\n<body class=\"site\">\n<a class=\"skip\" href=\"#contents\">Contents</a>\n\
         <main>\n{}</main>\n<nav id=\"contents\" aria-label=\"Contents\">\n{}</nav>\n</body>\n</html>\n",
        relative(source, Path::new("style.css")),
        playground::in_page(page.html(), simulator),
        parts.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    const SMALL: &[Part] = &[("Part", &[("Home", "README.md"), ("Other", "docs/other.md")])];

    #[test]
    fn the_documentation_has_no_broken_link() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let site = build(&root, CONTENTS, None).unwrap();
        for (path, bytes) in
            site.iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "html"))
        {
            let html = String::from_utf8_lossy(bytes);
            assert!(html.contains("aria-current"), "{}", path.display());
            assert!(!html.contains("src=\"http") && !html.contains("<script"), "{}", path.display());
        }
        assert!(site.contains_key(Path::new("index.html")) && site.contains_key(Path::new("docs/frontier.svg")));
    }

    #[test]
    fn the_contents_have_every_page_of_docs() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
        for path in std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path()).filter(is_page) {
            let name = format!("docs/{}", path.file_name().unwrap().display());
            assert!(CONTENTS.iter().any(|(_, pages)| pages.iter().any(|(_, source)| *source == name)), "{name}");
        }
    }

    #[test]
    fn links_lead_to_pages_files_and_headings() {
        let home = "# Home\n\n[a](docs/other.md#the-end), [b](LICENSE), [c](https://example.org), [d](#home), ![e](docs/e.svg) ![f](docs/f.png)\n";
        let root = tree(&[
            ("README.md", home),
            ("LICENSE", "MIT"),
            ("docs/e.svg", "<svg/>"),
            ("docs/f.png", "PNG"),
            ("docs/other.md", "# Other\n\n## The end\n\n[home](../README.md)\n"),
        ]);
        let site = build(root.path(), SMALL, None).unwrap();
        let text = |path: &str| String::from_utf8(site[Path::new(path)].clone()).unwrap();
        let home = text("index.html");
        for link in [
            "\"docs/other.html#the-end\"",
            "\"LICENSE.txt\"",
            "\"https://example.org\"",
            "\"#home\"",
            "src=\"docs/e.svg\"",
            "src=\"docs/f.png\"",
        ] {
            assert!(home.contains(link), "{link}: {home}");
        }
        assert!(
            text("docs/other.html").contains("<h2 id=\"the-end\">")
                && text("docs/other.html").contains("href=\"../index.html\"")
        );
        assert_eq!((text("LICENSE.txt").as_str(), text("docs/e.svg").as_str()), ("MIT", "<svg/>"));
    }

    #[test]
    fn a_broken_link_is_named_with_its_page() {
        for (link, problem) in [
            ("docs/other.md#nowhere", "docs/other.md has no such heading"),
            ("#nowhere", "README.md has no such heading"),
            ("docs/none.rs", "no such file"),
            ("docs", "no such file"),
            ("docs/more.md", "it is not in the contents"),
            ("LICENSE#top", "an anchor in a file that is no page"),
            ("../outside", "it leaves the repository"),
        ] {
            let home = format!("# Home\n\n[link]({link})\n");
            let root =
                tree(&[("README.md", &home), ("LICENSE", ""), ("docs/other.md", "# Other\n"), ("docs/more.md", "")]);
            let error = build(root.path(), SMALL, None).unwrap_err().to_string();
            assert_eq!(error, format!("broken links:\nREADME.md: {link}: {problem}"));
        }
    }
}

// The Rust of README.md compiles and does what its comments say.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
