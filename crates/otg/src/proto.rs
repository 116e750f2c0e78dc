//! Converts between the wire format of protocol buffers and the JSON of the API, according to `otg.proto`.
//!
//! Libraries skip unknown fields. Here they are rejected, with the path of their message.

use crate::reader::{Problem, Read};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Our description of the API.
pub(crate) static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::parse(include_str!("otg.proto")));

/// Messages and calls.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    messages: HashMap<&'static str, Vec<Field>>,
    /// Messages of request and response, by the name of the call.
    calls: HashMap<&'static str, (&'static str, &'static str)>,
}

#[derive(Debug)]
struct Field {
    name: &'static str,
    number: u64,
    kind: Kind,
    repeated: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    Bool,
    Whole,
    Signed,
    Float,
    Double,
    Text,
    Bytes,
    Enum(Vec<(&'static str, u64)>),
    Message(&'static str),
}

impl Kind {
    /// The wire type of a single value.
    fn wire(&self) -> u64 {
        match self {
            Kind::Bool | Kind::Whole | Kind::Signed | Kind::Enum(_) => 0,
            Kind::Double => 1,
            Kind::Text | Kind::Bytes | Kind::Message(_) => 2,
            Kind::Float => 5,
        }
    }
}

impl Schema {
    /// Parses the subset of the language that `otg.proto` uses: one statement per line.
    fn parse(text: &'static str) -> Schema {
        let mut schema = Schema::default();
        let mut enums: HashMap<&str, Vec<(&str, u64)>> = HashMap::new();
        let mut current = "";
        for line in text.lines() {
            let words: Vec<&str> = line
                .split(|c: char| c.is_whitespace() || "(){};=".contains(c))
                .filter(|word| !word.is_empty())
                .collect();
            match words[..] {
                ["rpc", call, request, "returns", response]
                | ["rpc", call, "stream", request, "returns", response]
                | ["rpc", call, request, "returns", "stream", response] => {
                    schema.calls.insert(call, (request, response));
                }
                ["message", name] => {
                    current = name;
                    enums.clear();
                    schema.messages.insert(name, Vec::new());
                }
                ["message", name, "enum", "Enum", ref pairs @ ..] => {
                    let value = |pair: &[&'static str]| Some((pair[0], pair.get(1)?.parse().ok()?));
                    enums.insert(name, pairs.chunks(2).filter_map(value).collect());
                }
                [label @ ("optional" | "repeated"), kind, name, number] => {
                    let kind = match kind {
                        "bool" => Kind::Bool,
                        "uint32" | "uint64" => Kind::Whole,
                        "int32" | "int64" => Kind::Signed,
                        "float" => Kind::Float,
                        "double" => Kind::Double,
                        "string" => Kind::Text,
                        "bytes" => Kind::Bytes,
                        other => match other.strip_suffix(".Enum").and_then(|name| enums.get(name)) {
                            Some(values) => Kind::Enum(values.clone()),
                            None => Kind::Message(other),
                        },
                    };
                    let field =
                        Field { name, number: number.parse().unwrap_or(0), kind, repeated: label == "repeated" };
                    schema.messages.entry(current).or_default().push(field);
                }
                _ => {}
            }
        }
        schema
    }

    /// The request and response messages of a call.
    pub(crate) fn call(&self, name: &str) -> Option<(&'static str, &'static str)> {
        self.calls.get(name).copied()
    }

    /// The name of the only field in a message that wraps another one.
    pub(crate) fn wrapped(&self, message: &str) -> Option<&'static str> {
        self.messages.get(message)?.first().map(|field| field.name)
    }

    /// The type of the message inside a message that wraps another one.
    pub(crate) fn content_of(&self, message: &str) -> Option<&'static str> {
        match self.messages.get(message)?.first()?.kind {
            Kind::Message(inner) => Some(inner),
            _ => None,
        }
    }

    /// The file in a message whose first field is one. Other numeric fields have no effect.
    pub(crate) fn decode_file<'b>(&self, message: &str, bytes: &'b [u8]) -> Read<&'b [u8]> {
        let cut = || Problem::new("", format!("the message {message} is cut"));
        let fields = &self.messages[message];
        let (mut file, mut rest): (&[u8], _) = (&[], bytes);
        while !rest.is_empty() {
            let tag = varint(&mut rest).ok_or_else(cut)?;
            match (fields.iter().position(|field| field.number == tag >> 3), tag & 7) {
                (Some(0), 2) => {
                    let length = varint(&mut rest).and_then(|length| usize::try_from(length).ok());
                    (file, rest) = length.and_then(|length| rest.split_at_checked(length)).ok_or_else(cut)?;
                }
                (Some(1..), 0) => drop(varint(&mut rest).ok_or_else(cut)?),
                _ => {
                    let number = tag >> 3;
                    return Err(Problem::new(
                        "",
                        format!("netlathe does not serve field number {number} of {message}"),
                    ));
                }
            }
        }
        Ok(file)
    }

    /// Decodes a message to JSON.
    pub(crate) fn decode(&self, message: &str, bytes: &[u8], path: &str) -> Read<Value> {
        let cut = || Problem::new(path, format!("the message {message} is cut"));
        let mut object = Map::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let tag = varint(&mut rest).ok_or_else(cut)?;
            let number = tag >> 3;
            let Some(field) = self.messages[message].iter().find(|field| field.number == number) else {
                return Err(Problem::new(path, format!("netlathe does not serve field number {number} of {message}")));
            };
            let path = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
            let has = object.get(field.name).and_then(Value::as_array).map_or(0, Vec::len);
            if tag & 7 != field.kind.wire() && !(tag & 7 == 2 && field.repeated) {
                return Err(Problem::new(&path, format!("wire type {} is not that of this field", tag & 7)));
            }
            let values = match tag & 7 {
                0 => vec![self.number(field, varint(&mut rest).ok_or_else(cut)?, &path)?],
                1 => vec![self.number(field, u64::from_le_bytes(take(&mut rest).ok_or_else(cut)?), &path)?],
                5 => vec![self.number(field, u32::from_le_bytes(take(&mut rest).ok_or_else(cut)?).into(), &path)?],
                2 => {
                    let length = varint(&mut rest)
                        .and_then(|length| usize::try_from(length).ok())
                        .filter(|length| *length <= rest.len());
                    let (content, behind) = rest.split_at(length.ok_or_else(cut)?);
                    rest = behind;
                    let path = if field.repeated { format!("{path}[{has}]") } else { path };
                    self.content(field, content, &path)?
                }
                other => return Err(Problem::new(&path, format!("wire type {other} is not served"))),
            };
            if field.repeated {
                let list = object.entry(field.name).or_insert_with(|| json!([]));
                if let Value::Array(list) = list {
                    list.extend(values);
                }
            } else if let Some(value) = values.into_iter().next_back() {
                object.insert(field.name.to_owned(), value);
            }
        }
        Ok(Value::Object(object))
    }

    /// Decodes a field with a length: a string, bytes, a message, or packed numbers.
    fn content(&self, field: &Field, content: &[u8], path: &str) -> Read<Vec<Value>> {
        let wrong = |what: &str| Err(Problem::new(path, what));
        match &field.kind {
            Kind::Text => match std::str::from_utf8(content) {
                Ok(text) => Ok(vec![json!(text)]),
                Err(_) => wrong("the string is not UTF-8"),
            },
            Kind::Bytes => Ok(vec![json!(content)]),
            Kind::Message(message) => Ok(vec![self.decode(message, content, path)?]),
            kind => {
                let (mut rest, mut values) = (content, Vec::new());
                while !rest.is_empty() {
                    let number = match kind {
                        Kind::Float => take(&mut rest).map(|four| u32::from_le_bytes(four).into()),
                        Kind::Double => take(&mut rest).map(u64::from_le_bytes),
                        _ => varint(&mut rest),
                    };
                    let Some(number) = number else { return wrong("the list of numbers is cut") };
                    values.push(self.number(field, number, path)?);
                }
                Ok(values)
            }
        }
    }

    fn number(&self, field: &Field, number: u64, path: &str) -> Read<Value> {
        Ok(match &field.kind {
            Kind::Bool => json!(number != 0),
            Kind::Whole => json!(number),
            Kind::Signed => json!(number.cast_signed()),
            Kind::Float => json!(f32::from_bits(number as u32)),
            Kind::Double => json!(f64::from_bits(number)),
            Kind::Enum(values) => match values.iter().find(|(_, value)| *value == number) {
                Some((name, _)) => json!(name),
                None => {
                    return Err(Problem::new(
                        path,
                        format!("netlathe does not serve number {number} of {}", field.name),
                    ));
                }
            },
            Kind::Text | Kind::Bytes | Kind::Message(_) => {
                return Err(Problem::new(path, "it has the wire type of a number"));
            }
        })
    }

    /// Encodes a message. Fields that the message does not have are omitted.
    pub(crate) fn encode(&self, message: &str, value: &Value, bytes: &mut Vec<u8>) {
        for field in &self.messages[message] {
            let Some(value) = value.get(field.name).filter(|value| !value.is_null()) else { continue };
            match value.as_array().filter(|_| field.repeated) {
                Some(items) => items.iter().for_each(|item| self.encode_field(field, item, bytes)),
                None => self.encode_field(field, value, bytes),
            }
        }
    }

    /// Encodes a message whose first field is a file, with that field only.
    pub(crate) fn encode_file(&self, message: &str, file: &[u8], bytes: &mut Vec<u8>) {
        for field in self.messages[message].iter().take(1) {
            put_varint(field.number << 3 | 2, bytes);
            put_varint(file.len() as u64, bytes);
            bytes.extend(file);
        }
    }

    fn encode_field(&self, field: &Field, value: &Value, bytes: &mut Vec<u8>) {
        let whole = || value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0);
        let mut tagged = |wire: u64, content: &[u8]| {
            put_varint(field.number << 3 | wire, bytes);
            if wire == 2 {
                put_varint(content.len() as u64, bytes);
            }
            bytes.extend(content);
        };
        let mut number = Vec::new();
        match &field.kind {
            Kind::Text => tagged(2, value.as_str().unwrap_or_default().as_bytes()),
            // Files are too long for JSON: see `encode_file`.
            Kind::Bytes => {}
            Kind::Message(message) => {
                let mut content = Vec::new();
                self.encode(message, value, &mut content);
                tagged(2, &content);
            }
            Kind::Float => tagged(5, &(value.as_f64().unwrap_or(0.0) as f32).to_le_bytes()),
            Kind::Double => tagged(1, &value.as_f64().unwrap_or(0.0).to_le_bytes()),
            Kind::Bool => tagged(0, &[u8::from(value == &json!(true))]),
            Kind::Whole => {
                put_varint(whole(), &mut number);
                tagged(0, &number);
            }
            Kind::Signed => {
                put_varint(value.as_i64().unwrap_or(0).cast_unsigned(), &mut number);
                tagged(0, &number);
            }
            Kind::Enum(values) => {
                let named =
                    values.iter().find(|(name, _)| value.as_str() == Some(name)).map_or(0, |(_, number)| *number);
                put_varint(named, &mut number);
                tagged(0, &number);
            }
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..70).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        // The tenth byte has one bit of the number.
        number |= u64::from(first & 0x7f).checked_shl(shift).unwrap_or(0);
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn put_varint(mut number: u64, bytes: &mut Vec<u8>) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take<const COUNT: usize>(bytes: &mut &[u8]) -> Option<[u8; COUNT]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::mixed;

    fn config() -> Value {
        json!({
            "ports": [{ "location": "p1", "name": "tx" }, { "name": "rx" }],
            "flows": [{
                "tx_rx": { "choice": "port", "port": { "tx_name": "tx", "rx_names": ["rx", "tx"] } },
                "packet": [{ "choice": "udp", "udp": { "src_port": { "choice": "values", "values": [1, 300, 65_535] } } }],
                "size": { "choice": "weight_pairs", "weight_pairs": { "choice": "custom", "custom": [{ "size": 64, "weight": 0.5 }] } },
                "rate": { "choice": "bps", "bps": 1_000_000_000_000_u64 },
                "metrics": { "enable": true, "loss": false },
                "name": "größe",
            }],
        })
    }

    #[test]
    fn messages_are_read_as_they_are_written() {
        let mut bytes = Vec::new();
        SCHEMA.encode("Config", &config(), &mut bytes);
        assert_eq!(SCHEMA.decode("Config", &bytes, ""), Ok(config()));
        // Encoded by hand: ports {name: "a"}.
        assert_eq!(SCHEMA.decode("Config", &[0x0a, 3, 0x12, 1, b'a'], ""), Ok(json!({ "ports": [{ "name": "a" }] })));
    }

    #[test]
    fn fields_that_are_not_served_are_refused_by_number_and_path() {
        let refused = |bytes: &[u8]| SCHEMA.decode("Config", bytes, "").expect_err("refused").to_string();
        assert_eq!(refused(&[0x12, 0]), "netlathe does not serve field number 2 of Config");
        assert_eq!(refused(&[0x32, 2, 0x4a, 0]), "flows[0]: netlathe does not serve field number 9 of Flow");
        assert!(refused(&[0x32, 4, 0x22, 2, 0x08, 99]).contains("does not serve number 99 of choice"));
    }

    /// The message with an unknown field in its `k`-th message, counted from the outermost.
    fn with_unknown(message: &str, value: &Value, k: &mut usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        if std::mem::replace(k, k.wrapping_sub(1)) == 0 {
            bytes.extend([0xf8, 0xff, 0x03, 1]);
        }
        for field in &SCHEMA.messages[message] {
            let Some(found) = value.get(field.name) else { continue };
            let Kind::Message(inner) = field.kind else {
                SCHEMA.encode(message, &json!({ field.name: found }), &mut bytes);
                continue;
            };
            for item in if field.repeated { found.as_array().expect("a list") } else { std::slice::from_ref(found) } {
                let content = with_unknown(inner, item, k);
                put_varint(field.number << 3 | 2, &mut bytes);
                put_varint(content.len() as u64, &mut bytes);
                bytes.extend(content);
            }
        }
        bytes
    }

    #[test]
    fn unknown_numbers_are_refused_at_any_depth() {
        let mut messages = 0;
        loop {
            let mut k = messages;
            let bytes = with_unknown("Config", &config(), &mut k);
            let read = SCHEMA.decode("Config", &bytes, "");
            if k < usize::MAX / 2 {
                assert_eq!(read, Ok(config()), "there are {messages} messages");
                break;
            }
            let problem = read.expect_err("refused");
            assert!(problem.what.starts_with("netlathe does not serve field number 8191 of"), "{problem}");
            messages += 1;
        }
        assert!(messages > 10, "{messages}");
    }

    #[test]
    fn wire_types_are_those_of_the_fields() {
        let refused = |bytes: &[u8]| SCHEMA.decode("Config", bytes, "").expect_err("refused").to_string();
        // A name encoded as a number, and a number encoded in 32 bits.
        assert_eq!(refused(&[0x0a, 2, 0x10, 1]), "ports[0].name: wire type 0 is not that of this field");
        assert!(SCHEMA.decode("CaptureCustom", &[0x0d, 1, 0, 0, 0], "").is_err());
        // Lists of numbers may be packed or not.
        let packed = SCHEMA.decode("NumberPatternOrAuto", &[0x1a, 2, 1, 2], "");
        assert_eq!(packed, SCHEMA.decode("NumberPatternOrAuto", &[0x18, 1, 0x18, 2], ""));
        assert_eq!(packed, Ok(json!({ "values": [1, 2] })));
    }

    #[test]
    fn every_call_and_message_is_described() {
        assert_eq!(SCHEMA.calls.len(), 18);
        for (request, response) in SCHEMA.calls.values() {
            assert!(SCHEMA.messages.contains_key(request) && SCHEMA.wrapped(response).is_some());
        }
        for field in SCHEMA.messages.values().flatten() {
            assert!(field.number > 0, "{field:?}");
            if let Kind::Message(name) = field.kind {
                assert!(SCHEMA.messages.contains_key(name), "{name} of {}", field.name);
            }
        }
    }

    #[test]
    fn files_are_read_without_their_neighbours() {
        let mut bytes = vec![0x08, 0x80, 0x01];
        SCHEMA.encode_file("Data", b"part", &mut bytes);
        assert_eq!(SCHEMA.decode_file("Data", &bytes), Ok(&b"part"[..]));
        assert!(SCHEMA.decode_file("Data", &bytes[..7]).is_err_and(|problem| problem.what.contains("is cut")));
        assert!(SCHEMA.decode_file("Data", &[0x18, 1]).is_err_and(|problem| problem.what.contains("field number 3")));
    }

    #[test]
    fn no_bytes_crash_the_reader() {
        let mut bytes = Vec::new();
        SCHEMA.encode("Config", &config(), &mut bytes);
        for n in 0..20_000_u64 {
            let mut wrong = bytes.clone();
            let at = (mixed(n) % wrong.len() as u64) as usize;
            wrong[at] = mixed(n + 1) as u8;
            wrong.truncate(wrong.len() - (mixed(n + 2) % 4) as usize);
            drop(SCHEMA.decode("Config", &wrong, ""));
        }
    }
}
