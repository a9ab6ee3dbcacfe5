//! A guest writes anything into the registers, the doorbells, the queues and the memory of an NVMe controller, while its
//! queues work: no panic, no access outside guest memory, and after a reset the controller serves as before.
#![no_main]

#[path = "../../crates/coalesce-target/tests/nvme_host/mod.rs"]
mod nvme_host;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nvme_host::{DATA, Host, PAGES, RAM, READ, Sqe};
use std::cell::RefCell;

#[derive(Arbitrary, Debug)]
struct Input {
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Register(u8, u32),
    Configure(u8),
    Doorbell(u8, Number),
    Store(Address, u32),
    Admin(Command),
    Io(Command),
    BusMaster(bool),
    Unmap(Address),
    Enable,
    Reset,
    Wait,
}

/// Any command, mostly one for the namespace that there is.
#[derive(Arbitrary, Debug)]
struct Command {
    opcode: u8,
    flags: Rarely<u8>,
    nsid: Rarely<u32>,
    first: Address,
    second: Address,
    dwords: [Number; 4],
}

#[derive(Arbitrary, Debug)]
enum Rarely<T> {
    No,
    No2,
    No3,
    Yes(T),
}

impl<T> Rarely<T> {
    fn or(self, usual: T) -> T {
        match self {
            Self::Yes(value) => value,
            Self::No | Self::No2 | Self::No3 => usual,
        }
    }
}

/// Two halves, as queue identifiers and sizes are, or anything.
#[derive(Arbitrary, Debug)]
enum Number {
    Small(u8),
    Halves(u8, u8),
    Any(u32),
}

impl From<Number> for u32 {
    fn from(number: Number) -> Self {
        match number {
            Number::Small(value) => value.into(),
            Number::Halves(low, high) => Self::from(low) | Self::from(high) << 16,
            Number::Any(value) => value,
        }
    }
}

#[derive(Arbitrary, Debug)]
struct Address {
    page: u8,
    offset: Rarely<u16>,
}

impl From<Address> for u64 {
    fn from(address: Address) -> Self {
        let Address { page, offset } = address;
        PAGES[usize::from(page) % PAGES.len()].saturating_add(Self::from(offset.or(0) & 4095))
    }
}

impl From<Command> for Sqe {
    fn from(command: Command) -> Self {
        let Command { opcode, flags, nsid, first, second, dwords } = command;
        let sqe = Self::new(opcode).flags(flags.or(0)).dword(1, nsid.or(1)).prps(first.into(), second.into());
        (10..).zip(dwords).fold(sqe, |sqe, (at, number)| sqe.dword(at, number.into()))
    }
}

// A host whose memory is still mapped serves the next input, too.
thread_local!(static HOST: RefCell<Option<Host>> = const { RefCell::new(None) });

fuzz_target!(|input: Input| {
    let mut host = HOST.take().unwrap_or_else(|| Host::new("cint:ooo=on,barrier=strict,in_flight=off"));
    let (mut sq, _) = host.pair(16);
    let mut is_whole = true;
    for step in input.steps.into_iter().take(200) {
        match step {
            Step::Register(at, value) => host.set32(u64::from(at & 0x3f), value),
            Step::Configure(bits) => {
                host.set32(0x14, 0x0046_0000 | u32::from(bits & 1) | u32::from(bits >> 1 & 3) << 14)
            }
            Step::Doorbell(index, value) => host.doorbell(u64::from(index & 7), value.into()),
            Step::Store(address, value) => {
                let address = u64::from(address) & !3;
                if address <= RAM - 4 {
                    host.store(address, value);
                }
            }
            Step::Admin(command) => _ = host.admin_submit(command.into()),
            Step::Io(command) => {
                host.put(&mut sq, command.into());
                host.ring_sq(&sq);
            }
            Step::BusMaster(on) => {
                host.controller.set_bus_master(on);
            }
            Step::Unmap(address) => {
                let start = u64::from(address);
                host.controller.unmap(start..start.saturating_add(4096));
                is_whole = false;
            }
            Step::Enable => host.set32(0x14, 0x0046_0001),
            Step::Reset => {
                host.controller.reset();
            }
            Step::Wait => std::thread::yield_now(),
        }
    }
    host.controller.set_bus_master(true);
    host.controller.reset();
    host.enable();
    let (mut sq, mut cq) = host.pair(8);
    assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(READ).blocks(0, 1).prps(DATA, 0)), 0);
    host.controller.reset();
    if is_whole {
        host.enable();
        HOST.set(Some(host));
    }
});
