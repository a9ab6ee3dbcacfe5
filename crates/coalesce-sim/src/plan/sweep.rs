//! One plan with a sweep is many plans without.

use super::{Plan, Wrong};
use std::collections::BTreeMap;
use toml::Value;

/// Simulations of one plan, at most: each point of the sweep under each policy.
pub const SIMULATIONS_MAX: usize = 10_000;
/// The longest text form of a policy, in bytes, with the sweep's values in it.
const POLICY_BYTES_MAX: usize = 1024;

/// A value that a sweep set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The sweep's key.
    pub key: String,
    /// The value, as text.
    pub value: String,
}

/// One combination of a sweep's values.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What was set.
    pub settings: Vec<Setting>,
    /// A plan without a sweep.
    pub plan: Plan,
}

impl Plan {
    /// Every combination of the sweep's values, the last key varying fastest; all of them are checked.
    ///
    /// # Errors
    /// The first value that is not allowed.
    pub fn points(&self) -> Result<Vec<Point>, Wrong> {
        self.check_placeholders()?;
        self.check_size()?;
        let mut points = vec![Point { settings: Vec::new(), plan: Self { sweep: BTreeMap::new(), ..self.clone() } }];
        for (key, values) in &self.sweep {
            let mut next = Vec::with_capacity(points.len() * values.len());
            for point in &points {
                for (i, value) in values.iter().enumerate() {
                    let wrong = |message: String| Wrong::at(["sweep", key, &i.to_string()], message);
                    let plan = point.plan.with(key, value).map_err(wrong)?;
                    let mut settings = point.settings.clone();
                    settings.push(Setting { key: key.clone(), value: text(value) });
                    next.push(Point { settings, plan });
                }
            }
            points = next;
        }
        for point in &points {
            point.plan.validate().map_err(|wrong| self.blame(wrong, point))?;
        }
        Ok(points)
    }

    fn with(&self, key: &str, value: &Value) -> Result<Self, String> {
        if !key.contains('.') && !self.is_own_key(key) {
            let placeholder = format!("{{{key}}}");
            let replace = |policy: &String| {
                let policy = policy.replace(&placeholder, &text(value));
                check_policy(&policy).map(|()| policy)
            };
            return Ok(Self { policies: self.policies.iter().map(replace).collect::<Result<_, _>>()?, ..self.clone() });
        }
        // TOML's integers have a sign: a seed may not fit.
        let mut tree = Value::try_from(Self { seed: 0, ..self.clone() }).map_err(|error| error.to_string())?;
        let path: Vec<&str> = key.split('.').collect();
        set(&mut tree, &path, value)?;
        let plan: Self = tree.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
        let plan = Self { directory: self.directory.clone(), ..plan };
        Ok(if key == "seed" { plan } else { Self { seed: self.seed, ..plan } })
    }

    fn is_own_key(&self, key: &str) -> bool {
        matches!(key, "duration" | "warmup" | "seed")
            && !self.policies.iter().any(|text| text.contains(&format!("{{{key}}}")))
    }

    fn check_placeholders(&self) -> Result<(), Wrong> {
        for key in self.sweep.keys() {
            let placeholder = format!("{{{key}}}");
            if !key.contains('.')
                && !self.is_own_key(key)
                && !self.policies.iter().any(|text| text.contains(&placeholder))
            {
                let message =
                    format!("is neither the path of a value (\"threads.0.depth\") nor \"{placeholder}\" in a policy");
                return Err(Wrong::at(["sweep", key], message));
            }
        }
        Ok(())
    }

    /// Before anything is built.
    fn check_size(&self) -> Result<(), Wrong> {
        for (i, policy) in self.policies.iter().enumerate() {
            check_policy(policy).map_err(|message| Wrong::at(["policies", &i.to_string()], message))?;
        }
        let mut simulations = Some(self.policies.len());
        for (key, values) in &self.sweep {
            if values.is_empty() {
                return Err(Wrong::at(["sweep", key], "has no values"));
            }
            simulations = simulations.and_then(|count| count.checked_mul(values.len()));
        }
        if simulations.is_some_and(|count| count <= SIMULATIONS_MAX) {
            return Ok(());
        }
        let factors = self.sweep.values().map(Vec::len).chain([self.policies.len()]);
        let factors = factors.map(|factor| factor.to_string()).collect::<Vec<_>>().join(" x ");
        let place = if self.sweep.is_empty() { "policies" } else { "sweep" };
        Err(Wrong::at([place], format!("asks for {factors} simulations; allowed: at most {SIMULATIONS_MAX}")))
    }

    /// A point is wrong: the plan says so by itself, or a value that the sweep set does.
    fn blame(&self, wrong: Wrong, point: &Point) -> Wrong {
        let is_open = |text: &String| self.sweep.keys().any(|key| text.contains(&format!("{{{key}}}")));
        let policies = self.policies.iter().map(|text| if is_open(text) { "none".into() } else { text.clone() });
        let without_sweep = Self { policies: policies.collect(), sweep: BTreeMap::new(), ..self.clone() };
        if point.settings.is_empty() || without_sweep.validate().is_err_and(|other| other == wrong) {
            return wrong;
        }
        let set = point.settings.iter().map(|setting| format!("{} = {}", setting.key, setting.value));
        let message = format!("{wrong} (with {})", set.collect::<Vec<_>>().join(", "));
        let is_meant = |key: &&String| match wrong.path.as_slice() {
            [policies, index] if policies == "policies" => {
                let text = index.parse().ok().and_then(|i: usize| self.policies.get(i));
                text.is_some_and(|text| text.contains(&format!("{{{key}}}")))
            }
            path => key.rsplit('.').next() == path.last().map(String::as_str),
        };
        let key = self.sweep.keys().find(is_meant).or_else(|| self.sweep.keys().next_back());
        Wrong::at(["sweep"].into_iter().chain(key.map(String::as_str)), message)
    }
}

fn check_policy(text: &str) -> Result<(), String> {
    if text.len() <= POLICY_BYTES_MAX {
        return Ok(());
    }
    Err(format!("a policy of {} bytes; allowed: at most {POLICY_BYTES_MAX}", text.len()))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Sets the value at `path`. An element of an array is found by its index or its name.
fn set(tree: &mut Value, path: &[&str], value: &Value) -> Result<(), String> {
    let [key, rest @ ..] = path else {
        *tree = value.clone();
        return Ok(());
    };
    match tree {
        Value::Table(table) if rest.is_empty() => {
            table.insert((*key).to_owned(), value.clone());
            Ok(())
        }
        Value::Table(table) => {
            let known = table.keys().cloned().collect::<Vec<_>>().join(", ");
            let next = table.get_mut(*key).ok_or_else(|| format!("there is no \"{key}\" here, but {known}"))?;
            set(next, rest, value)
        }
        Value::Array(array) => {
            let by_name = array.iter().position(|item| item.get("name").and_then(Value::as_str) == Some(key));
            let len = array.len();
            let item = by_name.or_else(|| key.parse().ok()).and_then(|i: usize| array.get_mut(i));
            set(item.ok_or_else(|| format!("there is no \"{key}\" among the {len} here"))?, rest, value)
        }
        _ => Err(format!("there is nothing below a value: \"{key}\"")),
    }
}
