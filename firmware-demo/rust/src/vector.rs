//! Interrupt vectors: a line to the host, or any output pin.

use crate::board::board_pend;
use core::convert::Infallible;
use embedded_hal::digital::{ErrorType, OutputPin};

/// Interrupts the host.
pub trait Vector {
    /// Raises the interrupt once, by an edge.
    fn raise(&mut self);
}

impl<P: OutputPin<Error = Infallible>> Vector for P {
    fn raise(&mut self) {
        let Ok(()) = self.set_high();
        let Ok(()) = self.set_low();
    }
}

/// A line of this board: the rising edge pends the host's interrupt.
pub struct Line(pub u32);

impl ErrorType for Line {
    type Error = Infallible;
}

impl OutputPin for Line {
    fn set_high(&mut self) -> Result<(), Infallible> {
        board_pend(self.0);
        Ok(())
    }

    fn set_low(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
