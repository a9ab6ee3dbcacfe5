#!/bin/sh
# A stable rustdoc does what is unstable if it is told that it is not. Only rustdoc is told: cargo would build everything anew for it.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
