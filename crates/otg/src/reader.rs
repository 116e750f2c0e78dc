//! Reads the JSON of the API. Every error has the path of the field in the model, and no field is ignored.
//!
//! Integers may also be strings of digits, because the JSON form of protocol buffers writes 64-bit integers as strings.

use packet::MacAddr;
use serde_json::{Map, Value};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path of the field, such as `flows[0].rate.pps`.
    pub path: String,
    /// The problem, and how to fix it.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(path: &str, what: impl Into<String>) -> Problem {
        Problem { path: path.to_owned(), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.what) } else { write!(f, "{}: {}", self.path, self.what) }
    }
}

/// The result of reading one part of the model.
pub(crate) type Read<T> = Result<T, Problem>;

/// A value and its path.
#[derive(Clone, Debug)]
pub(crate) struct Node<'v> {
    value: &'v Value,
    pub(crate) path: String,
}

impl<'v> Node<'v> {
    pub(crate) fn root(value: &'v Value) -> Node<'v> {
        Node { value, path: String::new() }
    }

    /// A value from outside a request, with a path for messages.
    pub(crate) fn at(value: &'v Value, path: &str) -> Node<'v> {
        Node { value, path: path.to_owned() }
    }

    pub(crate) fn value(&self) -> &'v Value {
        self.value
    }

    pub(crate) fn wrong<T>(&self, what: impl Into<String>) -> Read<T> {
        Err(Problem::new(&self.path, what))
    }

    fn is_not<T>(&self, wanted: &str) -> Read<T> {
        let shown: String = self.value.to_string().chars().take(60).collect();
        self.wrong(format!("{shown} is not {wanted}"))
    }

    pub(crate) fn object(&self) -> Read<Object<'v>> {
        match self.value {
            Value::Object(map) => Ok(Object { map, path: self.path.clone(), known: Vec::new() }),
            _ => self.is_not("an object"),
        }
    }

    pub(crate) fn list(&self) -> Read<Vec<Node<'v>>> {
        let Value::Array(items) = self.value else { return self.is_not("a list") };
        Ok(items.iter().enumerate().map(|(n, value)| Node { value, path: format!("{}[{n}]", self.path) }).collect())
    }

    pub(crate) fn text(&self) -> Read<&'v str> {
        self.value.as_str().map_or_else(|| self.is_not("a string"), Ok)
    }

    /// Reads a name, which is a non-empty string.
    pub(crate) fn name(&self) -> Read<String> {
        let text = self.text()?;
        if text.is_empty() { self.wrong("a name cannot be empty") } else { Ok(text.to_owned()) }
    }

    pub(crate) fn texts(&self) -> Read<Vec<String>> {
        self.list()?.iter().map(|item| item.text().map(str::to_owned)).collect()
    }

    pub(crate) fn boolean(&self) -> Read<bool> {
        self.value.as_bool().map_or_else(|| self.is_not("true or false"), Ok)
    }

    /// Reads a whole number from `least` to `most`.
    pub(crate) fn integer(&self, least: u64, most: u64) -> Read<u64> {
        let number = match self.value {
            Value::Number(number) => number.as_u64().or_else(|| {
                // Some clients write whole numbers as 5.0.
                let float = number.as_f64()?;
                ((0.0..9e15).contains(&float) && float.fract() <= 0.0).then_some(float as u64)
            }),
            Value::String(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if (least..=most).contains(&number) => Ok(number),
            _ => self.is_not(&format!("a whole number from {least} to {most}")),
        }
    }

    /// Reads a number from `least` to `most`.
    pub(crate) fn float(&self, least: f64, most: f64) -> Read<f64> {
        match self.value.as_f64() {
            Some(number) if (least..=most).contains(&number) => Ok(number),
            _ => self.is_not(&format!("a number from {least} to {most}")),
        }
    }

    pub(crate) fn mac(&self) -> Read<MacAddr> {
        let text = self.text()?;
        let digits: Vec<u8> =
            text.split(':').filter(|two| two.len() == 2).filter_map(|two| u8::from_str_radix(two, 16).ok()).collect();
        match digits.try_into() {
            Ok(bytes) if text.len() == 17 => Ok(MacAddr(bytes)),
            _ => self.is_not("a MAC address as 00:11:22:33:44:55"),
        }
    }

    pub(crate) fn ipv4(&self) -> Read<Ipv4Addr> {
        self.text()?.parse().or_else(|_| self.is_not("an IPv4 address"))
    }

    pub(crate) fn ipv6(&self) -> Read<Ipv6Addr> {
        let text = self.text()?;
        // The model's own default is `::0`.
        text.parse().or_else(|_| self.is_not("an IPv6 address"))
    }

    /// Reads bytes in hexadecimal, with two digits each.
    pub(crate) fn hex(&self) -> Read<Vec<u8>> {
        let text = self.text()?;
        let text = text.strip_prefix("0x").unwrap_or(text);
        let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        match digits {
            Some(digits) if digits.len() % 2 == 0 => Ok(digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect()),
            _ => self.is_not("an even number of hexadecimal digits"),
        }
    }

    /// Reads a hexadecimal number.
    pub(crate) fn hex_number(&self) -> Read<u128> {
        let text = self.text()?;
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let number = u128::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
        number.map_or_else(|| self.is_not("a number of up to 128 bits in hexadecimal digits"), Ok)
    }

    /// Reads one of these words.
    pub(crate) fn word(&self, words: &[&'static str]) -> Read<&'static str> {
        let text = self.text()?;
        let found = words.iter().copied().find(|word| *word == text);
        found.map_or_else(|| self.wrong(format!("'{text}' is not served: netlathe serves {}", words.join(", "))), Ok)
    }
}

/// An object whose fields are read one by one. Fields that are never read are rejected.
#[derive(Debug)]
pub(crate) struct Object<'v> {
    map: &'v Map<String, Value>,
    pub(crate) path: String,
    known: Vec<&'static str>,
}

impl<'v> Object<'v> {
    /// The path of a field.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// A field, if it is present and not null.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<Node<'v>> {
        self.known.push(key);
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        Some(Node { value, path: self.path_of(key) })
    }

    /// A field that must be present.
    pub(crate) fn required(&mut self, key: &'static str) -> Read<Node<'v>> {
        self.get(key).ok_or_else(|| Problem::new(&self.path_of(key), "this field is required"))
    }

    /// The field of a [choice](Object::choice), which must be present. If there is an unsupported field, the error
    /// names that instead, because it explains more.
    pub(crate) fn chosen(&mut self, choice: &'static str) -> Read<Node<'v>> {
        match self.get(choice) {
            Some(node) => Ok(node),
            None => self.finish_ref().and_then(|()| self.required(choice)),
        }
    }

    /// The items of an optional list.
    pub(crate) fn items(&mut self, key: &'static str) -> Read<Vec<Node<'v>>> {
        self.get(key).map_or(Ok(Vec::new()), |node| node.list())
    }

    /// A field that may have only this value, because netlathe supports no other.
    pub(crate) fn only(&mut self, key: &'static str, value: &Value, why: &str) -> Read<()> {
        match self.get(key) {
            Some(node) if node.value != value => node.wrong(format!("only {value} is served: {why}")),
            _ => Ok(()),
        }
    }

    /// The choice of the object. `choice` may be omitted if exactly one of the fields is present.
    pub(crate) fn choice(&mut self, words: &[&'static str], default: Option<&'static str>) -> Read<&'static str> {
        let given = self.get("choice");
        let there: Vec<&'static str> =
            words.iter().copied().filter(|word| self.map.get(*word).is_some_and(|value| !value.is_null())).collect();
        let chosen = match (&given, there.as_slice(), default) {
            (Some(node), _, _) => node.word(words)?,
            (None, [one], _) => one,
            (None, [], Some(default)) => default,
            // An unsupported field explains more than a missing choice.
            (None, [], None) => {
                self.finish_ref()?;
                return Err(Problem::new(
                    &self.path_of("choice"),
                    format!("this field is required: one of {}", words.join(", ")),
                ));
            }
            (None, _, _) => {
                return Err(Problem::new(
                    &self.path_of("choice"),
                    format!("{} exclude each other", there.join(" and ")),
                ));
            }
        };
        if let Some(other) = there.iter().find(|other| **other != chosen) {
            return Err(Problem::new(&self.path_of(other), format!("the choice is {chosen}")));
        }
        Ok(chosen)
    }

    fn finish_ref(&self) -> Read<()> {
        match self.map.keys().find(|key| !self.known.contains(&key.as_str())) {
            Some(key) => Err(Problem::new(&self.path_of(key), "netlathe does not serve this field")),
            None => Ok(()),
        }
    }

    /// Rejects every field that was not read.
    pub(crate) fn finish(self) -> Read<()> {
        self.finish_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_fields_are_refused_by_their_path() {
        let value = json!({ "flows": [{ "name": "a", "nmae": 1 }] });
        let mut root = Node::root(&value).object().expect("an object");
        let flows = root.items("flows").expect("a list");
        let mut flow = flows[0].object().expect("an object");
        assert_eq!(flow.required("name").and_then(|name| name.name()), Ok("a".to_owned()));
        assert_eq!(flow.finish().map_err(|problem| problem.path), Err("flows[0].nmae".to_owned()));
        root.finish().expect("all was read");
    }

    #[test]
    fn integers_may_be_strings_and_whole_floats() {
        for (value, read) in [
            (json!(5), Some(5)),
            (json!("5"), Some(5)),
            (json!(5.0), Some(5)),
            (json!(5.5), None),
            (json!(-1), None),
            (json!("x"), None),
            (json!(11), None),
            (json!(null), None),
        ] {
            assert_eq!(Node::root(&value).integer(0, 10).ok(), read, "{value}");
        }
    }

    #[test]
    fn choice_is_explicit_or_follows_from_the_field() {
        let choose = |value: Value| {
            let node = Node::root(&value);
            node.object().and_then(|mut object| object.choice(&["pps", "bps"], Some("pps")))
        };
        assert_eq!(choose(json!({})), Ok("pps"));
        assert_eq!(choose(json!({ "bps": 1 })), Ok("bps"));
        assert_eq!(choose(json!({ "choice": "bps" })), Ok("bps"));
        assert!(choose(json!({ "bps": 1, "pps": 1 })).is_err());
        assert!(choose(json!({ "choice": "pps", "bps": 1 })).is_err());
        assert!(choose(json!({ "choice": "knots" })).is_err());
    }
}
