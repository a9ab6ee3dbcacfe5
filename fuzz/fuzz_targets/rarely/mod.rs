//! What a structure has in it when it is not as usual.

use arbitrary::Arbitrary;

/// Something that happens now and then.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Rarely<T> {
    dice: u8,
    what: T,
}

impl<T: Copy> Rarely<T> {
    pub fn get(&self) -> Option<T> {
        (self.dice & 7 == 7).then_some(self.what)
    }
}
