//! Enums that are in the C ABI and in texts.

/// An enum whose variants have a number in the C ABI, a name in traces and statistics, and a meaning: their documentation.
macro_rules! numbered {
    ($(#[$doc:meta])* $type:ident { $($(#[doc = $line:literal])+ $variant:ident = $number:literal, $name:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum $type {
            $(
                $(#[doc = $line])+
                #[cfg_attr(feature = "serde", serde(rename = $name))]
                $variant = $number,
            )+
        }

        impl $type {
            /// All of them, in the order in which statistics and lists show them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name in texts: in traces and statistics, or in the parameters of a policy.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it means, in a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($line),+).trim_ascii_start(),)+ }
            }

            /// The name, for C.
            #[must_use]
            pub const fn c_name(self) -> &'static core::ffi::CStr {
                match self {
                    $(Self::$variant => {
                        const NAME: &core::ffi::CStr = match core::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => c"",
                        };
                        NAME
                    })+
                }
            }

            /// The one with this number in the C ABI.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}
