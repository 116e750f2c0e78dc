use engine::Kind;
use engine::filler::long_fillers;
use packet::{FillerKind, MacAddr};
use std::path::PathBuf;
use units::{BitRate, FrameLen, ParseError, parse_size};

/// A port as written by users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSpec {
    /// A Linux interface: `eth0`, `if:eth0,driver=af_packet`.
    Interface {
        /// The name.
        name: String,
        /// The driver, if specified.
        driver: Option<Driver>,
        /// Number of queues, if specified.
        queues: Option<u16>,
    },
    /// A TAP device that we create: `tap:NAME`.
    Tap(String),
    /// A NIC bound to DPDK: `pci:0000:03:00.1`.
    Pci(String),
    /// Any EAL device: `dpdk:net_null0`.
    Dpdk(String),
    /// A capture: `pcap:FILE`.
    Pcap(PathBuf),
    /// The model line: `wire:10G`.
    Wire(WireSpec),
    /// A line in real time without a NIC: `line:10G`.
    Line(LineSpec),
    /// Drops and counts frames: `null`.
    Null,
}

/// How to access a Linux interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// AF_XDP sockets.
    AfXdp,
    /// AF_PACKET sockets.
    AfPacket,
}

/// The model line and its outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireSpec {
    /// Line rate.
    pub rate: BitRate,
    /// Capture of the frames that the receiver sees.
    pub pcap: Option<PathBuf>,
    /// List of frames with their starts in picoseconds.
    pub frames: Option<PathBuf>,
    /// Also lists and captures fillers.
    pub keep_fillers: bool,
    /// The MAC aligns frames by a deficit idle count.
    pub deficit_idle_count: bool,
}

/// A line in real time, and the output of its far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSpec {
    /// Line rate.
    pub rate: BitRate,
    /// Capacity of the queue before it, in frames.
    pub slots: u32,
    /// List of frames with their starts in picoseconds.
    pub frames: Option<PathBuf>,
    /// Also lists fillers.
    pub keep_fillers: bool,
}

/// Requested fillers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillerSpec {
    /// Which device discards them.
    pub kind: FillerKind,
    /// Alignment of data frames in bytes.
    pub align: u64,
    /// The longest filler.
    pub longest: FrameLen,
}

impl Default for FillerSpec {
    fn default() -> Self {
        FillerSpec { kind: FillerKind::Own, align: 1, longest: FrameLen::MAX_STANDARD }
    }
}

/// What to write for a port.
fn how() -> String {
    let without_options = |kind: &Kind| kind.grammar.split('[').next().unwrap_or(kind.grammar);
    let kinds: Vec<&str> = PortSpec::KINDS.iter().map(without_options).collect();
    format!("write one of {}", kinds.join(", "))
}

impl PortSpec {
    /// Every kind of port.
    pub const KINDS: &'static [Kind] = &[
        Kind {
            name: "if",
            grammar: "eth0, if:eth0[,driver=af_xdp|af_packet][,queues=N]",
            summary: "a Linux interface",
            example: "if:eth0",
        },
        Kind { name: "tap", grammar: "tap:NAME", summary: "a TAP device made by netlathe", example: "tap:lathe0" },
        Kind { name: "pci", grammar: "pci:0000:03:00.1", summary: "a NIC bound to DPDK", example: "pci:0000:03:00.1" },
        Kind { name: "dpdk", grammar: "dpdk:ARGS", summary: "any DPDK device", example: "dpdk:net_null0" },
        Kind { name: "pcap", grammar: "pcap:FILE", summary: "a capture, read or written", example: "pcap:in.pcap" },
        Kind {
            name: "wire",
            grammar: "wire:10G[,pcap=FILE][,frames=FILE][,fillers=keep][,dic=on]",
            summary: "the model line",
            example: "wire:10G",
        },
        Kind {
            name: "line",
            grammar: "line:10G[,slots=N][,frames=FILE][,fillers=keep]",
            summary: "a line in real time, without a NIC",
            example: "line:10G",
        },
        Kind { name: "null", grammar: "null", summary: "drops and counts", example: "null" },
    ];

    /// Parses a port.
    ///
    /// # Errors
    /// An unknown kind, an empty name, or options that the kind does not support.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let named = |value: &str, what: &str| {
            if value.is_empty() {
                Err(ParseError::new(format!("'{text}' names no {what}"), how()))
            } else if value.contains('\0') || what != "file" && value.contains(char::is_control) {
                let named = text.escape_debug();
                Err(ParseError::new(format!("'{named}' has a character that no {what} has"), "write it without"))
            } else {
                Ok(value.to_owned())
            }
        };
        if let (false, Some(own)) = (text.contains(':'), name_before_peer(text)) {
            return Err(ParseError::new(
                format!("'{text}' is {own} with its other end, as `ip link` prints it"),
                format!("write {own}; if:NAME is an interface of any name"),
            ));
        }
        match text.split_once(':') {
            None if text == "null" => Ok(PortSpec::Null),
            // Linux would accept these as names, but users mean the kind; `if:` enforces the name.
            None if Self::KINDS.iter().any(|kind| kind.name == text) => {
                Err(ParseError::new(format!("'{text}' alone is no port"), how()))
            }
            None if [".pcap", ".pcapng", ".cap"].iter().any(|end| text.ends_with(end)) => Err(ParseError::new(
                format!("'{text}' reads like a capture, and would be an interface"),
                format!("write pcap:{text}; if:NAME is an interface of any name"),
            )),
            Some(_) if is_pci_address(text) => Err(ParseError::new(
                format!("'{text}' is an address on PCI, without the kind of port"),
                format!("write pci:{text}"),
            )),
            None | Some(("if", _)) => interface(text.strip_prefix("if:").unwrap_or(text)),
            Some(("tap", name)) => interface_name(name).map(PortSpec::Tap),
            Some(("pci", address)) => Ok(PortSpec::Pci(named(address, "address")?)),
            Some(("dpdk", args)) => Ok(PortSpec::Dpdk(named(args, "device")?)),
            Some(("pcap", file)) => Ok(PortSpec::Pcap(named(file, "file")?.into())),
            Some(("wire", options)) => wire(options).map(PortSpec::Wire),
            Some(("line", options)) => line(options).map(PortSpec::Line),
            Some((kind, _)) => Err(ParseError::new(format!("'{kind}:' is no kind of port"), how())),
        }
    }

    /// The name of this machine's interface, if the port is one.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        if let PortSpec::Interface { name, .. } = self { Some(name) } else { None }
    }

    /// True if frames can arrive on the port from outside, live.
    #[must_use]
    pub fn can_receive(&self) -> bool {
        matches!(self, PortSpec::Interface { .. } | PortSpec::Tap(_) | PortSpec::Pci(_) | PortSpec::Dpdk(_))
    }

    /// True if the port uses virtual time.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        matches!(self, PortSpec::Pcap(_) | PortSpec::Wire(_) | PortSpec::Null)
    }
}

/// The interface name in text as printed by `ip link` with the peer: `eth0` in `eth0@if5`.
#[must_use]
pub fn name_before_peer(text: &str) -> Option<&str> {
    text.split_once('@').map(|(own, _)| own).filter(|own| !own.is_empty())
}

fn interface(text: &str) -> Result<PortSpec, ParseError> {
    let mut parts = text.split(',');
    let name = interface_name(parts.next().unwrap_or_default())?;
    let (mut driver, mut queues) = (None, None);
    for option in parts {
        match (option, option.strip_prefix("queues=").and_then(|number| number.parse().ok())) {
            ("driver=af_xdp", _) => driver = Some(Driver::AfXdp),
            ("driver=af_packet", _) => driver = Some(Driver::AfPacket),
            (_, Some(number @ 1..=64)) => queues = Some(number),
            _ => {
                let what = format!("'{option}' is no option of an interface");
                return Err(ParseError::new(what, "write driver=af_xdp, driver=af_packet or queues=1 to queues=64"));
            }
        }
    }
    Ok(PortSpec::Interface { name, driver, queues })
}

/// Whether the text is a PCI address such as 0000:03:00.1, or 03:00.1 as printed by lspci.
fn is_pci_address(text: &str) -> bool {
    let hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let shape = text.rsplit_once('.').is_some_and(|(front, function)| front.contains(':') && function.len() == 1);
    shape && (3..=4).contains(&parts.len()) && parts.into_iter().all(hex)
}

/// An interface name that Linux and the arguments of DPDK's drivers accept: 1 to 15 bytes without slashes, spaces,
/// control characters, and characters with a meaning there (`,` `:` `%`).
fn interface_name(name: &str) -> Result<String, ParseError> {
    let refused = |c: char| c.is_whitespace() || c.is_control() || "/,:%".contains(c);
    if name.is_empty() || name.len() > 15 || name.contains(refused) || name == "." || name == ".." {
        let what = format!("'{}' cannot be the name of an interface", name.escape_debug());
        let how = match name.split_once(',') {
            Some((own, _)) if !own.is_empty() => format!("write {own} without options"),
            _ if name.contains('%') => "write the whole name, such as tap0, without %".to_owned(),
            _ => "write 1 to 15 characters without slash, colon or space, or pcap:FILE for a capture".to_owned(),
        };
        return Err(ParseError::new(what, how));
    }
    Ok(name.to_owned())
}

fn wire(options: &str) -> Result<WireSpec, ParseError> {
    let mut parts = options.split(',');
    let rate = line_rate(parts.next().unwrap_or_default(), "wire:")?;
    let mut wire = WireSpec { rate, pcap: None, frames: None, keep_fillers: false, deficit_idle_count: false };
    for option in parts {
        match option.split_once('=') {
            Some(("pcap", file)) if !file.is_empty() => wire.pcap = Some(file.into()),
            Some(("frames", file)) if !file.is_empty() => wire.frames = Some(file.into()),
            Some(("fillers", "keep")) => wire.keep_fillers = true,
            Some(("dic", "on")) => wire.deficit_idle_count = true,
            _ => {
                return Err(ParseError::new(
                    format!("'{option}' is no option of wire"),
                    "write pcap=FILE, frames=FILE, fillers=keep or dic=on",
                ));
            }
        }
    }
    if wire.keep_fillers && wire.pcap.is_none() && wire.frames.is_none() {
        return Err(ParseError::new("fillers=keep has nothing to keep them in", "add pcap=FILE or frames=FILE"));
    }
    Ok(wire)
}

fn line(options: &str) -> Result<LineSpec, ParseError> {
    let mut parts = options.split(',');
    let rate = line_rate(parts.next().unwrap_or_default(), "line:")?;
    let mut line = LineSpec { rate, slots: LineSpec::SLOTS, frames: None, keep_fillers: false };
    for option in parts {
        match option.split_once('=') {
            Some(("frames", file)) if !file.is_empty() => line.frames = Some(file.into()),
            Some(("fillers", "keep")) => line.keep_fillers = true,
            Some(("slots", number)) => {
                line.slots = number.parse().ok().filter(|slots| (64..=1 << 20).contains(slots)).ok_or_else(|| {
                    ParseError::new(format!("'{number}' is no number of slots"), "write slots=64 to slots=1048576")
                })?;
            }
            _ => {
                return Err(ParseError::new(
                    format!("'{option}' is no option of line"),
                    "write slots=N, frames=FILE or fillers=keep",
                ));
            }
        }
    }
    if line.keep_fillers && line.frames.is_none() {
        return Err(ParseError::new("fillers=keep has nothing to keep them in", "add frames=FILE"));
    }
    Ok(line)
}

impl LineSpec {
    /// Default slots of the queue, as in NICs.
    pub const SLOTS: u32 = 4_096;
}

/// Parses `10G` as in names of ports, or any bit rate from 1 Mbit/s to 1 Tbit/s. Errors show it after `prefix`, as
/// written.
pub(crate) fn line_rate(text: &str, prefix: &str) -> Result<BitRate, ParseError> {
    let spelled = if text.ends_with(['G', 'M']) { format!("{text}bps") } else { text.to_owned() };
    let rate: BitRate = spelled.parse().map_err(|_| {
        let remedy = format!("write {prefix}10G, {prefix}2.5G or {prefix}100M");
        ParseError::new(format!("'{text}' is no line rate"), remedy)
    })?;
    if (1_000_000..=1_000_000_000_000).contains(&rate.bps()) {
        Ok(rate)
    } else {
        let remedy = format!("write {prefix}1M to {prefix}1000G");
        Err(ParseError::new(format!("a line of {rate} is out of range"), remedy))
    }
}

impl FillerSpec {
    /// Parses `self`, `mac-control` or `blackhole=MAC`, optionally followed by `,align=4` or `,align=8` and
    /// `,longest=9018B`.
    ///
    /// # Errors
    /// Another word, a group address, another alignment, or a longest filler that has no benefit (up to 2 972 B, except
    /// the standard's) or is above 9 216 B.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        const HOW: &str =
            "write self, mac-control or blackhole=MAC, then ,align=4 or ,align=8 and ,longest=LENGTH if wanted";
        let mut parts = text.split(',');
        let kind = match parts.next().unwrap_or_default() {
            "self" => FillerKind::Own,
            "mac-control" => FillerKind::MacControl,
            word => match word.strip_prefix("blackhole=") {
                Some(mac) => FillerKind::BlackHole(black_hole(mac)?),
                None => return Err(ParseError::new(format!("'{word}' is no kind of filler"), HOW)),
            },
        };
        let mut filler = FillerSpec { kind, ..FillerSpec::default() };
        for option in parts {
            match (option, option.strip_prefix("longest=")) {
                ("align=4", _) => filler.align = 4,
                ("align=8", _) => filler.align = 8,
                (_, Some(length)) => {
                    let bytes = parse_size(length)?;
                    let standard = bytes == u64::from(FrameLen::MAX_STANDARD.bytes());
                    filler.longest = match length.parse() {
                        Ok(longest) if standard || !long_fillers(longest).is_empty() => longest,
                        _ => {
                            return Err(ParseError::new(
                                format!("fillers of up to {length} save no frame over standard ones, or are no frames"),
                                "write longest=2973B to longest=9216B, as the port and what is behind it take them",
                            ));
                        }
                    };
                }
                _ => return Err(ParseError::new(format!("'{option}' is no option of a filler"), HOW)),
            }
        }
        Ok(filler)
    }
}

fn black_hole(text: &str) -> Result<MacAddr, ParseError> {
    let mac: MacAddr = text.parse()?;
    if mac.0[0] & 1 == 1 {
        return Err(ParseError::new(
            format!("{mac} is a group address, which switches flood"),
            "write one whose first byte is even, 02:00:00:00:00:ff",
        ));
    }
    Ok(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_port_is_parsed_and_named_in_errors() {
        for kind in PortSpec::KINDS {
            assert!(kind.example == kind.name || kind.example.starts_with(&format!("{}:", kind.name)), "{kind:?}");
            assert!(PortSpec::parse(kind.example).is_ok(), "{kind:?}");
            let error = PortSpec::parse("nonsense:1").expect_err("no kind").to_string();
            assert!(error.contains(kind.example.split_once(':').map_or("null", |(name, _)| name)), "{error}");
        }
    }

    #[test]
    fn refuses_interface_names_that_drivers_would_misread() {
        for name in ["x,iface=zz", "t0,queues=2", "%d", "a%sb", "a:b", "a b", "a/b", "a\u{1b}[2J", "a\0b", "..", ""] {
            for kind in ["tap:", "if:"] {
                let options = kind == "if:" && name == "t0,queues=2";
                assert_eq!(PortSpec::parse(&format!("{kind}{name}")).is_ok(), options, "{kind}{name}");
            }
        }
        assert!(
            PortSpec::parse("tap:x,iface=zz")
                .is_err_and(|error| error.to_string().ends_with("write x without options"))
        );
        for text in ["dpdk:net_null0\u{1b}", "pci:0000:03:00.1\n", "pcap:a\0b"] {
            assert!(PortSpec::parse(text).is_err(), "{text}");
        }
        assert_eq!(PortSpec::parse("tap:tap-0.5"), Ok(PortSpec::Tap("tap-0.5".into())));
    }

    #[test]
    fn recognises_names_printed_by_ip_link() {
        for text in ["gen-b0@gen-b1", "gen-b0@if12,driver=af_packet", "gen-b0@gen-b1-much-longer"] {
            let error = PortSpec::parse(text).expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("write gen-b0; if:NAME"), "{error}");
        }
        let odd = PortSpec::Interface { name: "a@b".into(), driver: None, queues: None };
        assert_eq!(PortSpec::parse("if:a@b"), Ok(odd));
    }

    #[test]
    fn parses_every_kind_of_port() {
        let eth0 = |driver| PortSpec::Interface { name: "eth0".into(), driver, queues: None };
        for (text, port) in [
            ("eth0", eth0(None)),
            ("if:eth0", eth0(None)),
            ("if:eth0,driver=af_packet", eth0(Some(Driver::AfPacket))),
            ("eth0,driver=af_xdp", eth0(Some(Driver::AfXdp))),
            ("tap:t0", PortSpec::Tap("t0".into())),
            ("pci:0000:03:00.1", PortSpec::Pci("0000:03:00.1".into())),
            ("dpdk:net_null0,size=64", PortSpec::Dpdk("net_null0,size=64".into())),
            ("pcap:/tmp/a.pcap", PortSpec::Pcap("/tmp/a.pcap".into())),
            ("null", PortSpec::Null),
        ] {
            assert_eq!(PortSpec::parse(text), Ok(port), "{text}");
        }
        let Ok(PortSpec::Wire(wire)) = PortSpec::parse("wire:2.5G,pcap=o.pcap,fillers=keep,frames=o.csv,dic=on") else {
            panic!("a wire");
        };
        assert_eq!(wire.rate, BitRate::from_bps(2_500_000_000));
        assert!(wire.keep_fillers && wire.deficit_idle_count);
        let Ok(PortSpec::Line(line)) = PortSpec::parse("line:10G,slots=512,frames=o.csv") else { panic!("a line") };
        assert_eq!((line.rate, line.slots), (BitRate::from_gbps(10), 512));
        assert!(matches!(PortSpec::parse("eth0,queues=4"), Ok(PortSpec::Interface { queues: Some(4), .. })));
    }

    #[test]
    fn errors_suggest_the_missing_kind_of_port() {
        let remedy = |text| PortSpec::parse(text).expect_err(text).to_string();
        for (text, said) in [
            ("out.pcap", "write pcap:out.pcap"),
            ("/tmp/day.pcapng", "write pcap:/tmp/day.pcapng"),
            ("0000:03:00.1", "write pci:0000:03:00.1"),
            ("03:00.1", "write pci:03:00.1"),
            ("wire", "'wire' alone is no port: write one of eth0, if:eth0"),
        ] {
            assert!(remedy(text).contains(said), "{text}: {}", remedy(text));
        }
        for text in ["if:out.pcap", "if:wire", "eth0.5", "wire0"] {
            assert!(PortSpec::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn errors_of_bad_ports_name_the_valid_kinds() {
        for text in [
            "", "if:", "pcap:", "pci:", "dpdk:", "tap:", "wire:", "wire:0G", "wire:10", "wire:10G,foo=bar",
            "wire:9999G", "wire:10G,fillers=keep", "line:10", "line:10G,slots=1", "line:10G,fillers=keep",
            "line:10G,pcap=a.pcap", "eth0,queues=0", "ether:eth0", "if:eth0,driver=foo", "a_very_long_interface",
            "in.pcap/..",
        ] {
            let error = PortSpec::parse(text).expect_err(text).to_string();
            assert!(error.contains("write") || error.contains("add"), "{text}: {error}");
        }
    }

    #[test]
    fn parses_fillers() {
        assert_eq!(FillerSpec::parse("self"), Ok(FillerSpec::default()));
        assert_eq!(FillerSpec::parse("mac-control,align=8").map(|filler| filler.align), Ok(8));
        assert!(FillerSpec::parse("blackhole=02:00:00:00:00:ff").is_ok());
        let longest = |text| FillerSpec::parse(text).map(|filler| filler.longest.bytes());
        assert_eq!((longest("self"), longest("self,longest=9018B,align=4")), (Ok(1_518), Ok(9_018)));
        assert_eq!((longest("self,longest=1518B"), longest("self,longest=2973B")), (Ok(1_518), Ok(2_973)));
        for text in ["", "blackhole", "blackhole=01:00:00:00:00:ff", "self,align=3", "hole"] {
            assert!(FillerSpec::parse(text).is_err(), "{text}");
        }
        for text in ["self,longest=9018", "self,longest=2972B", "self,longest=9217B", "self,longest="] {
            assert!(FillerSpec::parse(text).is_err(), "{text}");
        }
    }
}
