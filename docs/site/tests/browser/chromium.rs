//! Chromium, driven through its debugging pipe: a JSON message each way, with a zero byte behind it.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    /// What the page has complained about: exceptions, errors and warnings in its console, what it could not load.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// A browser with an empty page.
    pub fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        // It reads from descriptor 3 and writes to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 < /dev/null > /dev/null", "sh"])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--remote-debugging-pipe", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser =
            Self { child, input, output, calls: 0, session: None, complaints: Vec::new(), _profile: profile };
        let targets = browser.call("Target.getTargets", json!({}));
        let page = targets["targetInfos"].as_array().unwrap().iter().find(|target| target["type"] == "page").unwrap();
        let attached = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attached)["sessionId"].as_str().unwrap().to_owned();
        browser.session = Some(session);
        for domain in ["Page", "Runtime", "Log", "DOM", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method of the DevTools protocol.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            call["sessionId"] = session.as_str().into();
        }
        self.input.write_all(format!("{call}\0").as_bytes()).unwrap();
        loop {
            let mut message = Vec::new();
            self.output.read_until(0, &mut message).unwrap();
            assert_eq!(message.pop(), Some(0), "the browser ended during {method}");
            let mut message: Value = serde_json::from_slice(&message).unwrap();
            if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.hear(&message);
        }
    }

    fn hear(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(params["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] != "log" => self.complaints.push(params.to_string()),
            Some("Log.entryAdded") => self.complaints.push(params["entry"].to_string()),
            _ => {}
        }
    }

    /// The value of an expression, or what it promises.
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].take()
    }

    /// The value of an expression that is a text.
    pub fn text(&mut self, expression: &str) -> String {
        self.value(expression).as_str().unwrap_or_else(|| panic!("{expression} is no text")).to_owned()
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, expression: &str) {
        let promise = format!(
            "new Promise((resolve, reject) => {{ const began = performance.now(); const look = () => \
             ({expression}) ? resolve(true) : performance.now() - began > 60000 ? reject(new Error('not within a minute')) : \
             setTimeout(look, 20); look(); }})"
        );
        self.value(&promise);
    }

    /// Opens a page, and waits until the playground in it has all its numbers.
    pub fn open(&mut self, url: &str) {
        // Another address of the same page would only be another place in it.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.wait("location.href === 'about:blank'");
        self.call("Page.navigate", json!({ "url": url }));
        self.wait("document.readyState === 'complete' && document.getElementById('play')");
        self.settle();
    }

    /// Waits until the numbers are those of the settings.
    pub fn settle(&mut self) {
        // A change asks for a frame before it is busy.
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
        self.wait("document.getElementById('play').getAttribute('aria-busy') === 'false'");
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        for kind in ["rawKeyDown", "keyUp"] {
            let code = match key {
                "Tab" => 9,
                "Enter" => 13,
                "ArrowLeft" => 37,
                "ArrowRight" => 39,
                key => panic!("the code of {key}"),
            };
            let text = if key == "Enter" { "\r" } else { "" };
            let kind = if kind == "rawKeyDown" && key == "Enter" { "keyDown" } else { kind };
            let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// How wide the page is, in CSS pixels, and what else a style sheet may ask.
    pub fn show(&mut self, width: u32, media: &[(&str, &str)]) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features: Vec<_> = media.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// A picture of the whole page, if PLAY_PICTURES names a folder for it.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("PLAY_PICTURES") else { return };
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let data = self.call("Page.captureScreenshot", params);
        let bytes = decoded(data["data"].as_str().unwrap());
        std::fs::write(Path::new(&folder).join(name), bytes).unwrap();
    }
}

/// Base64, as the protocol writes pictures.
fn decoded(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
