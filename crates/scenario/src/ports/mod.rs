//! The kinds of ports. Each has a file, and a line in the list below. Parser, printer, help and errors use the list.

use engine::Kind;
use std::fmt;
use std::path::PathBuf;
use units::{BitRate, ParseError};

pub use interface::Driver;
pub use line::LineSpec;
pub use wire::WireSpec;

/// A kind of port: its help, its properties, its parser and its printer.
struct PortKind {
    kind: Kind,
    /// Whether its name is followed by a colon and a value.
    takes_value: bool,
    /// Whether it uses virtual time.
    is_virtual: bool,
    /// Whether live frames from outside can arrive on it.
    can_receive: bool,
    /// Parses the text after the colon.
    parse: fn(&str) -> Result<PortSpec, ParseError>,
    /// Prints a port of this kind. Fails for any other kind.
    print: fn(&PortSpec, &mut fmt::Formatter<'_>) -> fmt::Result,
}

/// Generates the type of ports, the list of their kinds and the mapping between them. Each line is a kind: its variant,
/// and the file that describes it.
macro_rules! ports {
    ($($(#[$doc:meta])* $variant:ident $(($($tuple:tt)*))? $({$($fields:tt)*})? = $file:ident;)*) => {
        $(mod $file;)*

        /// A port as written by users.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum PortSpec { $($(#[$doc])* $variant $(($($tuple)*))? $({$($fields)*})?,)* }

        const PORTS: &[&PortKind] = &[$(&$file::PORT),*];
        #[cfg(test)]
        const FILES: &[&str] = &[$(stringify!($file)),*];

        impl PortSpec {
            /// Every kind of port.
            pub const KINDS: &'static [Kind] = &[$($file::PORT.kind),*];

            fn kind(&self) -> &'static PortKind {
                match self { $(PortSpec::$variant { .. } => &$file::PORT),* }
            }
        }
    };
}

ports! {
    /// A Linux interface: `eth0`, `if:eth0,driver=af_packet`.
    Interface {
        /// The name.
        name: String,
        /// The driver, if specified.
        driver: Option<Driver>,
        /// Number of queues, if specified.
        queues: Option<u16>,
    } = interface;
    /// A TAP device that we create: `tap:NAME`.
    Tap(String) = tap;
    /// A NIC bound to DPDK: `pci:0000:03:00.1,mtu=9000`.
    Pci {
        /// The PCI address.
        address: String,
        /// The longest packet in bytes, if specified.
        mtu: Option<u16>,
    } = pci;
    /// Any EAL device: `dpdk:net_null0`.
    Dpdk(String) = dpdk;
    /// A capture: `pcap:FILE`.
    Pcap(PathBuf) = pcap;
    /// The model line: `wire:10G`.
    Wire(WireSpec) = wire;
    /// A line in real time without a NIC: `line:10G`.
    Line(LineSpec) = line;
    /// Drops and counts frames: `null`.
    Null = null;
}

/// The kind of port that a word selects.
fn find(word: &str) -> Option<&'static PortKind> {
    PORTS.iter().copied().find(|port| port.kind.name == word)
}

/// The remedy in messages: what to write for a port.
fn how() -> String {
    let without_options = |kind: &Kind| kind.grammar.split('[').next().unwrap_or(kind.grammar);
    let kinds: Vec<&str> = PortSpec::KINDS.iter().map(without_options).collect();
    format!("write one of {}", kinds.join(", "))
}

/// Checks that the value of a port of this `kind` is not empty. `what` describes the value.
fn named(kind: &str, value: &str, what: &str) -> Result<String, ParseError> {
    let text = format!("{kind}:{value}");
    if value.is_empty() {
        Err(ParseError::new(format!("'{text}' names no {what}"), how()))
    } else if value.contains('\0') || what != "file" && value.contains(char::is_control) {
        let named = text.escape_debug();
        Err(ParseError::new(format!("'{named}' has a character that no {what} has"), "write it without"))
    } else {
        Ok(value.to_owned())
    }
}

impl PortSpec {
    /// Parses a port.
    ///
    /// # Errors
    /// An unknown kind, an empty name, or options that the kind does not support.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if let (false, Some(own)) = (text.contains(':'), name_before_peer(text)) {
            return Err(ParseError::new(
                format!("'{text}' is {own} with its other end, as `ip link` prints it"),
                format!("write {own}; if:NAME is an interface of any name"),
            ));
        }
        let (word, value) = text.split_once(':').map_or((text, None), |(word, value)| (word, Some(value)));
        match (value, find(word)) {
            // Linux would accept these as interface names, but users mean the kind. `if:` forces a name.
            (None, Some(port)) if port.takes_value => {
                Err(ParseError::new(format!("'{text}' alone is not a port"), how()))
            }
            (None, Some(port)) => (port.parse)(""),
            (None, None) if [".pcap", ".pcapng", ".cap"].iter().any(|end| text.ends_with(end)) => Err(ParseError::new(
                format!("'{text}' reads like a capture, and would be an interface"),
                format!("write pcap:{text}; if:NAME is an interface of any name"),
            )),
            (None, None) => (interface::PORT.parse)(text),
            (Some(_), _) if pci::is_pci_address(text) => Err(ParseError::new(
                format!("'{text}' is an address on PCI, without the kind of port"),
                format!("write pci:{text}"),
            )),
            (Some(value), Some(port)) if port.takes_value => (port.parse)(value),
            (Some(_), _) => Err(ParseError::new(format!("'{word}:' is not a kind of port"), how())),
        }
    }

    /// The interface name, if the port is an interface of this machine.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        if let PortSpec::Interface { name, .. } = self { Some(name) } else { None }
    }

    /// True if live frames from outside can arrive on the port.
    #[must_use]
    pub fn can_receive(&self) -> bool {
        self.kind().can_receive
    }

    /// True if the port uses virtual time.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.kind().is_virtual
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.kind().print)(self, f)
    }
}

/// The interface name in text as printed by `ip link` with the peer: `eth0` in `eth0@if5`.
#[must_use]
pub fn name_before_peer(text: &str) -> Option<&str> {
    text.split_once('@').map(|(own, _)| own).filter(|own| !own.is_empty())
}

/// Parses `10G` as in names of ports, or any bit rate from 1 Mbit/s to 1 Tbit/s. Errors show it after `prefix`, as it
/// was written.
pub(crate) fn line_rate(text: &str, prefix: &str) -> Result<BitRate, ParseError> {
    let spelled = if text.ends_with(['G', 'M']) { format!("{text}bps") } else { text.to_owned() };
    let rate: BitRate = spelled.parse().map_err(|_| {
        let remedy = format!("write {prefix}10G, {prefix}2.5G or {prefix}100M");
        ParseError::new(format!("'{text}' is not a line rate"), remedy)
    })?;
    if (1_000_000..=1_000_000_000_000).contains(&rate.bps()) {
        Ok(rate)
    } else {
        let remedy = format!("write {prefix}1M to {prefix}1000G");
        Err(ParseError::new(format!("a line of {rate} is out of range"), remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_file_and_a_line_and_is_printed_as_it_is_read() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ports");
        let names = std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("it can be read").file_name());
        let mut files: Vec<String> = names.map(|name| name.to_string_lossy().replace(".rs", "")).collect();
        files.retain(|file| file != "mod");
        let mut listed = FILES.to_vec();
        files.sort();
        listed.sort_unstable();
        assert_eq!(files, listed);
        for kind in PORTS {
            let Kind { name, example, .. } = kind.kind;
            let port = PortSpec::parse(example).expect(example);
            assert_eq!(port.kind().kind.name, name, "{example} is read as another kind");
            assert_eq!(PortSpec::parse(&port.to_string()), Ok(port.clone()), "{port}");
            let without = PortSpec::parse(&format!("{name}:"));
            assert!(without.is_err(), "{name}: needs a value, or takes none");
        }
    }

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
        for name in [
            "x,iface=zz", "t0,queues=2", "%d", "a%sb", "a:b", "a b", "a/b", "a\u{1b}[2J", "a\0b", "\u{202e}evil",
            "\u{2066}x", "a\u{200b}", "..", "",
        ] {
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
            ("pci:0000:03:00.1", PortSpec::Pci { address: "0000:03:00.1".into(), mtu: None }),
            ("pci:03:00.1,mtu=9000", PortSpec::Pci { address: "03:00.1".into(), mtu: Some(9_000) }),
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
        for (text, expected) in [
            ("out.pcap", "write pcap:out.pcap"),
            ("/tmp/day.pcapng", "write pcap:/tmp/day.pcapng"),
            ("0000:03:00.1", "write pci:0000:03:00.1"),
            ("03:00.1", "write pci:03:00.1"),
            ("wire", "'wire' alone is not a port: write one of eth0, if:eth0"),
        ] {
            assert!(remedy(text).contains(expected), "{text}: {}", remedy(text));
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
}
