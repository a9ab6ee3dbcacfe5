//! What a migration needs of a target: exactly the pages that the device writes are logged, none is missing once a ring has
//! stopped, and an image that two targets have open serves one guest at a time.

mod medium;
mod raw;

use medium::{Call, Fault, Medium};
use raw::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use tempfile::TempDir;

fn page(address: u64) -> u64 {
    address / 4096
}

fn image() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let image = directory.path().join("image");
    std::fs::write(&image, vec![0; 4 << 20]).unwrap();
    (directory, image)
}

fn serve(image: &Path, queues: usize) -> Target {
    Target::start(&[Disk::file("disk", image).queues(queues).policy("none").migratable()])
}

/// The log of a driver's guest.
fn log_for(driver: &Driver) -> Log {
    Log::new(driver.queues[0].end_of_memory())
}

/// The pages that are logged for a request.
fn logged(driver: &mut Driver, log: &Log, op: Op<'_>) -> BTreeSet<u64> {
    log.take();
    assert_eq!(driver.queue().run(op).status, OK, "{op:?}");
    log.take()
}

#[test]
fn exactly_the_pages_that_the_device_writes_are_logged() {
    let (_directory, image) = image();
    let target = serve(&image, 1);
    for event_idx in [true, false] {
        let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64).event_idx(event_idx));
        let queue = driver.queue();
        let [data, status, used] = [queue.data(0), queue.status_at(0), queue.used].map(page);
        let zeroes = [0; 4096];
        let writes_nothing = [Op::Write(0, &zeroes), Op::Flush, Op::Discard(0, 8, 0), Op::WriteZeroes(0, 8, 0)];
        let read = Op::Read(0, 4096);
        let log = log_for(&driver);

        driver.log_data(true).unwrap();
        assert_eq!(driver.queue().run(read).status, OK, "there is no log yet");
        driver.log_data(false).unwrap();
        log.share(&driver.wire).unwrap();
        assert_eq!(logged(&mut driver, &log, read), BTreeSet::new(), "nothing is to be logged");

        driver.log_data(true).unwrap();
        assert_eq!(logged(&mut driver, &log, read), [data, status].into(), "data alone is to be logged");
        for op in writes_nothing {
            assert_eq!(logged(&mut driver, &log, op), [status].into(), "{op:?}");
        }

        // Not where it is, but where the front end says.
        let at = driver.setup.spare() + 4096;
        driver.log_used(0, Some(at)).unwrap();
        assert_eq!(logged(&mut driver, &log, read), [data, status, page(at)].into(), "and the used ring");
        driver.log_used(0, Some(driver.queues[0].used)).unwrap();
        for op in [read, Op::GetId] {
            assert_eq!(logged(&mut driver, &log, op), [data, status, used].into(), "{op:?}");
        }
        for op in writes_nothing {
            assert_eq!(logged(&mut driver, &log, op), [status, used].into(), "{op:?}");
        }

        driver.log_data(false).unwrap();
        assert_eq!(logged(&mut driver, &log, read), [used].into(), "the used ring alone");
        driver.log_used(0, None).unwrap();
        assert_eq!(logged(&mut driver, &log, read), BTreeSet::new(), "nothing any more");

        driver.stop_queue(0);
        driver.log_data(true).unwrap();
        driver.start_queue(0);
        assert_eq!(logged(&mut driver, &log, read), [data, status].into(), "a ring that starts under a log");
    }
}

#[test]
fn each_page_of_each_buffer_is_logged_and_no_neighbour() {
    let (_directory, image) = image();
    let target = serve(&image, 1);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    let log = log_for(&driver);
    log.share(&driver.wire).unwrap();
    driver.log_data(true).unwrap();
    let spare = driver.setup.spare();
    let queue = driver.queue();
    let first = page(spare);
    // Up to the end of a page; the start of another; over a boundary; three whole pages.
    let buffers = [(4096 - 100, 100), (2 * 4096, 412), (5 * 4096 - 1, 512), (8 * 4096, 3 * 4096)];
    let mut parts = vec![(queue.header(0), 16, 0)];
    parts.extend(buffers.map(|(at, len)| (spare + at, len, WRITE)));
    parts.push((queue.status_at(0), 1, WRITE));
    let status = page(queue.status_at(0));
    let expected = [0, 2, 4, 5, 8, 9, 10].map(|n| first + n).into_iter().chain([status]).collect::<BTreeSet<_>>();
    let table = spare + (1 << 19);
    for (i, desc) in chained(&parts).iter().enumerate() {
        queue.write(table + 16 * i as u64, &desc.bytes());
    }
    for chain in [chained(&parts), vec![Desc(table, 16 * parts.len() as u32, INDIRECT, 0)]] {
        queue.write(queue.header(0), &header(T_IN, 0, 0));
        log.take();
        queue.run_chain(&chain);
        assert_eq!((queue.status(0), log.take()), (OK, expected.clone()));
    }
    // Beyond the disk: there is no data, only a status.
    queue.write(queue.header(0), &header(T_IN, 0, 1 << 40));
    queue.run_chain(&chained(&parts));
    assert_eq!((queue.status(0), log.take()), (IOERR, [status].into()));
}

/// A used ring of 1024 entries has three pages: the index, entries, and the index of the next kick.
#[test]
fn each_page_of_a_used_ring_is_logged() {
    let (_directory, image) = image();
    let target = serve(&image, 1);
    for (event_idx, start, pages) in
        [(true, 0, &[0, 2][..]), (true, 511, &[0, 1, 2]), (true, 600, &[0, 1, 2]), (false, 600, &[0, 1])]
    {
        let mut driver = Driver::connect(&target.path("disk"), &Setup::new(1, 1024).event_idx(event_idx));
        driver.queue().begin_at(start);
        let log = log_for(&driver);
        log.share(&driver.wire).unwrap();
        driver.log_data(false).unwrap();
        driver.start_queue(0);
        let used = driver.queues[0].used;
        driver.log_used(0, Some(used)).unwrap();
        if !event_idx {
            driver.queue().kick(); // for nothing: the device wakes and sleeps, and says so in the flags
            wait_until("flags", || log.take() == [page(used)].into());
        }
        assert_eq!(driver.queue().run(Op::Flush).status, OK);
        let expected: BTreeSet<_> = pages.iter().map(|n| page(used) + n).collect();
        // The device asks for kicks a moment later, before it sleeps.
        wait_until(&format!("{expected:?} of {:?}", log.pages()), || log.pages() == expected);
        driver.stop_queue(0);
        assert_eq!(log.pages(), expected);
    }
}

#[test]
fn a_ring_that_has_stopped_has_logged_everything() {
    let (_directory, image) = image();
    let target = serve(&image, 1);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 256));
    let log = log_for(&driver);
    log.share(&driver.wire).unwrap();
    driver.log_data(true).unwrap();
    let used = page(driver.queues[0].used);
    let mut in_flight = 0;
    for _ in 0..50 {
        driver.log_used(0, Some(used * 4096)).unwrap();
        log.take();
        let queue = driver.queue();
        queue.offer_many(64, &Op::Read(0, 4096));
        queue.publish();
        let base = driver.stop_queue(0);
        let mut pages = log.take();
        let queue = driver.queue();
        assert_eq!(queue.used_idx(), base, "all that was taken is answered");
        let done = queue.take_used();
        assert!(pages.remove(&used) || done.is_empty());
        let slots = done.iter().map(|used| (used.id / u32::from(PER_SLOT)) as u16);
        let expected = slots.flat_map(|slot| [queue.data(slot), queue.status_at(slot)].map(page)).collect();
        assert_eq!(pages, expected);
        in_flight += done.len();
        driver.start_queue(0);
        driver.queue().spin(64 - done.len() as u16);
        driver.queue().take_all();
    }
    assert!(in_flight > 0, "no request was ever in flight");
}

/// A log that begins under a request in flight has what the request writes then; and a stop waits for it. It is a flush, as
/// io_uring never waits for one in the queue's thread.
#[test]
fn requests_that_were_in_flight_before_the_log_are_logged() {
    let Some(medium) = Medium::new_or_skip("a log that begins under requests in flight", 1 << 20) else { return };
    let (asked, was_asked) = channel();
    let (go_on, may_go_on) = channel();
    medium.plan(move |call| {
        if *call == Call::Flush {
            asked.send(()).unwrap();
            may_go_on.recv().unwrap();
        }
        Fault::None
    });
    let target = Target::start(&[Disk::file("disk", &medium.path()).policy("none").migratable()]);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    driver.log_data(false).unwrap();
    let log = log_for(&driver);
    let queue = driver.queue();
    queue.offer_many(1, &Op::Flush);
    queue.publish();
    was_asked.recv().unwrap();
    log.share(&driver.wire).unwrap();
    driver.log_data(true).unwrap();
    assert_eq!(log.pages(), BTreeSet::new());
    // The log is replaced meanwhile: the new one has it.
    let new = log_for(&driver);
    new.share(&driver.wire).unwrap();
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| driver.stop_queue(0));
        go_on.send(()).unwrap();
        assert_eq!(stopped.join().unwrap(), 1);
    });
    let status = page(driver.queues[0].status_at(0));
    assert_eq!((new.pages(), log.pages()), ([status].into(), BTreeSet::new()));
}

#[test]
fn an_image_that_two_targets_have_open_serves_one_guest_at_a_time() {
    let (_directory, image) = image();
    let [source, destination] = [serve(&image, 2), serve(&image, 2)];
    let written = pattern(3, 4096);
    let setup = || Setup::new(2, 64);
    let mut driver = Driver::start(&source.path("disk"), &setup());
    assert_eq!(driver.queue().run(Op::Write(0, &written)).status, OK);
    driver.stop_queue(0);
    let early = Driver::connect(&destination.path("disk"), &setup());
    early.set_up_queue(0);
    let kick = std::os::fd::AsRawFd::as_raw_fd(&early.queues[0].kick);
    assert!(early.wire.tell(SET_VRING_KICK, &u64s(&[0]), &[kick]).is_err(), "the other queue of the source runs");
    wait_until("it is logged", || destination.log().contains("is locked: another process or another disk has it open"));
    drop(early);

    // A destination that starts a little early waits.
    let mut incoming = Driver::connect(&destination.path("disk"), &setup());
    std::thread::scope(|scope| {
        let started = scope.spawn(|| incoming.start_queue(0));
        driver.stop_queue(1);
        started.join().unwrap();
    });
    assert_eq!(incoming.queue().run(Op::Read(0, 4096)).data, written);

    // Back: the connection ends, and with it the claim.
    assert_eq!(incoming.queue().run(Op::Write(8, &written)).status, OK);
    drop(incoming);
    driver.start_queue(0);
    assert_eq!(driver.queue().run(Op::Read(8, 4096)).data, written);
}

#[test]
fn a_disk_that_is_not_migratable_offers_no_log() {
    let (_directory, image) = image();
    let target = Target::start(&[Disk::file("disk", &image)]);
    let driver = Driver::connect(&target.path("disk"), &Setup::new(1, 64));
    assert_eq!(driver.features & F_LOG_ALL, 0);
    assert!(log_for(&driver).share(&driver.wire).is_err());
}
