use crate::checksum::{folded, unlike_none};
use crate::headers::IpHeader;
use crate::key::Site;

/// Running sums of 16-bit words, from which checksums are made (RFC 1071).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub(crate) ip: u64,
    pub(crate) transport: u64,
}

impl Sums {
    /// Sets a field of a frame, and adds it to the sums.
    #[inline]
    pub fn put(&mut self, site: &Site, value: u128, frame: &mut [u8]) {
        site.write(frame, value);
        self.add(site, site.sum(value));
    }

    /// Sets a field that [is a word](Site::is_word).
    #[inline]
    pub fn put_word(&mut self, site: &Site, value: u32, frame: &mut [u8]) {
        if site.width == 4 {
            frame[site.at..site.at + 4].copy_from_slice(&value.to_be_bytes());
        } else {
            frame[site.at..site.at + 2].copy_from_slice(&(value as u16).to_be_bytes());
        }
        self.add(site, u64::from(value >> 16) + u64::from(value & 0xffff));
    }

    #[inline]
    fn add(&mut self, site: &Site, sum: u64) {
        self.ip += if site.in_ip { sum } else { 0 };
        self.transport += if site.in_transport { sum } else { 0 };
    }

    /// Writes the resulting checksums; `checksum` is the offset of the transport checksum.
    #[inline]
    pub(crate) fn seal(self, ip: Option<&IpHeader>, checksum: Option<usize>, frame: &mut [u8]) {
        let Some(ip) = ip else { return };
        if ip.version == 4 {
            let at = ip.start + 10;
            frame[at..at + 2].copy_from_slice(&(!folded(self.ip)).to_be_bytes());
        }
        if let Some(at) = checksum {
            frame[at..at + 2].copy_from_slice(&unlike_none(ip, !folded(self.transport)).to_be_bytes());
        }
    }
}

/// Subtracts a part from a sum, in ones' complement.
pub(crate) fn less(sum: u64, part: u64) -> u64 {
    u64::from(folded(sum + u64::from(!folded(part))))
}
