//! Parameters of a method, by name: an error says which one it is about.

use anyhow::{Result, anyhow, bail};
use serde::Deserializer;
use serde::de::value::StringDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};

/// What the parameters of a method are.
///
/// # Errors
/// They are no object, or one of them is missing, unknown or wrong.
pub fn parse<T: DeserializeOwned>(params: Value) -> Result<T> {
    let Value::Object(params) = params else { bail!("params must be an object") };
    T::deserialize(Params(params)).map_err(|problem| anyhow!("params: {problem}"))
}

struct Params(Map<String, Value>);

impl<'de> Deserializer<'de> for Params {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Members { rest: self.0.into_iter(), next: None })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Members {
    rest: serde_json::map::IntoIter,
    next: Option<(String, Value)>, // whose name was taken
}

impl<'de> MapAccess<'de> for Members {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.next = self.rest.next();
        let name = |(name, _): &(String, Value)| seed.deserialize(StringDeserializer::new(name.clone()));
        self.next.as_ref().map(name).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (name, value) = self.next.take().ok_or_else(|| Error::custom("a value without a name"))?;
        seed.deserialize(value).map_err(|problem| named(&name, &problem))
    }
}

/// Our own types name their key themselves.
fn named(name: &str, problem: &Error) -> Error {
    let problem = problem.to_string();
    if problem.starts_with(name) { Error::custom(problem) } else { Error::custom(format_args!("{name}: {problem}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DiskConfig;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only errors are looked at")]
    struct About {
        ctrlr: String,
        queue: Option<usize>,
    }

    #[test]
    fn errors_name_the_parameter() {
        for (params, says) in [
            (json!({ "ctrlr": "a", "queue": -1 }), "params: queue: invalid value: integer `-1`"),
            (json!({ "ctrlr": 1 }), "params: ctrlr: invalid type: integer `1`, expected a string"),
            (json!({ "queue": 1 }), "params: missing field `ctrlr`"),
            (json!({ "ctrlr": "a", "x": 1 }), "params: unknown field `x`"),
            (json!(["a", 0]), "params must be an object"),
            (json!(5), "params must be an object"),
        ] {
            let said = parse::<About>(params.clone()).unwrap_err().to_string();
            assert!(said.starts_with(says), "{params}: {said}");
        }
        for (key, value, says) in [
            ("poll", json!("1s"), "params: poll "),
            ("queues", json!("1"), "params: queues: invalid type"),
            ("latency", json!("2ms..1ms"), "params: latency "),
            ("policy", json!("vix"), "params: policy: unknown policy"),
        ] {
            let params = json!({ "socket": "s", "memory": "1M", key: value });
            let said = parse::<DiskConfig>(params.clone()).unwrap_err().to_string();
            assert!(said.starts_with(says), "{params}: {said}");
        }
    }
}
