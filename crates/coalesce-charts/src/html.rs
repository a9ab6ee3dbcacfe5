//! Small pieces of HTML.

use std::ops::Range;

/// Escapes text for HTML elements and attributes.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c => escaped.push(c),
        }
    }
    escaped
}

/// A figure made of panels.
#[must_use]
pub fn figure(id: &str, title: &str, caption: &str, panels: &[String]) -> String {
    let (title, panels) = (escape(title), panels.concat());
    format!(
        "<figure id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h3 id=\"{id}-title\">{title}</h3>\n<div class=\"panels\">\n{panels}</div>\n<figcaption>{caption}</figcaption>\n</figure>\n"
    )
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// Whether it is greyed.
    pub is_grey: bool,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, is_grey: false }
    }
}

/// A table with a caption, a header row and groups of rows. The columns in `numbers` are aligned as numbers.
#[must_use]
pub fn table<C: Clone + Into<Cell>>(
    caption: &str,
    heads: &[&str],
    numbers: Range<usize>,
    groups: &[Vec<Vec<C>>],
) -> String {
    let class = |column| if numbers.contains(&column) { " class=\"n\"" } else { "" };
    let cell = |(column, cell): (usize, &C)| {
        let Cell { text, is_grey } = cell.clone().into();
        let class = if is_grey { " class=\"n grey\"" } else { class(column) };
        format!("<td{class}>{}</td>", escape(&text))
    };
    let heads = heads
        .iter()
        .enumerate()
        .map(|(column, head)| format!("<th scope=\"col\"{}>{}</th>", class(column), escape(head)));
    // Not a <caption>, which is as wide as the table and would scroll with it on a phone.
    let caption = escape(caption);
    let mut html = format!(
        "<p class=\"caption\">{caption}</p>\n\
         <div class=\"wide\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\"><table>\n<thead><tr>{}</tr></thead>\n",
        heads.collect::<String>()
    );
    for group in groups {
        html += "<tbody>\n";
        for line in group {
            let cells = line.iter().enumerate().map(cell);
            html += &format!("<tr>{}</tr>\n", cells.collect::<String>());
        }
        html += "</tbody>\n";
    }
    html + "</table></div>\n"
}

/// A highlighted paragraph.
#[must_use]
pub fn notice(text: &str) -> String {
    format!("<p class=\"notice\" role=\"note\">{}</p>\n", escape(text))
}

/// A block of shell commands.
#[must_use]
pub fn commands(lines: &str) -> String {
    format!("<pre><code>{}</code></pre>\n", escape(lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_escaped() {
        assert_eq!(escape("<a href=\"x\">'&amp;'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;amp;&#39;&lt;/a&gt;");
        assert_eq!(escape("p99 µs"), "p99 µs");
        let html = table("<c>", &["<h>"], 0..1, &[vec![vec!["<d>".to_owned()]]]);
        assert!(
            html.contains("<th scope=\"col\" class=\"n\">&lt;h&gt;</th>")
                && html.contains("&lt;d&gt;")
                && html.contains("&lt;c&gt;")
        );
        assert!(notice("<n>").contains("&lt;n&gt;") && commands("a && b").contains("a &amp;&amp; b"));
    }
}
