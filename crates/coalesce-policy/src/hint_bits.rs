//! Where an NVMe command carries its hint.

use coalesce_decision::{BothBits, Hint};
use core::fmt;

/// Two neighbouring bits of an NVMe read or write that carry its hint: the lower one is Urgent, the upper one is Barrier,
/// both together are Urgent. The default, `cdw12:16`, is our choice of the reserved bits that cinterrupts §4.2.1 asks
/// for.
///
/// NVM Command Set 1.0, and NVMe 1.0 to 1.4, reserve bits 19:16 of Command Dword 12. Later versions give them to CETYPE,
/// which a host sets for a controller with Key Per I/O: such a host and its device agree on other bits. The text form is
/// `cdw12:SHIFT` or `cdw13:SHIFT`, or `none`. Bits 15:0 of Command Dword 12 are the number of blocks, and bits 31:26 are
/// Protection Information, Force Unit Access and Limited Retry: they cannot be hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HintBits(Option<(Dword, u8)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
enum Dword {
    Cdw12,
    Cdw13,
}

/// The highest place of the lower bit.
const SHIFT_MAX: u8 = 30;
/// Command Dword 12: the first bit behind the number of blocks.
const BLOCKS_END: u8 = 16;
/// Command Dword 12: the first bit of Protection Information, Force Unit Access and Limited Retry.
const FLAGS: u8 = 26;

impl HintBits {
    /// Bits 17:16 of Command Dword 12.
    pub const DEFAULT: Self = Self(Some((Dword::Cdw12, 16)));
    /// The text forms.
    #[cfg(feature = "text")]
    pub(crate) const ALLOWED: &str = "cdw12:16 to cdw12:24, cdw13:0 to cdw13:30, none";

    /// Reads the text form.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const UNKNOWN: &str = "is unknown";
        if text == "none" {
            return Ok(Self(None));
        }
        let (dword, shift) = text.split_once(':').ok_or(UNKNOWN)?;
        let dword = match dword {
            "cdw12" => Dword::Cdw12,
            "cdw13" => Dword::Cdw13,
            _ => return Err(UNKNOWN),
        };
        let shift = shift.parse().ok().filter(|shift| *shift <= SHIFT_MAX).ok_or(UNKNOWN)?;
        if dword == Dword::Cdw12 && shift < BLOCKS_END {
            return Err("is in the number of blocks, bits 15:0 of Command Dword 12");
        }
        if dword == Dword::Cdw12 && shift + 1 >= FLAGS {
            return Err(
                "is in Protection Information, Force Unit Access or Limited Retry, bits 31:26 of Command Dword 12",
            );
        }
        Ok(Self(Some((dword, shift))))
    }

    /// The hint of a read or write, by its Command Dwords 12 and 13. Where these bits say nothing, the access latency of NVMe itself is read, bits 5:4 of
    /// Command Dword 13: 11b, low latency, is Urgent.
    #[must_use]
    pub const fn hint(self, [cdw12, cdw13]: [u32; 2]) -> Hint {
        let bits = match self.0 {
            Some((Dword::Cdw12, shift)) => cdw12 >> shift,
            Some((Dword::Cdw13, shift)) => cdw13 >> shift,
            None => 0,
        };
        match Hint::from_bits((bits & 0b11) as u8, BothBits::Urgent) {
            Hint::Plain => Hint::from_access_latency(cdw13),
            said => said,
        }
    }
}

impl fmt::Display for HintBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((Dword::Cdw12, shift)) => write!(f, "cdw12:{shift}"),
            Some((Dword::Cdw13, shift)) => write!(f, "cdw13:{shift}"),
            None => f.write_str("none"),
        }
    }
}

#[cfg(all(test, feature = "text"))]
mod tests {
    use super::{Hint, HintBits, SHIFT_MAX};
    use alloc::format;
    use alloc::string::ToString as _;

    #[test]
    fn the_text_says_which_bits_count() {
        for (text, cdw12, cdw13, hint) in [
            ("cdw12:16", 1 << 16, 0, Hint::Urgent),
            ("cdw12:16", 2 << 16, 0, Hint::Barrier),
            ("cdw12:16", 3 << 16, 0, Hint::Urgent),
            ("cdw12:16", 0xFFFC_FFFF, !(3 << 4), Hint::Plain),
            ("cdw12:24", 2 << 24, 0, Hint::Barrier),
            ("cdw13:8", 3 << 16, 2 << 8, Hint::Barrier),
            ("cdw13:8", 3 << 16, 0, Hint::Plain),
            ("cdw13:8", 0, 3 << 4, Hint::Urgent),
            ("none", !0, !(3 << 4), Hint::Plain),
            ("none", 0, 3 << 4, Hint::Urgent),
        ] {
            let bits = HintBits::parse(text).unwrap();
            assert_eq!((bits.hint([cdw12, cdw13]), bits.to_string().as_str()), (hint, text), "{cdw12:#x} {cdw13:#x}");
        }
        assert_eq!(HintBits::parse("cdw12:16"), Ok(HintBits::DEFAULT));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "cdw12", "cdw12:", "cdw12:31", "cdw12:-1", "cdw14:0", "cdw13:x", "NONE", "cdw12:999"] {
            assert_eq!(HintBits::parse(text), Err("is unknown"), "{text}");
        }
    }

    #[test]
    fn what_has_a_meaning_in_command_dword_12_is_no_place_for_hints() {
        for shift in 0..=SHIFT_MAX {
            assert_eq!(HintBits::parse(&format!("cdw12:{shift}")).is_ok(), (16..=24).contains(&shift), "{shift}");
            assert!(HintBits::parse(&format!("cdw13:{shift}")).is_ok(), "{shift}");
        }
    }
}
