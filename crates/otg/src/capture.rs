//! Captures: filters and files.

use crate::flow::FCS;
use crate::frame::read_bits;
use crate::reader::{Node, Read};
use packet::layers::{LayerKind, Layers};

/// Maximum memory for the frames of one port's capture.
const MOST_BYTES: usize = 256 << 20;
/// Memory per frame in addition to its bytes: its entry, and the rounding of its allocation.
const BESIDE: usize = size_of::<Captured>() + 24;
/// Nanosecond resolution, little-endian (pcap(5)).
const MAGIC: u32 = 0xa1b2_3c4d;

/// One condition on the bits of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    /// The header; `None` for the start of the frame.
    layer: Option<LayerKind>,
    at: usize,
    width: usize,
    value: u128,
    mask: u128,
    negate: bool,
}

impl Condition {
    fn holds(&self, frame: &[u8], layers: &Layers) -> bool {
        let start = match self.layer {
            None => 0,
            Some(kind) => match layers.all().iter().find(|layer| layer.kind == kind) {
                Some(layer) => layer.start as usize * 8,
                None => return false,
            },
        };
        let matches =
            read_bits(frame, start + self.at, self.width).is_some_and(|found| (found ^ self.value) & self.mask == 0);
        matches != self.negate
    }
}

/// The capture settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CaptureSettings {
    conditions: Vec<Condition>,
    /// When full, drops the oldest frames instead of the newest.
    overwrite: bool,
    /// Maximum number of bytes stored per frame, including the FCS.
    snap: usize,
    format: Format,
}

/// The file format of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// pcap(5).
    Pcap,
    /// pcapng, draft-ietf-opsawg-pcapng.
    Pcapng,
}

/// Reads the name, the port names and the settings of a capture.
pub(crate) fn read(node: &Node<'_>) -> Read<(String, Vec<String>, CaptureSettings)> {
    let mut object = node.object()?;
    let name = object.required("name")?.name()?;
    let ports = object.required("port_names")?.texts()?;
    let overwrite = object.get("overwrite").map_or(Ok(true), |node| node.boolean())?;
    let snap = object.get("packet_size").map_or(Ok(65_535), |node| node.integer(14, 65_535))? as usize;
    let format = match object.get("format").map_or(Ok("pcap"), |node| node.word(&["pcap", "pcapng"]))? {
        "pcapng" => Format::Pcapng,
        _ => Format::Pcap,
    };
    let mut conditions = Vec::new();
    for filter in object.items("filters")? {
        conditions.extend(self::filter(&filter)?);
    }
    object.finish()?;
    Ok((name, ports, CaptureSettings { conditions, overwrite, snap, format }))
}

/// Fields of filters: name, first bit, number of bits.
type Fields = &'static [(&'static str, usize, usize)];

const ETHERNET: Fields = &[("src", 48, 48), ("dst", 0, 48), ("ether_type", 96, 16)];
const VLAN: Fields = &[("priority", 0, 3), ("cfi", 3, 1), ("id", 4, 12), ("protocol", 16, 16)];
const IPV4: Fields = &[
    ("version", 0, 4),
    ("header_length", 4, 4),
    ("priority", 8, 8),
    ("total_length", 16, 16),
    ("identification", 32, 16),
    ("reserved", 48, 1),
    ("dont_fragment", 49, 1),
    ("more_fragments", 50, 1),
    ("fragment_offset", 51, 13),
    ("time_to_live", 64, 8),
    ("protocol", 72, 8),
    ("header_checksum", 80, 16),
    ("src", 96, 32),
    ("dst", 128, 32),
];
const IPV6: Fields = &[
    ("version", 0, 4),
    ("traffic_class", 4, 8),
    ("flow_label", 12, 20),
    ("payload_length", 32, 16),
    ("next_header", 48, 8),
    ("hop_limit", 56, 8),
    ("src", 64, 128),
    ("dst", 192, 128),
];

fn filter(node: &Node<'_>) -> Read<Vec<Condition>> {
    let mut object = node.object()?;
    let choice = object.choice(&["custom", "ethernet", "vlan", "ipv4", "ipv6"], Some("custom"))?;
    let content = object.chosen(choice)?;
    object.finish()?;
    let mut object = content.object()?;
    let (fields, layer): (Fields, LayerKind) = match choice {
        "ethernet" => (ETHERNET, LayerKind::Ethernet),
        "vlan" => (VLAN, LayerKind::Vlan),
        "ipv4" => (IPV4, LayerKind::Ipv4),
        "ipv6" => (IPV6, LayerKind::Ipv6),
        _ => {
            // The offset of a custom filter is in bytes, its length in bits.
            let at = object.get("offset").map_or(Ok(0), |node| node.integer(0, 9_000))? as usize * 8;
            let width = object.get("bit_length").map_or(Ok(8), |node| node.integer(1, 128))? as usize;
            let condition = condition(&mut object, None, at, width)?;
            object.finish()?;
            return Ok(vec![condition]);
        }
    };
    let mut conditions = Vec::new();
    for (name, at, width) in fields {
        if let Some(node) = object.get(name) {
            let mut field = node.object()?;
            conditions.push(condition(&mut field, Some(layer), *at, *width)?);
            field.finish()?;
        }
    }
    object.finish()?;
    Ok(conditions)
}

fn condition(
    object: &mut crate::reader::Object<'_>,
    layer: Option<LayerKind>,
    at: usize,
    width: usize,
) -> Read<Condition> {
    let number = |node: Option<Node<'_>>| match node {
        None => Ok(None),
        Some(node) => {
            let number = node.hex_number()?;
            if width < 128 && number >> width != 0 {
                return node.wrong(format!("it is longer than {width} bits"));
            }
            Ok(Some(number))
        }
    };
    let value = number(object.get("value"))?.unwrap_or(0);
    // A mask of zeros would match every frame. An absent mask means all bits.
    let mask = number(object.get("mask"))?.filter(|mask| *mask != 0).unwrap_or(u128::MAX >> (128 - width));
    let negate = object.get("negate").map_or(Ok(false), |node| node.boolean())?;
    Ok(Condition { layer, at, width, value, mask, negate })
}

/// A captured frame, including its FCS.
#[derive(Clone, Debug)]
struct Captured {
    time_ns: u64,
    length: usize,
    bytes: Vec<u8>,
}

/// The captured frames of one port.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    settings: Option<CaptureSettings>,
    frames: std::collections::VecDeque<Captured>,
    held: usize,
    /// Frames dropped because the memory was full.
    pub(crate) left_out: u64,
    pub(crate) active: bool,
    /// Frames that arrived earlier are not captured, even if they are read from the port later.
    since_ns: u64,
}

impl Capture {
    /// Restarts with these settings.
    pub(crate) fn reset(&mut self, settings: Option<CaptureSettings>) {
        *self = Capture { settings, ..Capture::default() };
    }

    /// Deletes the stored frames. Captures frames that arrive at this time or later.
    pub(crate) fn start(&mut self, since_ns: u64) {
        let settings = self.settings.take();
        self.reset(settings);
        (self.active, self.since_ns) = (true, since_ns);
    }

    /// Whether the configuration has a capture on this port.
    pub(crate) fn is_configured(&self) -> bool {
        self.settings.is_some()
    }

    /// Stores a frame, given without FCS, if it passes the filters.
    pub(crate) fn take(&mut self, time_ns: u64, frame: &[u8]) {
        let is_due = self.active && time_ns >= self.since_ns;
        let Some(settings) = self.settings.as_ref().filter(|_| is_due) else { return };
        if !settings.conditions.is_empty() {
            let layers = Layers::of(frame);
            if !settings.conditions.iter().all(|condition| condition.holds(frame, &layers)) {
                return;
            }
        }
        // The receiver does not see the FCS. It must have been valid, so it can be computed.
        let mut bytes = frame.to_vec();
        bytes.extend(fcs(frame).to_le_bytes());
        let length = bytes.len();
        bytes.truncate(settings.snap);
        // `truncate` does not release memory.
        bytes.shrink_to_fit();
        let overwrite = settings.overwrite;
        while self.held + bytes.len() + BESIDE > MOST_BYTES {
            self.left_out += 1;
            if !overwrite {
                return;
            }
            let Some(oldest) = self.frames.pop_front() else { return };
            self.held -= oldest.bytes.len() + BESIDE;
        }
        self.held += bytes.len() + BESIDE;
        self.frames.push_back(Captured { time_ns, length, bytes });
    }

    /// The capture file: Ethernet with FCS and nanosecond timestamps. Skips `skip` frames and writes the next `count`.
    pub(crate) fn file(&self, (skip, count): (usize, usize)) -> Vec<u8> {
        let frames = self.frames.iter().skip(skip).take(count);
        let mut file = Vec::with_capacity(64 + self.held + 36 * self.frames.len());
        match self.settings.as_ref().map(|settings| settings.format) {
            Some(Format::Pcapng) => write_pcapng(frames, &mut file),
            _ => write_pcap(frames, &mut file),
        }
        file
    }
}

fn write_pcap<'f>(frames: impl Iterator<Item = &'f Captured>, file: &mut Vec<u8>) {
    let words = |file: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    words(file, &[MAGIC, 4 << 16 | 2, 0, 0, 65_535, 1]);
    for frame in frames {
        let (seconds, rest) = (frame.time_ns / 1_000_000_000, frame.time_ns % 1_000_000_000);
        words(file, &[seconds as u32, rest as u32, frame.bytes.len() as u32, frame.length as u32]);
        file.extend(&frame.bytes);
    }
}

/// A section with one interface, and a block per frame.
fn write_pcapng<'f>(frames: impl Iterator<Item = &'f Captured>, file: &mut Vec<u8>) {
    // A block has its length at both ends.
    let mut block = |kind: u32, parts: &[&[u8]]| {
        let content: usize = parts.iter().map(|part| part.len()).sum();
        let padded = content.next_multiple_of(4);
        let length = (12 + padded) as u32;
        file.extend([kind.to_le_bytes(), length.to_le_bytes()].concat());
        parts.iter().for_each(|part| file.extend(*part));
        file.resize(file.len() + padded - content, 0);
        file.extend(length.to_le_bytes());
    };
    // Byte order, version 1.0, a section of unknown length.
    block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes(), &1_u32.to_le_bytes(), &u64::MAX.to_le_bytes()]);
    // Ethernet; if_tsresol (9): 10 to the power of -9; if_fcslen (13): 4.
    let interface: [u8; 8] = [1, 0, 0, 0, 0xff, 0xff, 0, 0];
    block(1, &[&interface, &[9, 0, 1, 0, 9, 0, 0, 0], &[13, 0, 1, 0, FCS as u8, 0, 0, 0], &[0; 4]]);
    for frame in frames {
        let words =
            [0, (frame.time_ns >> 32) as u32, frame.time_ns as u32, frame.bytes.len() as u32, frame.length as u32];
        block(6, &[&words.map(u32::to_le_bytes).concat(), &frame.bytes]);
    }
}

/// Reads which frames of a capture are requested: how many to skip, and how many to return.
pub(crate) fn slice(node: Option<Node<'_>>) -> Read<(usize, usize)> {
    const ALL: (usize, usize) = (0, usize::MAX);
    let Some(node) = node else { return Ok(ALL) };
    let mut object = node.object()?;
    let choice = object.choice(&["all", "slice"], Some("all"))?;
    let content = object.get("slice");
    object.finish()?;
    let Some(content) = content.filter(|_| choice == "slice") else { return Ok(ALL) };
    let mut object = content.object()?;
    object.choice(&["initial"], Some("initial"))?;
    let initial = object.get("initial");
    object.finish()?;
    let Some(initial) = initial else { return Ok((0, 100)) };
    let mut object = initial.object()?;
    let first = object.get("start").map_or(Ok(1), |node| node.integer(1, u32::MAX.into()))?;
    let count = object.get("count").map_or(Ok(100), |node| node.integer(1, u32::MAX.into()))?;
    object.finish()?;
    Ok((first as usize - 1, count as usize))
}

/// The frame check sequence of IEEE 802.3, clause 3.2.9.
fn fcs(frame: &[u8]) -> u32 {
    static TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut n = 0;
        while n < 256 {
            let mut crc = n as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
                bit += 1;
            }
            table[n] = crc;
            n += 1;
        }
        table
    };
    !frame.iter().fold(u32::MAX, |crc, byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::layers::stack;
    use serde_json::{Value, json};

    fn captured(filters: &Value, frames: &[&[u8]]) -> usize {
        let value = json!({ "name": "c", "port_names": ["p"], "filters": filters });
        let (_, _, settings) = read(&Node::root(&value)).expect("a capture");
        let mut capture = Capture::default();
        capture.reset(Some(settings));
        capture.start(0);
        for frame in frames {
            capture.take(1_000_000_007, frame);
        }
        capture.frames.len()
    }

    #[test]
    fn filters_keep_what_they_say() {
        let udp = stack(&[LayerKind::Ethernet, LayerKind::Ipv4, LayerKind::Udp], &[0; 30]).expect("a stack");
        let tcp = stack(&[LayerKind::Ethernet, LayerKind::Ipv6, LayerKind::Tcp], &[0; 30]).expect("a stack");
        let both: [&[u8]; 2] = [&udp, &tcp];
        for (filters, count) in [
            (json!([]), 2),
            (json!([{ "ipv4": { "protocol": { "value": "11", "mask": "ff" } } }]), 1),
            (json!([{ "ipv4": { "version": { "value": "4" } } }]), 1),
            (json!([{ "ipv4": { "protocol": { "value": "11", "mask": "ff", "negate": true } } }]), 0),
            (json!([{ "choice": "ethernet", "ethernet": { "ether_type": { "value": "86dd" } } }]), 1),
            (json!([{ "custom": { "offset": 12, "bit_length": 16, "value": "0800", "mask": "ffff" } }]), 1),
            (json!([{ "ipv4": {} }, { "ipv6": { "next_header": { "value": "06" } } }]), 1),
        ] {
            assert_eq!(captured(&filters, &both), count, "{filters}");
        }
    }

    #[test]
    fn files_have_every_byte_and_the_fcs() {
        // The CRC-32 of "123456789" is a known check value.
        assert_eq!(fcs(b"123456789"), 0xcbf4_3926);
        let mut capture = Capture::default();
        let format = Format::Pcap;
        capture.reset(Some(CaptureSettings { conditions: Vec::new(), overwrite: true, snap: 65_535, format }));
        capture.take(1, &[7; 60]);
        capture.start(0);
        capture.take(1_000_000_007, &[7; 60]);
        let file = capture.file((0, usize::MAX));
        assert_eq!(file.len(), 24 + 16 + 64, "one frame: the other came before the start");
        assert_eq!((&file[..4], &file[24..32]), (&MAGIC.to_le_bytes()[..], &[1, 0, 0, 0, 7, 0, 0, 0][..]));
        assert_eq!(file[40..100], [7; 60]);
        assert_eq!(capture.file((1, 5)).len(), 24);
    }

    #[test]
    fn pcapng_has_a_section_an_interface_and_a_block_for_each_frame() {
        let value = json!({ "name": "c", "port_names": ["p"], "format": "pcapng", "packet_size": 62 });
        let (_, _, settings) = read(&Node::root(&value)).expect("a capture");
        let mut capture = Capture::default();
        capture.reset(Some(settings));
        capture.start(0);
        capture.take(7 << 32 | 9, &[7; 60]);
        let file = capture.file((0, usize::MAX));
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("4 bytes"));
        let (mut at, mut kinds) = (0, Vec::new());
        while at < file.len() {
            let length = word(at + 4);
            assert_eq!(word(at + length as usize - 4), length, "at {at}");
            kinds.push((word(at), at));
            at += length as usize;
        }
        let [(0x0a0d_0d0a, 0), (1, _), (6, frame)] = kinds[..] else { panic!("{kinds:x?}") };
        // Interface 0, the time in two words, captured and original length, and the bytes padded to 64.
        assert_eq!([8, 12, 16, 20, 24].map(|n| word(frame + n)), [0, 7, 9, 62, 64]);
        assert_eq!((file.len() - frame, &file[frame + 28..frame + 88]), (28 + 64 + 4, &[7; 60][..]));
    }
}
