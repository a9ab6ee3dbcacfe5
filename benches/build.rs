//! Compiles the paper's algorithm in C, -O2 whatever the profile.

fn main() {
    println!("cargo::rerun-if-changed=algorithm2.c");
    cc::Build::new()
        .file("algorithm2.c")
        .std("c99")
        .opt_level(2)
        .debug(false)
        .force_frame_pointer(false) // as a C programmer's -O2 has none
        .warnings_into_errors(true)
        .compile("algorithm2");
}
