//! What `coalesce-bench` says without a target; `coalesce-target` has the tests with one.

use std::process::Command;

fn bench(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_coalesce-bench")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn help_teaches_by_examples() {
    let (status, help, stderr) = bench(&["--help"]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    for word in ["--socket <PATH>", "--depth", "--seconds", "--json", "[default: 32]", "EXAMPLES", "Exit status"] {
        assert!(help.contains(word), "{word} is missing: {help}");
    }
    assert_eq!(bench(&["--version"]).1.split(' ').take(2).collect::<Vec<_>>().join(" ").trim_end(), NAME_AND_VERSION);
}

const NAME_AND_VERSION: &str = concat!("coalesce-bench ", env!("CARGO_PKG_VERSION"));

#[test]
fn what_is_wrong_on_the_command_line_is_named() {
    for (arguments, part) in [
        (&[][..], "--socket <PATH>"),
        (&["--json"], "--socket <PATH>"),
        (&["--socket", "s", "--seconds", "long"], "--seconds"),
        (&["--socket", "s", "--depth", "0"], "--depth must be 1 to 340"),
        (&["--socket", "s", "man", "."], "man"),
        (&["completions", "sh"], "bash, elvish"),
        (&["sing"], "'sing'"),
    ] {
        let (status, stdout, stderr) = bench(arguments);
        assert_eq!((status, stdout.as_str()), (Some(2), ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
}

/// From the definition of the command line itself.
#[test]
fn it_writes_its_manual_and_its_completions() {
    let directory = std::env::temp_dir().join(format!("coalesce-bench-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let written = bench(&["man", directory.to_str().unwrap()]);
    let page = std::fs::read_to_string(directory.join("coalesce-bench.1"));
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(written, (Some(0), String::new(), String::new()));
    let page = page.unwrap();
    assert!(page.contains("event\\-idx") && page.contains("How many interrupts does a target send"), "{page}");
    let (status, _, stderr) = bench(&["man", "/nowhere"]);
    assert_eq!(
        (status, stderr.as_str()),
        (Some(1), "coalesce-bench: /nowhere: No such file or directory (os error 2)\n")
    );
    for (shell, syntax) in [("bash", "complete -F"), ("zsh", "#compdef coalesce-bench"), ("fish", "complete -c")] {
        let script = bench(&["completions", shell]).1;
        assert!(script.contains(syntax) && script.contains("event-idx"), "{shell}");
    }
}
