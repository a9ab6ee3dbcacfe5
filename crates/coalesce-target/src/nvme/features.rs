//! Features (NVMe 1.4 §5.13, §5.21). Most are only stored. Number of Queues, the write cache, Interrupt Coalescing and
//! Interrupt Vector Configuration act: see [`Effect`].

use super::admin::ADMIN_VECTOR;
use super::spec::{NSID, NSID_ALL, Sqe, Status};
use coalesce_policy::Aggregation;

/// The temperature that the controller reports.
pub const KELVIN: u16 = 300;
/// From here on it would be a warning.
pub const WARNING_KELVIN: u16 = 343;
/// From here on it would be critical.
pub const CRITICAL_KELVIN: u16 = 353;

/// In SMART / Health Information and in Asynchronous Event Configuration: the temperature has reached a threshold.
pub const HOT: u32 = 1 << 1;

/// In Optional Asynchronous Events Supported (OAES) and in Asynchronous Event Configuration: Namespace Attribute Notices.
pub const NAMESPACE_NOTICES: u32 = 1 << 8;

/// Feature identifiers.
pub mod id {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE: u8 = 0x04;
    /// Error Recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const QUEUES: u8 = 0x07;
    /// Interrupt Coalescing.
    pub const COALESCING: u8 = 0x08;
    /// Interrupt Vector Configuration.
    pub const VECTOR: u8 = 0x09;
    /// Write Atomicity Normal.
    pub const ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration.
    pub const EVENTS: u8 = 0x0b;
}

/// What a change of a feature does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing but that it is read back.
    None,
    /// The write cache is on or off.
    WriteCache(bool),
    /// A vector is exempt from coalescing, or not any more.
    Exempt(u16, bool),
    /// How completions are aggregated has changed.
    Aggregate,
    /// The controller's health may have become critical, or the host may want an event for it now.
    Health,
}

/// Temperature thresholds: composite and eight sensors, each over and under.
const SENSORS: usize = 9;

/// The current values.
#[derive(Clone, Debug)]
pub struct Features {
    arbitration: u32,
    power: u32,
    temperatures: [[u16; 2]; SENSORS],
    error_recovery: u32,
    coalescing: u16,
    exempt: Vec<bool>, // by vector
    atomicity: u32,
    events: u32,
    has_asked_for_queues: bool,
}

impl Features {
    /// The values after a reset, with this number of vectors.
    #[must_use]
    pub fn new(vectors: u16) -> Self {
        let mut temperatures = [[u16::MAX, 0]; SENSORS];
        temperatures[0][0] = WARNING_KELVIN;
        Self {
            arbitration: 0,
            power: 0,
            temperatures,
            error_recovery: 0,
            coalescing: 0,
            exempt: (0..vectors).map(|vector| vector == ADMIN_VECTOR).collect(),
            atomicity: 0,
            events: 0,
            has_asked_for_queues: false,
        }
    }

    /// Whether a vector is exempt from coalescing. That of the admin queue always is.
    #[must_use]
    pub fn is_exempt(&self, vector: u16) -> bool {
        self.exempt.get(usize::from(vector)).copied().unwrap_or(true)
    }

    /// Whether the temperature has reached a threshold. There is one sensor, the composite one; the host may set thresholds
    /// for others.
    #[must_use]
    pub const fn is_hot(&self) -> bool {
        let [over, under] = self.temperatures[0];
        KELVIN >= over || KELVIN <= under
    }

    /// Whether the host wants an event when [`is_hot`](Self::is_hot) (Asynchronous Event Configuration).
    #[must_use]
    pub const fn wants_health_event(&self) -> bool {
        self.is_hot() && self.events & HOT != 0
    }

    /// Whether the host wants an event when a namespace changes (Asynchronous Event Configuration).
    #[must_use]
    pub const fn wants_namespace_notices(&self) -> bool {
        self.events & NAMESPACE_NOTICES != 0
    }

    /// Whether the host has set Number of Queues.
    #[must_use]
    pub const fn has_asked_for_queues(&self) -> bool {
        self.has_asked_for_queues
    }

    /// Interrupt Coalescing.
    #[must_use]
    pub const fn aggregation(&self) -> Aggregation {
        let [thr, time] = self.coalescing.to_le_bytes();
        Aggregation { thr, time }
    }

    /// Get Features. `write_cache` and `queues` (in all, of each kind) are not stored here.
    ///
    /// # Errors
    /// There is no such feature, or it has no such value.
    pub fn get(&self, sqe: &Sqe, write_cache: bool, queues: u16) -> Result<u32, Status> {
        let select = sqe.dword::<10>() >> 8 & 0b111;
        if select != 0 {
            return Err(Status::INVALID_FIELD); // only current values
        }
        let dword = sqe.dword::<11>();
        match feature(sqe) {
            id::ARBITRATION => Ok(self.arbitration),
            id::POWER => Ok(self.power),
            id::TEMPERATURE => {
                let (sensor, under) = temperature(dword)?;
                self.temperatures.get(sensor).map(|both| both[under].into()).ok_or(Status::INVALID_FIELD)
            }
            id::ERROR_RECOVERY => has_namespace(sqe).map(|()| self.error_recovery),
            id::WRITE_CACHE => Ok(write_cache.into()),
            id::QUEUES => Ok(number_of_queues(queues)),
            id::COALESCING => Ok(self.coalescing.into()),
            id::VECTOR => {
                let vector = dword as u16;
                let is_exempt = self.exempt.get(usize::from(vector)).ok_or(Status::INVALID_FIELD)?;
                Ok(u32::from(vector) | u32::from(*is_exempt) << 16)
            }
            id::ATOMICITY => Ok(self.atomicity),
            id::EVENTS => Ok(self.events),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Set Features. Returns the result of the command, and what the change does. `queues` as for [`get`](Self::get), or
    /// `None` once an I/O queue exists.
    ///
    /// # Errors
    /// There is no such feature, it has no such value, or it cannot be changed now.
    pub fn set(&mut self, sqe: &Sqe, queues: Option<u16>) -> Result<(u32, Effect), Status> {
        if sqe.dword::<10>() >> 31 != 0 {
            return Err(Status::NOT_SAVEABLE);
        }
        let value = sqe.dword::<11>();
        match feature(sqe) {
            id::ARBITRATION => self.arbitration = value,
            id::POWER if value & 0x1f == 0 => self.power = value, // the only power state
            id::TEMPERATURE => {
                let (sensor, under) = temperature(value)?;
                const ALL: usize = 0xf;
                let sensors = if sensor == ALL { 0..SENSORS } else { sensor..sensor + 1 };
                let thresholds = self.temperatures.get_mut(sensors).ok_or(Status::INVALID_FIELD)?;
                thresholds.iter_mut().for_each(|both| both[under] = value as u16);
                return Ok((0, Effect::Health));
            }
            id::ERROR_RECOVERY => {
                has_namespace(sqe)?;
                if value >> 16 != 0 {
                    return Err(Status::INVALID_FIELD); // errors of deallocated blocks are not offered
                }
                self.error_recovery = value;
            }
            id::WRITE_CACHE => return Ok((0, Effect::WriteCache(value & 1 != 0))),
            id::QUEUES => {
                let queues = queues.ok_or(Status::SEQUENCE)?;
                if value as u16 == u16::MAX || (value >> 16) as u16 == u16::MAX {
                    return Err(Status::INVALID_FIELD);
                }
                self.has_asked_for_queues = true;
                return Ok((number_of_queues(queues), Effect::None));
            }
            id::COALESCING => {
                self.coalescing = value as u16;
                return Ok((0, Effect::Aggregate));
            }
            id::VECTOR => {
                let (vector, is_exempt) = (value as u16, value & 1 << 16 != 0);
                let known = self.exempt.get_mut(usize::from(vector)).ok_or(Status::INVALID_FIELD)?;
                if vector == ADMIN_VECTOR && !is_exempt {
                    return Err(Status::INVALID_FIELD);
                }
                *known = is_exempt;
                return Ok((0, Effect::Exempt(vector, is_exempt)));
            }
            id::ATOMICITY => self.atomicity = value & 1,
            id::EVENTS => {
                self.events = value;
                return Ok((0, Effect::Health));
            }
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok((0, Effect::None))
    }
}

const fn feature(sqe: &Sqe) -> u8 {
    sqe.dword::<10>() as u8
}

/// 0's based, submission queues below completion queues.
fn number_of_queues(queues: u16) -> u32 {
    let queues = u32::from(queues).saturating_sub(1);
    queues | queues << 16
}

/// A sensor, and whether its threshold is below (1) or above (0).
const fn temperature(dword: u32) -> Result<(usize, usize), Status> {
    match dword >> 20 & 0b11 {
        kind @ (0 | 1) => Ok(((dword >> 16 & 0xf) as usize, kind as usize)),
        _ => Err(Status::INVALID_FIELD),
    }
}

const fn has_namespace(sqe: &Sqe) -> Result<(), Status> {
    if matches!(sqe.nsid(), NSID | NSID_ALL) { Ok(()) } else { Err(Status::INVALID_NAMESPACE) }
}
