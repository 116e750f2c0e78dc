//! Checksums of frames that differ in a few bytes only.

use super::checksum::{Covered, covered};
use super::{Layer, LayerKind, Layers};
use crate::checksum::{folded, sum};
use std::ops::Range;

/// The checksums of frames of one stack and one length that differ in a few bytes only: the sum of all other bytes is
/// precomputed. The results equal those of [`make_checksums_right`](super::make_checksums_right).
#[derive(Clone, Debug)]
pub(crate) struct PreparedChecksums {
    /// Innermost first, since outer checksums cover inner ones.
    checksums: Vec<Prepared>,
}

#[derive(Clone, Debug)]
struct Prepared {
    /// Offset of the checksum.
    at: usize,
    /// The sum of what it covers, without the words that differ.
    rest: u64,
    /// Offsets of the words that differ.
    words: Vec<usize>,
    /// 0 is sent as all ones (RFC 768).
    never_zero: bool,
}

impl PreparedChecksums {
    /// Takes the sums from one of the frames. Its stamp sums to zero; `differing` are all other bytes that differ.
    /// `None` if there is a CRC, or if these bytes can change what a checksum covers.
    pub(crate) fn of(frame: &[u8], layers: &Layers, differing: &[Range<usize>]) -> Option<Self> {
        let changes = |range: &Range<usize>| layers.all().iter().any(|layer| changes_coverage(layer, range));
        if differing.iter().any(changes) {
            return None;
        }
        let mut differing = differing.to_vec();
        let mut checksums = Vec::new();
        for of in (0..layers.all().len()).rev() {
            let Some(covered) = covered(frame, layers, of) else { continue };
            checksums.push(Prepared::of(frame, &covered?, &differing)?);
            let at = checksums.last()?.at;
            differing.push(at..at + 2);
        }
        Some(PreparedChecksums { checksums })
    }

    /// Writes all checksums.
    ///
    /// # Panics
    /// If the frame is shorter than the one from which the sums were taken.
    #[inline]
    pub(crate) fn write(&self, frame: &mut [u8]) {
        for checksum in &self.checksums {
            let word = |at: &usize| u64::from(u16::from_be_bytes([frame[*at], frame[*at + 1]]));
            let value = !folded(checksum.rest + checksum.words.iter().map(word).sum::<u64>());
            let value = if value == 0 && checksum.never_zero { 0xffff } else { value };
            frame[checksum.at..checksum.at + 2].copy_from_slice(&value.to_be_bytes());
        }
    }
}

impl Prepared {
    /// `None` if bytes differ in the last, incomplete word of an odd number of bytes.
    fn of(frame: &[u8], covered: &Covered, differing: &[Range<usize>]) -> Option<Self> {
        let mut rest = covered.sum(frame);
        let mut words = Vec::new();
        for range in covered.ranges() {
            let place = covered.at..covered.at + 2;
            let starts = range.clone().step_by(2).filter(|at| *at != place.start);
            for at in starts.filter(|at| differing.iter().any(|bytes| bytes.start < at + 2 && *at < bytes.end)) {
                if at + 2 > range.end {
                    return None;
                }
                rest -= sum(&frame[at..at + 2]);
                words.push(at);
            }
        }
        Some(Prepared { at: covered.at, rest: u64::from(folded(rest)), words, never_zero: covered.never_zero })
    }
}

/// Whether a change of these bytes can change what a checksum covers, or whether a checksum exists. Such bytes are IP
/// options, a routing header without its segments, the flags of GRE, and the checksum of UDP.
fn changes_coverage(layer: &Layer, range: &Range<usize>) -> bool {
    let (start, content) = (layer.start as usize, layer.content as usize);
    let bytes = match layer.kind {
        LayerKind::Ipv4 => start + 20..content,
        LayerKind::Routing | LayerKind::Srv6 => start..start + 8,
        LayerKind::DestinationOptions => start..content,
        LayerKind::Gre => start..start + 2,
        LayerKind::Udp => start + 6..start + 8,
        _ => return false,
    };
    range.start < bytes.end && bytes.start < range.end
}
