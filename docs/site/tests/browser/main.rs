//! The playground in a browser. `scripts/check-play.sh` builds the page and runs this:
//!
//! - `PLAY_PAGE`: the page, a file;
//! - `COALESCE_SIM`: the program whose numbers it must have;
//! - `PLAY_PICTURES`: a folder for screenshots, if they are wanted.

mod chromium;

use chromium::Browser;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

fn file(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).unwrap_or_else(|| panic!("{variable}: run scripts/check-play.sh"));
    Path::new(&path).canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The page with settings, as a file.
fn page(settings: &str) -> String {
    format!("file://{}#{settings}", file("PLAY_PAGE").display())
}

/// What coalesce-sim prints for a plan: a line of JSON for each policy.
fn run(plan: &str, trace: Option<&Path>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, plan).unwrap();
    if let Some(trace) = trace {
        std::fs::copy(trace, folder.path().join(trace.file_name().unwrap())).unwrap();
    }
    let output = Command::new(file("COALESCE_SIM")).arg("run").arg(&path).arg("--json").output().unwrap();
    assert!(output.status.success(), "{plan}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every number of the page is that of coalesce-sim, to the last digit. How many there are.
fn compare(browser: &mut Browser, trace: Option<&Path>) -> u64 {
    let plan = browser.text("document.getElementById('plan').textContent");
    let outcomes = run(&plan, trace).trim_end().replace('\n', ",");
    let different = "cells.filter(({ policy, metric, value }) => { \
             const outcome = outcomes.find((outcome) => outcome.policy === policy); \
             const ours = metric === 'interrupts_per_io' ? outcome.interrupts_per_s / outcome.iops : \
                 metric.split('.').reduce((of, key) => of[key], outcome); \
             return ours === undefined || JSON.parse(value) !== ours; })";
    let cells = "[...document.querySelectorAll('[data-metric]')].map(({ dataset }) => ({ ...dataset }))";
    let result = browser.value(&format!(
        "(() => {{ const outcomes = [{outcomes}]; const cells = {cells}; return [cells.length, {different}]; }})()"
    ));
    assert_eq!(result[1], json!([]), "under\n{plan}");
    result[0].as_u64().unwrap()
}

fn assert_no_complaints(browser: &Browser) {
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

#[test]
#[ignore = "a browser: run scripts/check-play.sh"]
fn numbers_are_those_of_coalesce_sim() {
    let mut browser = Browser::start();
    for settings in [
        "",
        "policy=auto%3Abudget%3D20%25&depth=128&batch=4&seed=7",
        "device=p3700&policy=cint%3Ain_flight%3Doff&think=20000",
        "device=custom&channels=4&service=7000&deviation=100&policy=nvme%3Athr%3D3&interrupt=5000&idle=10000",
        "load=open&rate=300000&policy=vic&event_idx=1",
        "load=onoff&on=100000&off=200000&policy=dim",
        "load=mix&updates=50&scans=20&policy=cint",
        "load=reader&depth=256&batch=16&policy=cint%3Aooo%3Don",
        "policy=none&depth=1",
    ] {
        browser.open(&page(&format!("measured=5000000&{settings}")));
        let compared = compare(&mut browser, None);
        assert!(
            compared == if settings.starts_with("policy=none") { 12 } else { 24 },
            "{settings}: {compared} numbers"
        );
    }
    assert_no_complaints(&browser);
}

#[test]
#[ignore = "a browser: run scripts/check-play.sh"]
fn a_trace_is_replayed_on_the_simulated_device() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/coalesce-sim/tests/traces/nvme.jsonl");
    let trace = trace.canonicalize().unwrap();
    let mut browser = Browser::start();
    browser.open(&page("load=trace&measured=5000000"));
    assert!(browser.text("document.getElementById('problem').textContent").contains("Choose a trace"));
    let root = browser.call("DOM.getDocument", json!({}))["root"]["nodeId"].take();
    let input = browser.call("DOM.querySelector", json!({ "nodeId": root, "selector": "#file" }))["nodeId"].take();
    browser.call("DOM.setFileInputFiles", json!({ "nodeId": input, "files": [trace] }));
    browser.wait("document.getElementById('file-name').textContent.startsWith('nvme.jsonl')");
    browser.settle();
    assert_eq!(compare(&mut browser, Some(&trace)), 24);
    assert_eq!(browser.value("document.getElementById('problem').hidden"), true);
    assert_no_complaints(&browser);
}

/// Drops a file onto the page. `content`: an expression of a `BlobPart`.
fn drop_file(browser: &mut Browser, name: &str, content: &str) {
    let drop = format!(
        "(() => {{ const data = new DataTransfer(); data.items.add(new File([{content}], '{name}')); \
         dispatchEvent(new DragEvent('drop', {{ dataTransfer: data }})); }})()"
    );
    browser.value(&drop);
}

#[test]
#[ignore = "a browser: run scripts/check-play.sh"]
fn a_dropped_trace_has_at_most_64_mib_and_a_format() {
    let mut browser = Browser::start();
    browser.open(&page("measured=5000000"));
    let problem = "document.getElementById('problem').textContent";
    drop_file(&mut browser, "large.trace", "new Uint8Array((64 << 20) + 1)");
    browser.wait(&format!("{problem}.includes('large.trace has 67108865 bytes; allowed: at most 67108864')"));
    drop_file(&mut browser, "zeroes.trace", "new Uint8Array(64 << 20)");
    browser.wait(&format!("{problem}.includes('zeroes.trace: ')"));
    let line = |at: u64, id: u64, event: &str| format!("{{\"time_ns\":{at},\"event\":\"{event}\",\"id\":{id}}}\n");
    let lines: String =
        (0..100).map(|id| line(id * 20_000, id, "submit") + &line(id * 20_000 + 9_000, id, "complete")).collect();
    drop_file(&mut browser, "good.jsonl", &json!(lines).to_string());
    browser.wait(&format!("{problem} === '' && document.getElementById('load').value === 'trace'"));
    browser.settle();
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.jsonl");
    std::fs::write(&good, lines).unwrap();
    assert_eq!(compare(&mut browser, Some(&good)), 24);
    assert_no_complaints(&browser);
}

#[test]
#[ignore = "a browser: run scripts/check-play.sh"]
fn a_slider_changes_the_numbers_and_the_address() {
    let mut browser = Browser::start();
    browser.open(&page("measured=5000000"));
    let numbers = "document.getElementById('numbers').innerText";
    let before = browser.text(numbers);
    browser.value("document.getElementById('depth').focus()");
    browser.press("ArrowRight");
    assert_eq!(browser.text("document.querySelector('output[for=depth]').textContent"), "64");
    browser.settle();
    let after = browser.text(numbers);
    assert_ne!(before, after);
    browser.wait("location.hash.includes('depth=64')");
    let address = browser.text("location.href");
    // A parameter of the policy, too.
    browser.value("document.getElementById('policy-budget').focus()");
    browser.press("ArrowRight");
    browser.settle();
    assert_eq!(browser.text("document.getElementById('policy').value"), "auto:budget=7%");
    assert_ne!(browser.text(numbers), after);
    // A row of the table is a policy to choose.
    browser.value(
        "[...document.querySelectorAll('#points button')].find(({ textContent }) => textContent === 'vic').click()",
    );
    browser.settle();
    assert_eq!(
        browser.text("document.getElementById('policy').value + ' ' + document.getElementById('name').value"),
        "vic vic"
    );
    browser.open(&address);
    assert_eq!(browser.text(numbers), after);
    // Who edits the address stays on the page, also at the moment in which the page writes its own there.
    browser.value(
        "location.hash = 'measured=5000000&depth=8'; history.replaceState(null, '', '#measured=5000000&depth=64')",
    );
    browser.wait("document.querySelector('output[for=depth]').textContent === '8'");
    browser.settle();
    assert_eq!(compare(&mut browser, None), 24);
    // Nonsense in an address is as if it were not there.
    browser.open(&page("measured=5000000&depth=65&device=%3Cb%3E&seed=1e9&load=tape"));
    assert_eq!(browser.text(numbers), before);
    assert_no_complaints(&browser);
}

#[test]
#[ignore = "a browser: run scripts/check-play.sh"]
fn what_is_wrong_is_said_and_the_page_goes_on() {
    let mut browser = Browser::start();
    browser.open(&page("measured=5000000&policy=auto%3Abudget%3D101%25"));
    let said = browser.text("document.getElementById('policy-problem').textContent");
    assert!(said.contains("budget") && said.contains("allowed"), "{said}");
    assert_eq!(browser.text("document.getElementById('policy').getAttribute('aria-invalid')"), "true");
    browser.value(
        "const text = document.getElementById('policy'); text.value = 'nvme'; text.dispatchEvent(new Event('input'))",
    );
    browser.settle();
    assert_eq!(browser.text("document.getElementById('policy-problem').textContent"), "");
    assert_eq!(compare(&mut browser, None), 24);
    // While a long plan runs, what is typed is there at once, and what it asks for is what comes.
    browser.value("document.getElementById('measured').value = 99; document.getElementById('measured').dispatchEvent(new Event('input'))");
    browser.wait("document.getElementById('play').getAttribute('aria-busy') === 'true'");
    // Long enough for the page to lose its patience with the worker, and start another one.
    browser.value("new Promise((done) => setTimeout(done, 700))");
    browser.value("document.getElementById('measured').value = 0; document.getElementById('measured').dispatchEvent(new Event('input'))");
    assert_eq!(browser.text("document.querySelector('output[for=measured]').textContent"), "5 ms");
    browser.settle();
    assert_eq!(compare(&mut browser, None), 24);
    assert_no_complaints(&browser);
}

#[test]
#[ignore = "a browser: run scripts/check-play.sh"]
fn keyboard_and_screen_reader_get_everything() {
    let mut browser = Browser::start();
    browser.show(1280, &[("prefers-reduced-motion", "reduce")]);
    browser.open(&page("measured=5000000"));
    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let mut named = BTreeMap::new();
    for node in tree["nodes"].as_array().unwrap() {
        let (role, name) = (node["role"]["value"].as_str().unwrap_or_default(), node["name"]["value"].as_str());
        if ["slider", "combobox", "checkbox", "button", "textbox", "image", "table"].contains(&role)
            && node["ignored"] == false
        {
            assert!(name.is_some_and(|name| !name.is_empty()), "a {role} without a name: {node}");
            *named.entry(role.to_owned()).or_insert(0) += 1;
        }
    }
    assert!(
        named["slider"] >= 10 && named["combobox"] >= 4 && named["button"] >= 5 && named["image"] >= 2,
        "{named:?}"
    );
    // From the first setting, the key Tab leads to each of them in order, and out of the form to the time line.
    let order = "[...document.querySelectorAll('#play :is(input, select, button)')].filter((e) => e.offsetParent && !e.closest('details')).map(({ id }) => id)";
    let order = browser.value(order);
    browser.value("document.getElementById('device').focus()");
    for id in order.as_array().unwrap().iter().take(20) {
        assert_eq!(&browser.value("document.activeElement.id"), id);
        browser.press("Tab");
    }
    // Nothing moves by itself, and the buttons tell one decision after the other.
    assert_eq!(browser.text("document.getElementById('run').textContent"), "Run");
    let mut told = Vec::new();
    browser.value("document.getElementById('next').focus()");
    for _ in 0..40 {
        browser.press("Enter");
        told.push(browser.text("document.getElementById('decision').textContent"));
    }
    assert!(told.iter().any(|text| text.contains("; held: ")), "{told:?}");
    assert!(told.iter().any(|text| text.starts_with("interrupt at ")), "{told:?}");
    assert!(told.windows(2).all(|pair| pair[0] != pair[1]), "{told:?}");
    let summary = browser.text("document.getElementById('summary').textContent");
    assert!(summary.starts_with("auto: ") && summary.contains(" interrupts for each I/O, "), "{summary}");
    assert_no_complaints(&browser);
}

#[test]
#[ignore = "a browser: run scripts/check-play.sh"]
fn it_fits_a_phone_and_the_dark() {
    let mut browser = Browser::start();
    for (name, width, scheme) in [
        ("wide.png", 1500, "light"),
        ("dark.png", 1500, "dark"),
        ("narrow.png", 400, "light"),
        ("narrow-dark.png", 400, "dark"),
    ] {
        browser.show(width, &[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]);
        browser.open(&page("measured=20000000"));
        let wide = "[...document.querySelectorAll('#play *')].filter((e) => !e.closest('.wide, pre') && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 90))";
        assert_eq!(browser.value(wide), json!([]), "{name}");
        assert_eq!(browser.value("document.documentElement.scrollWidth"), width, "{name}");
        // The time line is drawn in the colours of the page.
        let drawn = "(() => { const c = document.getElementById('line'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const seen = {}; for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 250) { const k = (d[i] + d[i + 1] + d[i + 2]) > 384 ? 'light' : 'dark'; seen[k] = (seen[k] ?? 0) + 1; } return (seen.light ?? 0) > (seen.dark ?? 0) ? 'light' : 'dark' })()";
        assert_eq!(browser.text(drawn), if scheme == "dark" { "light" } else { "dark" }, "the ink of {name}");
        browser.picture(name);
    }
    assert_no_complaints(&browser);
}

/// Serves one file under any path.
fn serve(path: &Path) -> u16 {
    let body = std::fs::read(path).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            let is_page = request[..length].starts_with(b"GET /docs/play.html ");
            let (status, body) = if is_page { ("200 OK", &*body) } else { ("204 No Content", &[][..]) };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    port
}

#[test]
#[ignore = "a browser: run scripts/check-play.sh"]
fn a_server_of_files_is_as_good_as_a_file_and_frames_keep_coming() {
    let path = file("PLAY_PAGE");
    let size = path.metadata().unwrap().len();
    assert!(size < 1_000_000, "the page has {size} bytes; allowed: less than 1 MB");
    let port = serve(&path);
    let mut browser = Browser::start();
    browser.open(&format!("http://127.0.0.1:{port}/docs/play.html#measured=5000000"));
    assert_eq!(compare(&mut browser, None), 24);
    // How long frames take while the time line moves and somebody drags a slider: shown, as the machine decides it.
    let frames = "new Promise((done) => { const slider = document.getElementById('depth'); const times = []; let n = 0; \
         const frame = (now) => { times.push(now); slider.value = n++ % 9; slider.dispatchEvent(new Event('input')); \
         times.length < 180 ? requestAnimationFrame(frame) : done(times) }; requestAnimationFrame(frame) })";
    let times: Vec<f64> = serde_json::from_value(browser.value(frames)).unwrap();
    let mut frames: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    frames.sort_by(f64::total_cmp);
    println!(
        "page: {size} bytes; frames: median {:.1} ms, 95 % {:.1} ms, longest {:.1} ms",
        frames[89], frames[169], frames[178]
    );
    browser.settle();
    assert_eq!(compare(&mut browser, None), 24);
    assert_no_complaints(&browser);
}
