use super::mix::{SizeSpec, Sizes};
use crate::random::Random;
use packet::{HeapFrame, MacAddr, UdpTemplate};
use std::net::Ipv4Addr;

/// The values of one field of a stream, as integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The first value.
    pub first: u32,
    /// The last value; the first one again for a field that does not change.
    pub last: u32,
    /// Drawn at random instead of walked in order.
    pub random: bool,
}

impl Field {
    /// A field that does not change.
    #[must_use]
    pub fn fixed(value: u32) -> Self {
        Field { first: value, last: value, random: false }
    }

    fn value(self, sequence: u64, random: &mut Random) -> u32 {
        let choices = u64::from(self.last - self.first) + 1;
        let step = if self.random { random.below(choices) } else { sequence % choices };
        self.first + step as u32
    }
}

/// A stream of UDP frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// Source address and port.
    pub source: (Field, Field),
    /// Destination address and port.
    pub destination: (Field, Field),
    /// Frame sizes.
    pub size: SizeSpec,
    /// Source and destination hardware address.
    pub macs: (MacAddr, MacAddr),
    /// Time to live.
    pub ttl: u8,
}

/// Makes the frames of a stream, one after the other.
#[derive(Clone, Debug)]
pub struct Stream {
    spec: StreamSpec,
    template: UdpTemplate,
    sizes: Sizes,
    fields: Random,
    sequence: u64,
    buffer: Vec<u8>,
}

impl Stream {
    /// The stream that `spec` describes.
    #[must_use]
    pub fn new(spec: StreamSpec, seed: u64) -> Self {
        let template = UdpTemplate { macs: spec.macs, ttl: spec.ttl };
        let sizes = Sizes::new(spec.size, Random::stream(seed, "stream/size"));
        let fields = Random::stream(seed, "stream/fields");
        Stream { spec, template, sizes, fields, sequence: 0, buffer: Vec::new() }
    }

    /// The bytes of the next frame, without FCS.
    pub fn next_frame(&mut self) -> &[u8] {
        let StreamSpec { source, destination, .. } = self.spec;
        let (sequence, random) = (self.sequence, &mut self.fields);
        let from = (Ipv4Addr::from(source.0.value(sequence, random)), source.1.value(sequence, random) as u16);
        let to = (Ipv4Addr::from(destination.0.value(sequence, random)), destination.1.value(sequence, random) as u16);
        self.template.write(&mut self.buffer, self.sizes.draw(), from, to, sequence);
        self.sequence += 1;
        &self.buffer
    }

    /// Makes `frame` the next one.
    pub fn fill(&mut self, frame: &mut HeapFrame) {
        let bytes = self.next_frame();
        frame.refill(bytes, bytes.len() as u32);
    }
}
