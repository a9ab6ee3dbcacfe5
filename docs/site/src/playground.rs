//! The playground: a page with the simulator, its script and its style within, as a page that is opened as a file may load
//! nothing else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;

/// Where in a page it is.
const MARK: &str = "<!-- playground -->";
/// Shown without a simulator.
const ABSENT: &str =
    "<p class=\"notice\">This copy of the documentation was made without the simulator: see “How it is made”.</p>";

const BODY: &str = include_str!("../play/page/page.html");
const STYLE: &str = include_str!("../play/page/page.css");
const WORKER: &str = include_str!("../play/page/worker.js");
/// One script, as modules of their own cannot be loaded from files. Each uses those before it.
const SCRIPTS: [&str; 8] = [
    include_str!("../play/page/settings.js"),
    include_str!("../play/page/element.js"),
    include_str!("../play/page/form.js"),
    include_str!("../play/page/simulator.js"),
    include_str!("../play/page/timeline.js"),
    include_str!("../play/page/frontier.js"),
    include_str!("../play/page/numbers.js"),
    include_str!("../play/page/main.js"),
];

/// A page's HTML with the playground where its mark is, if it has one.
pub fn in_page(html: String, simulator: Option<&[u8]>) -> String {
    let Some((before, after)) = html.split_once(MARK) else { return html };
    let Some(simulator) = simulator else { return [before, ABSENT, after].concat() };
    let mut page = format!("{before}<style>\n{STYLE}</style>\n{BODY}");
    // Text that no browser runs.
    for (id, text) in [("worker", WORKER), ("wasm", &STANDARD.encode(simulator))] {
        let _ = writeln!(page, "<script type=\"text/plain\" id=\"{id}\">\n{text}</script>");
    }
    let _ = writeln!(page, "<script type=\"module\">\n{}</script>", SCRIPTS.concat());
    page + after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_with_the_mark_gets_it_and_what_is_within_ends_no_script() {
        assert_eq!(in_page("<p>a</p>".into(), Some(b"wasm")), "<p>a</p>");
        let marked = format!("<p>a</p>{MARK}<p>b</p>");
        assert!(in_page(marked.clone(), None).contains("<p>a</p><p class=\"notice\">"));
        let page = in_page(marked, Some(b"wasm"));
        assert!(page.contains("\nd2FzbQ==</script>") && page.ends_with("<p>b</p>"), "{page}");
        assert_eq!((page.matches("<script").count(), page.matches("</script>").count()), (3, 3));
    }
}
