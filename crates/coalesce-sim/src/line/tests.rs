use super::*;
use coalesce_delivery::Ring as _;
use coalesce_policy::Hint;

fn line(policy: &str) -> Line<u32> {
    Line::new(&policy.parse().unwrap()).unwrap()
}

fn run(line: &mut Line<u32>, submissions: &[(Hint, u64)]) -> Vec<Option<Interrupt>> {
    let commands: Vec<_> = submissions
        .iter()
        .map(|&(hint, at)| (line.submit(at, &Submission { hint, ..Submission::default() }), at))
        .collect();
    (0..).zip(commands).map(|(i, (command, at))| line.complete(at, command, Class::Io, None, i)).collect()
}

#[test]
fn a_burst_is_one_interrupt_at_its_deadline() {
    let mut line = line("cint:delta=10us,thr=32,max_hold=100us,in_flight=off");
    let interrupts = run(&mut line, &[(Hint::Plain, 1000), (Hint::Plain, 3000)]);
    assert_eq!(interrupts, [None, None]);
    assert_eq!(line.deadline(), Some(13_000));
    assert_eq!(line.on_deadline(13_000), Some(Interrupt { reason: Reason::Delta, covers: 2 }));
    assert_eq!((line.take(), line.take(), line.take()), (Some(0), Some(1), None));
    assert_eq!((line.completions(), line.interrupts(), line.coalesced()), (2, 1, 1));
    line.finish(13_000);
    assert!(line.verdict().is_clean(), "{:?}", line.verdict());
}

#[test]
fn urgent_overtakes_what_is_not_posted() {
    let mut line = line("cint:delta=10us,ooo=on,in_flight=off");
    let interrupts = run(&mut line, &[(Hint::Plain, 1), (Hint::Urgent, 2)]);
    assert_eq!(interrupts, [None, Some(Interrupt { reason: Reason::Urgent, covers: 1 })]);
    assert_eq!((line.reap(3), line.reap(3), line.held()), (Some(1), None, 1));
}

#[test]
fn what_the_consumer_finds_needs_no_interrupt() {
    let mut line = line("cint:delta=10us,ooo=off,in_flight=off");
    run(&mut line, &[(Hint::Plain, 1), (Hint::Plain, 2)]);
    assert_eq!((line.reap(3), line.reap(4), line.deadline()), (Some(0), Some(1), None));
    assert_eq!((line.consumed(), line.interrupts()), (2, 0));
    line.finish(5);
    assert!(line.verdict().is_clean(), "{:?}", line.verdict());
}

#[test]
fn a_missed_deadline_is_a_late_interrupt() {
    let mut line = line("cint:delta=10us,max_hold=100us,in_flight=off");
    run(&mut line, &[(Hint::Plain, 0)]);
    line.on_deadline(200_000);
    assert_eq!((line.verdict().late, line.verdict().wrong), (1, 0));
}

#[test]
fn an_excused_one_is_not() {
    let mut line = line("cint:delta=10us,max_hold=100us,in_flight=off");
    run(&mut line, &[(Hint::Plain, 0)]);
    line.excuse_held();
    line.on_deadline(200_000);
    assert!(line.verdict().is_clean());
}

#[test]
fn what_is_held_at_the_end_is_lost() {
    let mut line = line("cint:delta=10us,in_flight=off");
    run(&mut line, &[(Hint::Plain, 0)]);
    line.finish(1);
    assert_eq!(line.verdict().wrong, 1);
    assert!(line.verdict().violations[0].what.contains("lost"), "{:?}", line.verdict());
}

/// A clock that goes back by 1 s: the deadline moves with it as soon as the policy is called.
#[test]
fn the_policys_clock_may_jump() {
    let mut line = line("cint:delta=10us,in_flight=off");
    let start = 2_000_000_000;
    run(&mut line, &[(Hint::Plain, start)]);
    line.jump_clock(-1_000_000_000);
    assert_eq!(line.on_deadline(start + 10_000), None);
    let deadline = line.deadline().unwrap();
    assert_eq!(deadline, start + 20_000, "no time has passed for the policy, until it is called");
    assert!(line.on_deadline(deadline).is_some());
}

/// A closed loop of 32 on a device that serves one each 10 us, for a second. `is_told`: the line knows its requesters.
fn closed_loop(is_told: bool) -> Line<u32> {
    let mut line = line("budget");
    line.start_clock(1_000_000_000);
    if is_told {
        line.change_requests(0, 32);
    }
    let submit = |line: &mut Line<u32>, at| line.submit(at, &Submission::default());
    let mut commands: std::collections::VecDeque<_> = (0..32).map(|_| submit(&mut line, 0)).collect();
    for at in (1..=100_000).map(|i| i * 10_000) {
        if let Some(command) = commands.pop_front() {
            line.complete(at, command, Class::Io, None, 0);
        }
        while let Some(deadline) = line.deadline().filter(|&deadline| deadline < at + 10_000) {
            line.on_deadline(deadline.max(at));
        }
        while line.take().is_some() {
            commands.push_back(submit(&mut line, at + 9_999));
        }
    }
    line
}

/// The policy's own account is right about what the device sees. If nobody made a request, holding is not paid for.
#[test]
fn a_budget_is_judged_by_the_requesters_time() {
    let told = closed_loop(true);
    assert_eq!(told.held_by().all(), told.held_time(), "counted while it lasts, and when it ends");
    assert!(told.verdict().is_clean() && told.interrupts() < told.completions() / 2, "{:?}", told.verdict());
    let untold = closed_loop(false);
    let spent = untold.spent();
    assert!(spent.held <= spent.outstanding / 20 + spent.learning, "its own account is in order: {spent:?}");
    let found = &untold.verdict().violations[0].what;
    assert!(found.contains("of 0 ns that requests took, the budget allows"), "{found}");
}

/// A wrong delivery would do these things to the ring.
#[test]
fn the_checker_finds_a_wrong_delivery() {
    type Mistake = fn(&mut Line<u32>);
    let mistakes: [(&str, Mistake, &str); 3] = [
        ("asks the consumer before the policy decides", |line| _ = line.ring.wants_interrupt(), "covers nothing"),
        ("forgets to post", |line| _ = line.ring.take_uncovered(), "2 completions are held; the line has 1"),
        (
            "interrupts although the policy holds",
            |line| _ = line.ring.interrupt(),
            "2 completions are held; the line has 0",
        ),
    ];
    for (mistake, make, found) in mistakes {
        let mut line = line("cint:delta=10us,ooo=off,in_flight=off");
        for at in [0, 1] {
            run(&mut line, &[(Hint::Plain, at)]);
            make(&mut line);
        }
        line.on_deadline(10_001);
        let violations = &line.verdict().violations;
        assert!(violations.iter().any(|violation| violation.what.contains(found)), "{mistake}: {violations:?}");
    }
}

/// virtio: no interrupt from one on until the handler has emptied the ring.
#[test]
fn event_idx_suppresses_until_the_ring_is_empty() {
    let mut line = line("none");
    line.suppress_interrupts();
    let interrupts = run(&mut line, &[(Hint::Plain, 1), (Hint::Plain, 2)]);
    assert_eq!(interrupts, [Some(Interrupt { reason: Reason::Always, covers: 1 }), None]);
    assert_eq!((line.reap(3), line.end_handler()), (Some(0), false));
    assert_eq!((line.reap(4), line.end_handler()), (Some(1), true));
    assert_eq!(run(&mut line, &[(Hint::Plain, 5)]), [Some(Interrupt { reason: Reason::Always, covers: 1 })]);
    assert_eq!((line.completions(), line.interrupts(), line.held()), (3, 2, 0));
    assert!(line.verdict().is_clean(), "{:?}", line.verdict());
}
