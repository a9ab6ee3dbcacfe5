//! The questions to a process that have no answer yet. Of each kind one is open, and the next ones wait for their turn.

use super::{PATIENCE, Request};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem::{Discriminant, discriminant};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// What a question leads to: the answer, or why the process refuses it.
pub(super) type Outcome = Result<Value, String>;

/// The kind of a request.
pub(super) type Kind = Discriminant<Request>;

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The process has ended, and what it had not answered is not done.
    Ended,
    /// The process was asked and did not answer in time. It does what it was asked if it goes on.
    Late,
    /// The process was not asked, because it has not answered the question before in time.
    NotAsked,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "its process has ended",
            Self::Late | Self::NotAsked => "does not answer: its process is stuck",
        })
    }
}

impl std::error::Error for Unanswered {}

/// The questions of all kinds.
#[derive(Debug, Default)]
pub(super) struct Turns {
    numbers: u64, // given so far, to askers and to questions
    by_kind: HashMap<Kind, Line>,
}

/// The questions of one kind, in the order in which they were asked.
#[derive(Debug, Default)]
struct Line {
    open: Option<Open>,
    waiting: VecDeque<Question>,
}

/// A question that was sent.
#[derive(Debug)]
struct Open {
    number: u64,
    late_at: Instant,
    question: Question,
}

/// A question with those who ask it.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) request: Request,
    patience: Duration,
    askers: Vec<Asker>,
}

#[derive(Debug)]
struct Asker {
    number: u64,
    answer: Sender<Outcome>,
}

/// The place of somebody who asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    kind: Kind,
    number: u64,
}

impl Question {
    fn is_of(&self, ticket: Ticket) -> bool {
        self.askers.iter().any(|asker| asker.number == ticket.number)
    }

    /// Tells those who ask. They may have stopped waiting.
    pub(super) fn answer(self, outcome: &Outcome) {
        for asker in self.askers {
            let _ = asker.answer.send(outcome.clone());
        }
    }
}

impl Turns {
    /// Adds a question, or joins one that waits and that one answer serves. It is late when it has been open for `patience`.
    pub(super) fn ask(&mut self, request: Request, patience: Duration) -> (Ticket, Receiver<Outcome>) {
        let ticket = Ticket { kind: discriminant(&request), number: next(&mut self.numbers) };
        let (sender, answer) = channel();
        let asker = Asker { number: ticket.number, answer: sender };
        let waiting = &mut self.by_kind.entry(ticket.kind).or_default().waiting;
        // Not the open one: its answer may be older than what this asker has done meanwhile.
        match waiting.back_mut().filter(|_| matches!(request, Request::Stats | Request::ResetStats)) {
            Some(question) => question.askers.push(asker),
            None => waiting.push_back(Question { request, patience, askers: vec![asker] }),
        }
        (ticket, answer)
    }

    /// Opens the next question of a kind, if none is open. Its number.
    pub(super) fn open_next(&mut self, kind: Kind) -> Option<(u64, &Request)> {
        let line = self.by_kind.get_mut(&kind).filter(|line| line.open.is_none())?;
        let question = line.waiting.pop_front()?;
        let number = next(&mut self.numbers);
        let open = line.open.insert(Open { number, late_at: Instant::now() + question.patience, question });
        Some((number, &open.question.request))
    }

    /// Takes the open question that has this number.
    pub(super) fn close(&mut self, number: u64) -> Option<Question> {
        let mut lines = self.by_kind.values_mut();
        lines.find_map(|line| Some(line.open.take_if(|open| open.number == number)?.question))
    }

    /// How long somebody waits before it is time to [give up](Self::give_up).
    pub(super) fn rest(&self, ticket: Ticket) -> Duration {
        let open = self.by_kind.get(&ticket.kind).and_then(|line| line.open.as_ref());
        open.map_or(PATIENCE, |open| open.late_at.saturating_duration_since(Instant::now())) // none: it is being answered
    }

    /// Gives up a question that is late, or that waits for one that is. `None`: there is none.
    pub(super) fn give_up(&mut self, ticket: Ticket) -> Option<Unanswered> {
        let line = self.by_kind.get_mut(&ticket.kind)?;
        let open = line.open.as_ref().filter(|open| open.late_at <= Instant::now())?;
        if open.question.is_of(ticket) {
            return Some(Unanswered::Late);
        }
        let place = line.waiting.iter().position(|question| question.is_of(ticket))?;
        let askers = &mut line.waiting[place].askers;
        askers.retain(|asker| asker.number != ticket.number);
        if askers.is_empty() {
            line.waiting.remove(place);
        }
        Some(Unanswered::NotAsked)
    }
}

const fn next(numbers: &mut u64) -> u64 {
    *numbers += 1;
    *numbers
}
