//! The clients of a socket, each on a thread of its own. Their number is limited. While all places are taken, a client that
//! waits for no answer gives up its place to the next one, so clients that are forgotten lock nobody out.

use crate::os::socket::accepted;
use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, getsockopt, send, sockopt};
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::warn;

/// How long a client may take to receive an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most clients of a socket at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// All of them.
    pub all: usize,
    /// Those of other users than the operator. If it is less than `all`, the rest is kept for the operator.
    pub others: usize,
}

/// A connection to a client.
pub trait Client: AsFd + Send + Sync + 'static {
    /// Ends the connection. Whoever reads from it finds its end.
    fn disconnect(&self);

    /// Whether the client runs as the user of this process, or as root.
    fn is_operator(&self) -> bool;
}

impl Client for UnixStream {
    fn disconnect(&self) {
        let _ = self.shutdown(Shutdown::Both); // it may be over already
    }

    fn is_operator(&self) -> bool {
        let peer = getsockopt(self, sockopt::PeerCredentials);
        peer.is_ok_and(|peer| [0, geteuid().as_raw()].contains(&peer.uid()))
    }
}

impl Client for TcpStream {
    fn disconnect(&self) {
        let _ = self.shutdown(Shutdown::Both); // as above
    }

    fn is_operator(&self) -> bool {
        false // it may be anybody
    }
}

/// Sends an answer to a client.
///
/// # Errors
/// The client has left, or does not take it in time.
pub fn send_all(client: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        match send(client.as_fd().as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let rest = deadline.saturating_duration_since(Instant::now());
                let rest = PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX);
                if poll(&mut [PollFd::new(client.as_fd(), PollFlags::POLLOUT)], rest) == Ok(0) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Serves clients until the process ends. `serve` runs on a thread for each client, and `refuse` tells one why there is no
/// place.
///
/// # Errors
/// The system gives no thread.
pub fn serve_clients<S: Client, A>(
    name: &'static str,
    limits: Limits,
    mut accept: impl FnMut() -> io::Result<(S, A)> + Send + 'static,
    serve: impl Fn(&S, &Place<S>) + Send + Sync + 'static,
    refuse: impl Fn(&S, &str) + Send + 'static,
) -> Result<()> {
    let (places, serve) = (Arc::new(Mutex::new(Places::new(limits))), Arc::new(serve));
    let accept_all = move || {
        loop {
            let Some(client) = accepted(accept()).map(Arc::new) else { continue };
            let admitted = lock(&places).admit(&client);
            let (number, gone) = match admitted {
                Ok(admitted) => admitted,
                Err(why) => {
                    warn!("{name}: refused a client: {why}");
                    refuse(&client, &why);
                    continue;
                }
            };
            let place = Place { places: places.clone(), number };
            if let Some(gone) = gone {
                let all = limits.all;
                warn!("{name}: {all} clients are connected, which is the limit: an idle one is disconnected");
                gone.end();
            }
            let serve = serve.clone();
            let thread = std::thread::Builder::new().name(format!("{name}-client"));
            match thread.spawn(move || serve(&client, &place)) {
                Ok(thread) => lock(&places).note_thread(number, thread),
                Err(error) => warn!("{name}: refused a client: no thread: {error}"),
            }
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(accept_all).context("a thread")?;
    Ok(())
}

/// The place of a client that is being served. It is idle, except while it [waits for an answer](Self::wait_for_answer).
#[derive(Debug)]
pub struct Place<S> {
    places: Arc<Mutex<Places<S>>>,
    number: u64,
}

impl<S> Place<S> {
    /// Until what is returned is dropped, the place belongs to the client. `None`: another has it already.
    #[must_use]
    pub fn wait_for_answer(&self) -> Option<Answering<'_, S>> {
        lock(&self.places).taken.get_mut(&self.number)?.idle_since = None;
        Some(Answering(self))
    }
}

impl<S> Drop for Place<S> {
    fn drop(&mut self) {
        lock(&self.places).taken.remove(&self.number);
    }
}

/// A client waits for an answer, and then takes it.
#[derive(Debug)]
#[must_use = "dropping it makes the client idle"]
pub struct Answering<'a, S>(&'a Place<S>);

impl<S> Drop for Answering<'_, S> {
    fn drop(&mut self) {
        let mut places = lock(&self.0.places);
        let now = places.tick();
        if let Some(taken) = places.taken.get_mut(&self.0.number) {
            taken.idle_since = Some(now);
        }
    }
}

fn lock<S>(places: &Mutex<Places<S>>) -> MutexGuard<'_, Places<S>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Places<S> {
    limits: Limits,
    ticks: u64, // the order in which clients came and became idle
    taken: BTreeMap<u64, Taken<S>>,
}

#[derive(Debug)]
struct Taken<S> {
    client: Arc<S>,
    is_operator: bool,
    idle_since: Option<u64>,
    thread: Option<JoinHandle<()>>,
}

impl<S: Client> Taken<S> {
    /// Disconnects a client that is idle, and waits for its thread, so that it leaves no file open. The thread can only be
    /// waiting for the client.
    fn end(self) {
        self.client.disconnect();
        let _ = self.thread.map(JoinHandle::join); // a panic is logged
    }
}

impl<S> Places<S> {
    const fn new(limits: Limits) -> Self {
        Self { limits, ticks: 0, taken: BTreeMap::new() }
    }

    fn note_thread(&mut self, number: u64, thread: JoinHandle<()>) {
        if let Some(taken) = self.taken.get_mut(&number) {
            taken.thread = Some(thread);
        }
    }

    const fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }
}

impl<S: Client> Places<S> {
    /// Gives a client a place: its number, and the client that had it until now. That one has been idle longest, and is of
    /// the operator only if the new one is.
    ///
    /// # Errors
    /// All places are in use. Why there is none.
    fn admit(&mut self, client: &Arc<S>) -> Result<(u64, Option<Taken<S>>), String> {
        let Limits { all, others } = self.limits;
        let is_operator = client.is_operator();
        let is_full = self.taken.len() >= all;
        let others_now = self.taken.values().filter(|taken| !taken.is_operator).count();
        let mut gone = None;
        if is_full || (!is_operator && others_now >= others) {
            let may_go = self.taken.iter().filter(|(_, taken)| is_operator || !taken.is_operator);
            let longest =
                may_go.filter_map(|(number, taken)| Some((taken.is_operator, taken.idle_since?, *number))).min();
            let Some((.., number)) = longest else {
                let whose = if is_full { format!("{all} clients") } else { format!("{others} clients of other users") };
                return Err(format!("{whose} are connected, which is the limit"));
            };
            gone = self.taken.remove(&number);
        }
        let number = self.tick();
        let taken = Taken { client: client.clone(), is_operator, idle_since: Some(number), thread: None };
        self.taken.insert(number, taken);
        Ok((number, gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::BorrowedFd;

    /// A client of the operator, or of another user.
    #[derive(Debug, PartialEq, Eq)]
    struct Somebody(bool);

    impl AsFd for Somebody {
        fn as_fd(&self) -> BorrowedFd<'_> {
            unreachable!("it has no socket")
        }
    }

    impl Client for Somebody {
        fn disconnect(&self) {}

        fn is_operator(&self) -> bool {
            self.0
        }
    }

    /// Who comes to the places: at most 4, 3 of them others.
    struct Room(Arc<Mutex<Places<Somebody>>>);

    impl Room {
        fn new() -> Self {
            Self(Arc::new(Mutex::new(Places::new(Limits { all: 4, others: 3 }))))
        }

        /// The place of a newcomer, and that of the client that had to go.
        fn admit(&self, is_operator: bool) -> Result<(Place<Somebody>, Option<u64>), String> {
            let before: Vec<_> = lock(&self.0).taken.keys().copied().collect();
            let (number, _) = lock(&self.0).admit(&Arc::new(Somebody(is_operator)))?;
            let gone = before.into_iter().find(|number| !lock(&self.0).taken.contains_key(number));
            Ok((Place { places: self.0.clone(), number }, gone))
        }
    }

    const OPERATOR: bool = true;
    const OTHER: bool = false;

    #[test]
    fn the_client_that_is_idle_longest_gives_up_its_place() {
        let room = Room::new();
        let [first, second, third, _fourth] = [(); 4].map(|()| room.admit(OPERATOR).unwrap().0);
        drop(first.wait_for_answer()); // now it is the newest
        let busy = second.wait_for_answer();
        let (fifth, gone) = room.admit(OPERATOR).unwrap();
        assert_eq!(gone, Some(third.number));
        assert!(third.wait_for_answer().is_none(), "it has no place any more");
        drop(third);
        drop(busy);
        drop(fifth);
        let (_sixth, gone) = room.admit(OPERATOR).unwrap();
        assert_eq!(gone, None, "there was room");
    }

    #[test]
    fn a_client_that_waits_for_an_answer_keeps_its_place() {
        let room = Room::new();
        let places = [(); 4].map(|()| room.admit(OPERATOR).unwrap().0);
        let mut busy: Vec<_> = places.iter().map(|place| place.wait_for_answer().unwrap()).collect();
        for is_operator in [OPERATOR, OTHER] {
            assert_eq!(room.admit(is_operator).unwrap_err(), "4 clients are connected, which is the limit");
        }
        drop(busy.remove(2));
        assert_eq!(room.admit(OTHER).unwrap_err(), "4 clients are connected, which is the limit", "not the operator's");
        let (_place, gone) = room.admit(OPERATOR).unwrap();
        assert_eq!(gone, Some(places[2].number));
    }

    #[test]
    fn others_never_have_the_place_that_is_kept_for_the_operator() {
        let room = Room::new();
        let others = [(); 3].map(|()| room.admit(OTHER).unwrap().0);
        let (_another, gone) = room.admit(OTHER).unwrap();
        assert_eq!(gone, Some(others[0].number), "one of their own goes");
        let busy: Vec<_> = others.iter().filter_map(Place::wait_for_answer).collect();
        assert_eq!(busy.len(), 2);
        let (operator, gone) = room.admit(OPERATOR).unwrap();
        assert_eq!(gone, None);
        let (_third, gone) = room.admit(OTHER).unwrap();
        assert!(gone.is_some_and(|gone| gone != operator.number));
        let (_second, gone) = room.admit(OPERATOR).unwrap();
        assert!(gone.is_some_and(|gone| gone != operator.number), "others go first");
    }

    #[test]
    fn others_are_told_their_limit() {
        let room = Room::new();
        let others = [(); 3].map(|()| room.admit(OTHER).unwrap().0);
        let _busy = others.each_ref().map(|place| place.wait_for_answer().unwrap());
        assert_eq!(room.admit(OTHER).unwrap_err(), "3 clients of other users are connected, which is the limit");
        room.admit(OPERATOR).unwrap();
    }
}
