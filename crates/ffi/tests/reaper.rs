//! A device and a driver over one NVMe completion queue: urgent entries are reaped first, each entry once, and the
//! device never overwrites an unreaped entry.

use coalesce::reaper::*;
use coalesce::status::*;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::null_mut;

const ENTRIES: usize = 70;

/// The device's side: its next entry, its phase, and the head doorbell.
struct Device {
    queue: [coalesce_reaper_entry; ENTRIES],
    tail: usize,
    phase: u32,
    doorbell: usize,
}

impl Device {
    fn post(&mut self, cid: u16) -> bool {
        let next = (self.tail + 1) % ENTRIES;
        if next == self.doorbell {
            return false;
        }
        self.queue[self.tail].dword[3] = u32::from(cid) | self.phase << 16;
        self.phase ^= u32::from(next == 0);
        self.tail = next;
        true
    }
}

struct Driver {
    taken: Vec<u16>,
    urgent_only: bool,
}

fn cid(entry: coalesce_reaper_entry) -> u16 {
    (entry.dword[3] & 0xffff) as u16
}

/// Every fifth command is urgent.
unsafe extern "C" fn take(context: *mut c_void, entry: *const coalesce_reaper_entry) -> bool {
    // SAFETY: the driver below, and an entry of the library's.
    let (driver, cid) = unsafe { (&mut *context.cast::<Driver>(), cid(*entry)) };
    let wanted = !driver.urgent_only || cid.is_multiple_of(5);
    if wanted {
        driver.taken.push(cid);
    }
    wanted
}

#[test]
fn each_entry_is_reaped_once_and_urgent_ones_first() {
    let mut reaper = vec![0; coalesce_reaper_size(ENTRIES as u32) / 8];
    let mut device =
        Device { queue: [coalesce_reaper_entry { dword: [0; 4] }; ENTRIES], tail: 0, phase: 1, doorbell: 0 };
    let mut driver = Driver { taken: Vec::new(), urgent_only: false };
    let mut expected = VecDeque::new(); // posted and not reaped
    let mut next = 0_u16;
    // SAFETY: all of it is ours.
    unsafe {
        assert_eq!(
            coalesce_reaper_init(reaper.as_mut_ptr(), reaper.len() * 8, ENTRIES as u32, null_mut()),
            COALESCE_OK
        );
        for round in 0..2000_usize {
            for _ in 0..round * 7 % 90 {
                if !device.post(next) {
                    break; // full
                }
                expected.push_back(next);
                next = next.wrapping_add(1);
            }
            driver.urgent_only = round % 3 != 0;
            driver.taken.clear();
            let mut doorbell = 0;
            let context = (&raw mut driver).cast();
            let status = coalesce_reaper_reap(
                reaper.as_mut_ptr(),
                device.queue.as_ptr(),
                Some(take),
                context,
                &raw mut doorbell,
            );
            assert_eq!(status, COALESCE_OK);
            let wanted = |cid: &u16| !driver.urgent_only || cid.is_multiple_of(5);
            assert_eq!(driver.taken, expected.iter().copied().filter(wanted).collect::<Vec<_>>(), "round {round}");
            expected.retain(|cid| !wanted(cid));
            if doorbell != COALESCE_NO_DOORBELL {
                device.doorbell = doorbell as usize;
            }
            // The entry at the doorbell is not reaped, so the head is as far as possible.
            if let Some(first) = expected.front() {
                assert_eq!(cid(device.queue[device.doorbell]), *first);
            } else {
                assert_eq!(device.doorbell, device.tail);
            }
        }
    }
    assert!(next > 10_000, "the queue went round: {next}");
}
