//! The text form, both ways.

use coalesce_policy::{AnyPolicy, Spec};
use proptest::prelude::*;

#[test]
fn reads_and_prints() {
    for (text, printed) in [
        ("none", "none"),
        ("batch", "batch"),
        ("dim", "dim"),
        ("auto", "auto"),
        ("nvme", "nvme"),
        ("nvme:thr=7,time=100us", "nvme"),
        ("nvme:time=25500us,thr=255,vector=off", "nvme:thr=255,time=25500us,vector=off"),
        ("nvme:host=on", "nvme:host=on"),
        ("nvme:vector=off,host=on", "nvme:vector=off,host=on"),
        ("spdk_vhost:delay_base_us=50,iops_threshold=60k", "spdk_vhost"),
        ("spdk_vhost:iops_threshold=1M", "spdk_vhost:iops_threshold=1000000"),
        ("vic:cif_threshold=2,epoch=100ms", "vic:cif_threshold=2,epoch=100ms"),
        ("vic:max_hold=off", "vic:max_hold=off"),
        ("vic:profile=paper", "vic:profile=paper"),
        ("vic:max_skip=65535,max_hold=off,live_clamp=off", "vic:profile=paper"),
        ("vic:profile=paper,margin=200µs", "vic:profile=paper,margin=200us"),
        ("cint:delta=6us,thr=32,ooo=off", "cint:ooo=off"),
        ("cint:profile=p3700,barrier=strict", "cint:profile=p3700,barrier=strict"),
        ("cint:storm=100k,max_hold=500ms", "cint:max_hold=500ms,storm=100000"),
        ("cint:hints=flush+ioprio+fua", "cint"),
        ("cint:hints=all,in_flight=8", "cint:in_flight=8,hints=all"),
        ("cint:bits=cdw13:8,hints=all", "cint:hints=all,bits=cdw13:8"),
        ("auto:bits=cdw12:16", "auto"),
        ("cint:hints=none,delta=0", "cint:delta=0s,hints=none"),
        ("auto:budget=5%", "auto"),
        ("auto:budget=5.00%,thr=256", "auto"),
        ("auto:budget=0.5%,max_hold=200us", "auto:budget=0.5%,max_hold=200us"),
        ("auto:budget=0.05%,barrier=strict", "auto:budget=0.05%,barrier=strict"),
        ("auto:budget=12.25%,hints=none", "auto:budget=12.25%,hints=none"),
        ("auto:storm=100k,ooo=on", "auto:ooo=on,storm=100000"),
        ("budget:budget=50%,hints=flush", "budget:budget=50%,hints=flush"),
    ] {
        let spec: Spec = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(spec.to_string(), printed, "{text}");
        assert_eq!(printed.parse::<Spec>().as_ref(), Ok(&spec), "{text}");
    }
}

#[test]
fn says_what_is_wrong_and_what_is_allowed() {
    for (text, message) in [
        ("", "unknown policy \"\"; allowed: auto, budget, cint, vic, none, nvme, batch, dim, spdk_vhost"),
        ("vix", "unknown policy \"vix\"; allowed: auto, budget, cint, vic, none, nvme, batch, dim, spdk_vhost"),
        ("batch:", "batch: \"\" is not key=value"),
        ("auto:", "auto: \"\" is not key=value"),
        ("none:x=1", "none: unknown key \"x\"; it has no keys"),
        (
            "vic:thr=3",
            "vic: unknown key \"thr\"; allowed: profile, cif_threshold, iops_threshold, epoch, max_skip, max_hold, live_clamp, margin",
        ),
        ("vic:epoch", "vic: \"epoch\" is not key=value"),
        ("vic:epoch=1s,", "vic: \"\" is not key=value"),
        ("vic:epoch=1s,epoch=2s", "vic: epoch is given twice"),
        ("vic:epoch=100", "vic: epoch=100 has no unit; write 100ms"),
        ("vic:epoch=5", "vic: epoch=5 has no unit; write 5ms or 5s"),
        ("vic:epoch=99999", "vic: epoch=99999 has no unit; write 99999us"),
        ("nvme:time=100", "nvme: time=100 has no unit; write 100us"),
        ("nvme:time=150", "nvme: time=150 has no unit; allowed: 0 to 25500us in steps of 100us"),
        ("cint:delta=6 us", "cint: delta=6 us has a space; write 6us"),
        ("vic:epoch= 6us", "vic: epoch= 6us has a space; allowed: 1ms to 60s"),
        ("auto:budget=5 %", "auto: budget=5 % has a space; write 5%"),
        ("nvme:thr=1 000", "nvme: thr=1 000 has a space; allowed: 0 to 255"),
        ("vic:epoch=100h", "vic: epoch=100h has an unknown unit; allowed: ns, us, ms, s"),
        ("vic:epoch=fast", "vic: epoch=fast is not a number; allowed: 1ms to 60s"),
        ("vic:epoch=-1s", "vic: epoch=-1s is not a number; allowed: 1ms to 60s"),
        ("vic:epoch=999us", "vic: epoch=999us is out of range; allowed: 1ms to 60s"),
        ("vic:epoch=99999999999999999999s", "vic: epoch=99999999999999999999s is out of range; allowed: 1ms to 60s"),
        ("vic:cif_threshold=1", "vic: cif_threshold=1 is out of range; allowed: 2 to 65535"),
        ("vic:cif_threshold=4us", "vic: cif_threshold=4us is not a number; allowed: 2 to 65535"),
        ("vic:live_clamp=yes", "vic: live_clamp=yes is unknown; allowed: on, off"),
        ("vic:max_hold=0", "vic: max_hold=0 is out of range; allowed: 1ns to 1s, or off"),
        ("vic:profile=vmware", "vic: profile=vmware is unknown; allowed: default, paper"),
        (
            "vic:epoch=1s,profile=paper",
            "vic: profile=paper comes too late; it must be the first key, as it sets all others",
        ),
        ("nvme:time=150us", "nvme: time=150us is not a multiple of 100us; allowed: 0 to 25500us in steps of 100us"),
        ("nvme:host=on,time=200us", "nvme: time=200us is not for host=on: the host decides about it"),
        ("nvme:thr=0,host=on", "nvme: thr=0 is not for host=on: the host decides about it"),
        ("nvme:host=on,thr=7", "nvme: thr=7 is not for host=on: the host decides about it"),
        ("vic:epoch=1.5ms", "vic: epoch=1.5ms is not a whole number; allowed: 1ms to 60s"),
        ("budget:max_hold=2s", "budget: max_hold=2s is out of range; allowed: 1ns to 500ms"),
        ("nvme:thr=256", "nvme: thr=256 is out of range; allowed: 0 to 255"),
        (
            "spdk_vhost:delay_base_us=60000001",
            "spdk_vhost: delay_base_us=60000001 is out of range; allowed: 0 to 60000000",
        ),
        (
            "spdk_vhost:delay_base_us=4294967295",
            "spdk_vhost: delay_base_us=4294967295 is out of range; allowed: 0 to 60000000",
        ),
        (
            "cint:hints=flush+fsync",
            "cint: hints=flush+fsync has an unknown word \"fsync\"; allowed: flush, fua, ioprio, batch, single, idle joined by +, or all, or none",
        ),
        ("cint:storm=9k", "cint: max_hold=100us is out of range with storm=9000; allowed: 111112ns to 500ms"),
        (
            "auto:profile=optane",
            "auto: unknown key \"profile\"; allowed: budget, max_hold, thr, ooo, barrier, storm, storm_shift, hints, bits",
        ),
        (
            "cint:bits=cdw12:31",
            "cint: bits=cdw12:31 is unknown; allowed: cdw12:16 to cdw12:24, cdw13:0 to cdw13:30, none",
        ),
        (
            "auto:bits=cdw12:15",
            "auto: bits=cdw12:15 is in the number of blocks, bits 15:0 of Command Dword 12; allowed: cdw12:16 to cdw12:24, cdw13:0 to cdw13:30, none",
        ),
        (
            "cint:bits=cdw12:25",
            "cint: bits=cdw12:25 is in Protection Information, Force Unit Access or Limited Retry, bits 31:26 of Command Dword 12; allowed: cdw12:16 to cdw12:24, cdw13:0 to cdw13:30, none",
        ),
        (
            "auto:hints=flush,fua+idle,thr=3",
            "auto: hints=fua+idle comes after a comma; allowed: flush, fua, ioprio, batch, single, idle joined by +, or all, or none",
        ),
        ("auto:hints=flush,thr", "auto: \"thr\" is not key=value"),
        ("auto:thr=3,fua", "auto: \"fua\" is not key=value"),
        ("auto:budget=5", "auto: budget=5 has no unit; write 5%"),
        ("auto:budget=0", "auto: budget=0 has no unit; allowed: 0.01% to 50%"),
        ("auto:budget=0%", "auto: budget=0% is out of range; allowed: 0.01% to 50%"),
        ("auto:budget=50.01%", "auto: budget=50.01% is out of range; allowed: 0.01% to 50%"),
        ("auto:budget=.5%", "auto: budget=.5% is not a number; allowed: 0.01% to 50%"),
        ("auto:budget=5.125%", "auto: budget=5.125% has more than two decimals; allowed: 0.01% to 50%"),
        ("auto:budget=5.%", "auto: budget=5.% is not a number; allowed: 0.01% to 50%"),
        (
            "auto:budget=99999999999999999999%",
            "auto: budget=99999999999999999999% is out of range; allowed: 0.01% to 50%",
        ),
        ("auto:max_hold=600ms", "auto: max_hold=600ms is out of range for this clock; allowed: 1ns to 500ms"),
    ] {
        let error = text.parse::<Spec>().expect_err(text);
        assert_eq!(error.to_string(), message, "{text}");
    }
}

/// A clock too slow for a parameter that is right in itself.
#[test]
fn a_clock_can_be_too_slow() {
    let spec: Spec = "cint:storm=100k".parse().unwrap();
    let error = spec.explain(AnyPolicy::new(spec.clone(), 32_768).unwrap_err());
    assert_eq!(error.to_string(), "cint: storm=100000 is out of range for this clock; allowed: 1 to 6553");
}

/// A text is judged by the clock that it is for, not by that of nanoseconds.
#[test]
fn a_slow_clock_has_bounds_of_its_own() {
    for text in ["cint:max_hold=1s", "cint:storm=1,max_hold=off", "auto", "auto:max_hold=1s"] {
        let spec = Spec::parse(text, 1_000_000).unwrap_or_else(|error| panic!("{text} at 1 MHz: {error}"));
        assert!(AnyPolicy::new(spec, 1_000_000).is_ok(), "{text}");
    }
    let error = Spec::parse("cint:max_hold=1s", 1_000_000_000).unwrap_err();
    assert_eq!(error.to_string(), "cint: max_hold=1s is out of range for this clock; allowed: 1ns to 500ms");
    let error = Spec::parse("none", 999).unwrap_err();
    assert_eq!(error.to_string(), "none: tick_hz is 999; allowed: 1000 to 10000000000");
    for tick_hz in [1_000, 32_768, 1_000_000, 9_999_999, 10_000_000_000] {
        assert!(Spec::parse("auto", tick_hz).is_ok(), "auto at {tick_hz} Hz");
    }
}

/// What `coalesce-target policies` prints is what it accepts: its clock counts nanoseconds.
#[test]
fn printed_ranges_are_those_of_a_clock_in_nanoseconds() {
    let mut tried = 0;
    for policy in Spec::policies() {
        for key in policy.keys {
            let allowed = key.allowed.trim_end_matches(", or off").trim_end_matches(" in steps of 100us");
            let Some((min, max)) = allowed.split_once(" to ").filter(|_| !allowed.contains(',')) else { continue };
            // The storm guard's interval may not exceed max_hold.
            let room = if key.name == "storm" { "max_hold=500ms," } else { "" };
            for value in [min, max] {
                let text = format!("{}:{room}{}={value}", policy.name, key.name);
                Spec::parse(&text, 1_000_000_000).unwrap_or_else(|error| panic!("{error}"));
                tried += 1;
            }
        }
    }
    assert!(tried > 40, "{tried}");
}

#[test]
fn every_key_explains_itself_and_its_default_is_allowed() {
    for policy in Spec::policies() {
        let spec: Spec = policy.name.parse().unwrap();
        assert_eq!(spec.name(), policy.name);
        for key in policy.keys {
            assert!(!key.about.is_empty() && !key.allowed.is_empty(), "{}.{}", policy.name, key.name);
            let text = format!("{}:{}={}", policy.name, key.name, key.default);
            assert_eq!(text.parse().as_ref(), Ok(&spec), "{text}");
        }
    }
}

proptest! {
    /// Anything that is read is printed so that it is read as the same.
    #[test]
    fn round_trip(text in "(vic|cint|auto|nvme):((epoch|max_hold|delta|margin|time)=[0-9]{1,4}(ns|us|ms)|budget=[0-9]{1,2}(\\.[0-9]{1,2})?%|(thr|cif_threshold|in_flight|max_skip)=[0-9]{1,4}|(ooo|live_clamp|vector)=(on|off)|hints=(none|batch|idle\\+single))") {
        if let Ok(spec) = text.parse::<Spec>() {
            prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
        }
    }

    /// Whatever is written, it is read or refused with a message of one line.
    #[test]
    fn no_text_breaks_it(text in "\\PC{0,40}") {
        if let Err(error) = text.parse::<Spec>() {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
