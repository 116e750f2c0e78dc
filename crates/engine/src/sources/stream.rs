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

    #[inline]
    fn value(self, sequence: u64, random: &mut Random) -> u32 {
        if self.first == self.last {
            return self.first;
        }
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
}

impl Stream {
    /// The stream that `spec` describes.
    #[must_use]
    pub fn new(spec: StreamSpec, seed: u64) -> Self {
        let template = UdpTemplate { macs: spec.macs, ttl: spec.ttl };
        let sizes = Sizes::new(spec.size, Random::stream(seed, "stream/size"));
        let fields = Random::stream(seed, "stream/fields");
        Stream { spec, template, sizes, fields, sequence: 0 }
    }

    /// Makes the next frame: of its length, without FCS, `room` gives the place it is written to.
    /// What `room` refuses is left out.
    pub fn next_frame<'a, E>(&mut self, room: impl FnOnce(usize) -> Result<&'a mut [u8], E>) -> Result<(), E> {
        let StreamSpec { source, destination, .. } = self.spec;
        let (sequence, random) = (self.sequence, &mut self.fields);
        let from = (Ipv4Addr::from(source.0.value(sequence, random)), source.1.value(sequence, random) as u16);
        let to = (Ipv4Addr::from(destination.0.value(sequence, random)), destination.1.value(sequence, random) as u16);
        let length = self.sizes.draw();
        self.sequence += 1;
        self.template.write(room(length.without_fcs() as usize)?, from, to, sequence);
        Ok(())
    }

    /// Makes `frame` the next one.
    pub fn fill(&mut self, frame: &mut HeapFrame) {
        let made: Result<(), std::convert::Infallible> = self.next_frame(|length| Ok(frame.resize(length)));
        let Ok(()) = made;
    }
}
