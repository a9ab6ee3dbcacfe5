//! A page: Markdown as the repository's host reads it, with an anchor at each heading.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};
use std::path::PathBuf;

/// Where a link leads to.
pub enum Target {
    /// Out of the site, or within its page: the link stays as it is.
    Elsewhere,
    /// To a page, perhaps with an anchor.
    Page(PathBuf),
    /// To a file that is copied: from where in the repository, to where in the site.
    File(PathBuf, PathBuf),
}

/// A page that was read.
#[derive(Clone)]
pub struct Page {
    events: Vec<Event<'static>>,
    anchors: Vec<String>,
    title: String,
}

impl Page {
    /// Reads Markdown.
    pub fn read(text: &str) -> Self {
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        let mut page = Self { events: Vec::new(), anchors: Vec::new(), title: String::new() };
        let mut heading: Option<(usize, String)> = None; // where it begins, its text so far
        for event in Parser::new_ext(text, options).map(Event::into_static) {
            match &event {
                Event::Start(Tag::Heading { .. }) => heading = Some((page.events.len(), String::new())),
                Event::Text(text) | Event::Code(text) => {
                    if let Some((_, heading)) = &mut heading {
                        heading.push_str(text);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    if let Some((start, text)) = heading.take() {
                        page.name(start, text);
                    }
                }
                // A table may be wider than the page, and then scrolls by itself.
                Event::Start(Tag::Table(_)) => page.events.push(Event::Html("<div class=\"wide\">\n".into())),
                _ => {}
            }
            let ends_table = matches!(event, Event::End(TagEnd::Table));
            page.events.push(event);
            if ends_table {
                page.events.push(Event::Html("</div>\n".into()));
            }
        }
        page
    }

    /// Gives the heading that begins at an event its anchor.
    fn name(&mut self, start: usize, text: String) {
        let slug = slug(&text);
        let is_free = |anchor: &String| !self.anchors.contains(anchor);
        let numbered = (1..).map(|nth| format!("{slug}-{nth}"));
        let anchor = std::iter::once(slug.clone()).chain(numbered).find(is_free).unwrap_or_default();
        if let Event::Start(Tag::Heading { id, .. }) = &mut self.events[start] {
            *id = Some(anchor.clone().into());
        }
        self.anchors.push(anchor);
        if self.title.is_empty() {
            self.title = text;
        }
    }

    /// The text of its first heading.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Whether it has a heading with this anchor.
    pub fn has(&self, anchor: &str) -> bool {
        self.anchors.iter().any(|known| known == anchor)
    }

    /// Replaces the targets of links and images for which `replace` has another.
    pub fn links(&mut self, mut replace: impl FnMut(&str) -> Option<String>) {
        for event in &mut self.events {
            if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event
                && let Some(other) = replace(dest_url)
            {
                *dest_url = other.into();
            }
        }
    }

    /// As HTML.
    pub fn html(&self) -> String {
        let mut text = String::new();
        html::push_html(&mut text, self.events.iter().cloned());
        text
    }
}

/// The anchor that the hosts of repositories give a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_the_repositorys_host() {
        let page = Page::read("# Why did it interrupt, or not?\n\n## `auto`, our default\n\n## Costs\n\n## Costs\n");
        assert_eq!(page.title(), "Why did it interrupt, or not?");
        for anchor in ["why-did-it-interrupt-or-not", "auto-our-default", "costs", "costs-1"] {
            assert!(page.has(anchor) && page.html().contains(&format!(" id=\"{anchor}\"")), "{anchor}");
        }
    }

    #[test]
    fn a_wide_table_scrolls_by_itself() {
        let html = Page::read("| a |\n|---|\n| b |\n").html();
        assert!(html.starts_with("<div class=\"wide\">\n<table>") && html.ends_with("</table>\n</div>\n"), "{html}");
    }
}
