//! `top` on a terminal: the tables of the last interval, until q is pressed.

use super::{Outcomes, table};
use anyhow::{Context as _, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize as _;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use std::time::{Duration, Instant};

/// Shows what happened in each interval, and gives the terminal back as it was.
///
/// # Errors
/// Reading from the terminal, or writing to it, fails.
pub(super) fn show<'a>(interval: Duration, next: impl FnMut() -> Outcomes<'a>) -> Result<()> {
    let mut terminal = ratatui::try_init().context("terminal")?;
    let outcome = watch(&mut terminal, interval, next);
    ratatui::try_restore().context("terminal")?;
    outcome
}

fn watch<'a>(terminal: &mut DefaultTerminal, interval: Duration, mut next: impl FnMut() -> Outcomes<'a>) -> Result<()> {
    let footer = format!("every {interval:?} \u{2502} up, down, page up, page down: scroll \u{2502} q: quit");
    let mut lines = vec![Line::from(format!("the first {interval:?} ..."))];
    let (mut scrolled, mut renewed) = (0_u16, Instant::now());
    loop {
        let mut page = 0;
        terminal
            .draw(|frame| {
                let [tables, last] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
                page = tables.height;
                scrolled = scrolled.min(u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(page));
                frame.render_widget(Paragraph::new(lines.clone()).scroll((scrolled, 0)), tables);
                frame.render_widget(Line::from(footer.as_str()).dim(), last);
            })
            .context("terminal")?;
        if !event::poll(interval.saturating_sub(renewed.elapsed())).context("terminal")? {
            (lines, renewed) = (table::lines(&next()), Instant::now());
            continue;
        }
        let Event::Key(KeyEvent { code, modifiers, .. }) = event::read().context("terminal")? else { continue };
        scrolled = match code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
            KeyCode::Up => scrolled.saturating_sub(1),
            KeyCode::Down => scrolled.saturating_add(1),
            KeyCode::PageUp => scrolled.saturating_sub(page),
            KeyCode::PageDown => scrolled.saturating_add(page),
            _ => scrolled,
        };
    }
}
