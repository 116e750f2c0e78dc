//! Frames as bytes: their headers and checksums, and templates that generate them.
//!
//! No function here panics on the content of a frame: views return `None` where bytes are missing.

mod checksum;
mod filler;
mod fingerprint;
mod frame;
mod headers;
mod identity;
mod innermost;
mod key;
pub mod layers;
mod mac;
mod marking;
mod neighbour;
mod protocol;
mod rewrite;
mod stamp;
mod sums;
mod template;
mod too_big;

pub use checksum::{complete_checksum, internet_checksum};
pub use filler::FillerKind;
pub use fingerprint::Fingerprint;
pub use frame::{Frame, HeapFrame};
pub use headers::{Headers, IpHeader, SCTP, TCP, UDP, flow_hash, ip_length};
pub use identity::Identity;
pub use innermost::{NoPayload, innermost_payload};
pub use key::{ICMP, Key, Kind, Site};
pub use mac::MacAddr;
pub use marking::{set_congestion, set_dscp};
pub use neighbour::{
    AnsweredRequest, Requester, address_request, hardware_address, parse_address_request, parse_icmp_error, write_reply,
};
pub use protocol::Protocol;
pub use rewrite::{Prefix, Rewrite, Target};
pub use stamp::Stamp;
pub use sums::Sums;
pub use template::Template;
pub use too_big::packet_too_big;
