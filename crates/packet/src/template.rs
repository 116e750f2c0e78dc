use crate::checksum::{folded, internet_checksum, sum};
use crate::headers::{Headers, IpHeader, UDP};
use crate::key::{ICMP, ICMPV6, Key, Site};
use crate::layers::{
    Field, ICRC, LayerKind, Layers, Length, NoStack, PreparedChecksums, has_right_crc, make_checksums_right,
    make_crcs_right, stack_around,
};
use crate::rewrite::{transport_checksum, update};
use crate::stamp::Stamp;
use crate::sums::{Sums, less};
use std::ops::Range;
use units::ParseError;

/// Generates frames of one stack, one after the other: fields are set, then the frame is copied out with its length,
/// its checksums and its stamp.
///
/// Checksums are updated for each change (RFC 1624): a given frame with valid checksums keeps them valid, and one with
/// wrong checksums keeps them wrong.
#[derive(Clone, Debug)]
pub struct Template {
    /// The longest frame, without FCS.
    image: Vec<u8>,
    /// Offset of the payload, which no field changes.
    payload: usize,
    ip: Option<IpHeader>,
    /// Offset of the transport checksum.
    checksum: Option<usize>,
    /// The sums without varying fields, lengths and payload.
    base: Sums,
    /// The sum of the first n bytes of the payload, for each n.
    payload_sums: Vec<u16>,
    /// Offset of the packet's end in a frame that keeps its given length; `None` if the packet fills the frame.
    end: Option<usize>,
    stream: Option<u16>,
    /// Payload of the innermost packet of a given frame with a tunnel: the stamp ends at its end.
    inner: Option<Range<usize>>,
    /// Layers of a generated frame with tunnels: lengths and checksums are computed for each frame.
    layers: Option<Box<Layered>>,
    /// Bytes after the payload that belong to a header: the ICRC of RoCE.
    trailer: usize,
    /// The given frame has correct CRCs, so every frame gets them.
    crc: bool,
}

/// Layers of generated frames with tunnels.
#[derive(Clone, Debug)]
struct Layered {
    layers: Layers,
    /// Bytes of the varying fields.
    varied: Vec<Range<usize>>,
    /// Prepared checksums by frame length; `None` if they cannot be prepared.
    prepared: Vec<(usize, Option<PreparedChecksums>)>,
}

impl Layered {
    /// Prepares the checksums for the length of this frame, which is complete except for its checksums.
    #[inline(never)]
    fn prepare(&mut self, frame: &[u8]) {
        if self.prepared.len() < PREPARED_LENGTHS && self.prepared.iter().all(|(length, _)| *length != frame.len()) {
            let checksums = PreparedChecksums::of(frame, &self.layers.resized(frame.len()), &self.varied);
            self.prepared.push((frame.len(), checksums));
        }
    }
}

/// Ethernet pads shorter frames to this length, without FCS.
const SHORTEST: usize = 60;

/// Limit on frame lengths with prepared checksums. Frames with tunnels of further lengths are summed as a whole.
const PREPARED_LENGTHS: usize = 8;

impl Template {
    /// Frames of `headers` followed by `pattern`, repeated.
    ///
    /// # Panics
    /// If `headers` are not complete, as [`Protocol::headers`] returns them.
    #[must_use]
    pub fn made(headers: Vec<u8>, pattern: &[u8], longest: usize) -> Self {
        let payload = headers.len();
        let mut image = headers;
        let filling = pattern.iter().copied().cycle().take(longest.saturating_sub(payload));
        image.extend(filling);
        let found = Headers::of(&image).expect("an Ethernet header");
        let mut template = Template::new(image, payload, found, None);
        template.make_checksums(&found);
        template.open(&found);
        template
    }

    /// Frames of these layers, outermost first, followed by `pattern`, repeated. `with` adds optional fields to layers
    /// and `bytes` inserts bytes before layers, each by the number of the layer. A datagram around a tunnel has a
    /// checksum over IPv6, and none over IPv4.
    ///
    /// # Errors
    /// A layer cannot carry the next one.
    pub fn layered(
        kinds: &[LayerKind],
        with: &[(usize, &Field)],
        bytes: &[(usize, Vec<u8>)],
        pattern: &[u8],
        longest: usize,
    ) -> Result<Self, NoStack> {
        let (headers, layers) = stack_around(kinds, with, bytes, &[])?;
        let payload = headers.len();
        let found = layers.all().len();
        if found < kinds.len() {
            return Err(NoStack { below: kinds[found.saturating_sub(1)], above: kinds[found] });
        }
        let mut image = headers;
        let filling = pattern.iter().copied().cycle().take(longest.saturating_sub(payload));
        image.extend(filling);
        for (of, layer) in layers.all().iter().enumerate().filter(|(_, layer)| layer.kind == LayerKind::Udp) {
            let is_v6 = of > 0 && layers.all()[of - 1].kind != LayerKind::Ipv4;
            if is_v6 || of + 1 == kinds.len() {
                // Any value but 0 requests a checksum.
                image[layer.start as usize + 6] = 1;
            }
        }
        let found = Headers { tags: [None; 2], ether_type: 0, network: 14, ip: None };
        let mut template = Template::new(image, payload, found, None);
        template.layers = Some(Box::new(Layered { layers, varied: Vec::new(), prepared: Vec::new() }));
        template.trailer = if kinds.last() == Some(&LayerKind::Roce) { ICRC } else { 0 };
        template.sum_payload();
        Ok(template)
    }

    /// Frames like the given one. They have its length, or with `longest` any length, with the payload cut or extended
    /// by zeros. `pattern` replaces the payload.
    ///
    /// # Errors
    /// The frame is too short for Ethernet, or it is a fragment and has to get another length or payload.
    pub fn given(frame: &[u8], pattern: Option<&[u8]>, longest: Option<usize>) -> Result<Self, ParseError> {
        let found = Headers::of(frame)
            .ok_or_else(|| ParseError::new("the frame is shorter than an Ethernet header", "write 14 bytes or more"))?;
        if found.ip.is_some_and(|ip| ip.fragment) && (longest.is_some() || pattern.is_some()) {
            return Err(ParseError::new("the frame is a fragment", "leave size and payload out"));
        }
        let content = found.ip.map_or(frame.len(), |ip| ip.end.min(frame.len()));
        let payload = match found.payload(frame) {
            Some(range) => range.start,
            None => match found.ip {
                Some(ip) if matches!(ip.protocol, ICMP | ICMPV6) => ip.transport.map_or(content, |at| at + 8),
                Some(ip) => ip.transport.unwrap_or(content),
                None if found.ether_type == 0x0806 => found.network + 28,
                None => found.network,
            },
        }
        .min(content);
        let mut image = frame.to_vec();
        let end = match longest {
            Some(longest) => {
                image.truncate(content);
                image.resize(longest.max(content), 0);
                None
            }
            None => {
                image.resize(frame.len().max(SHORTEST), 0);
                Some(content)
            }
        };
        let mut template = Template::new(image, payload, found, end);
        // A frame that keeps its length and payload may contain a tunnel.
        if end.is_some() && pattern.is_none() {
            let layers = Layers::of(frame);
            let last = layers.last().filter(|last| last.content as usize > payload && layers.all().len() > 1);
            let trailer = |kind| if kind == LayerKind::Roce { ICRC } else { 0 };
            template.inner =
                last.map(|last| last.content as usize..(last.end as usize).saturating_sub(trailer(last.kind)));
        }
        template.crc = has_right_crc(frame, &Layers::of(frame));
        if template.checksum.is_some_and(|at| {
            found.ip.is_some_and(|ip| ip.version == 4 && ip.protocol == UDP) && frame[at..at + 2] == [0, 0]
        }) {
            // A datagram without a checksum stays without one.
            template.checksum = None;
        }
        template.open(&found);
        // Removes the old payload from the sum; `put_lengths` adds the new one.
        template.base.transport = less(template.base.transport, sum(&frame[payload..content]));
        if let Some(pattern) = pattern {
            let end = template.end.unwrap_or(template.image.len());
            for (byte, value) in template.image[payload..end].iter_mut().zip(pattern.iter().cycle()) {
                *byte = *value;
            }
        }
        template.sum_payload();
        Ok(template)
    }

    fn new(image: Vec<u8>, payload: usize, found: Headers, end: Option<usize>) -> Self {
        let checksum = found.ip.and_then(|ip| transport_checksum(&ip, &image));
        Template {
            image,
            payload,
            ip: found.ip,
            checksum,
            base: Sums::default(),
            payload_sums: Vec::new(),
            end,
            stream: None,
            inner: None,
            layers: None,
            trailer: 0,
            crc: false,
        }
    }

    /// Computes the checksums of new headers, without payload.
    fn make_checksums(&mut self, found: &Headers) {
        let Some(ip) = found.ip else { return };
        if ip.version == 4 {
            let sum = internet_checksum(&[&self.image[ip.start..ip.start + 20]]);
            self.image[ip.start + 10..ip.start + 12].copy_from_slice(&sum.to_be_bytes());
        }
        if let (Some(at), Some(start)) = (self.checksum, ip.transport) {
            let head = &self.image[start..self.payload];
            let pseudo = if ip.protocol == ICMP { 0 } else { u64::from(ip.protocol) + head.len() as u64 };
            let sum = !folded(sum(head) + pseudo);
            self.image[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Derives the sums from the checksums, without lengths that may change.
    fn open(&mut self, found: &Headers) {
        let Some(ip) = found.ip else { return };
        let word = |at: usize| u64::from(u16::from_be_bytes([self.image[at], self.image[at + 1]]));
        if ip.version == 4 {
            self.base.ip = 0xffff - word(ip.start + 10);
            if self.end.is_none() {
                self.base.ip = less(self.base.ip, word(ip.start + 2));
            }
        }
        if let (Some(at), Some(start)) = (self.checksum, ip.transport) {
            self.base.transport = 0xffff - word(at);
            if self.end.is_none() {
                let times = transport_lengths(ip.protocol);
                let length = (ip.end - start) as u64;
                self.base.transport = less(self.base.transport, times * length);
            }
        }
        self.sum_payload();
    }

    fn sum_payload(&mut self) {
        self.payload_sums.clear();
        let mut sum = 0_u64;
        self.payload_sums.push(0);
        for (i, byte) in self.image[self.payload..].iter().enumerate() {
            sum += u64::from(*byte) << if i % 2 == 0 { 8 } else { 0 };
            self.payload_sums.push(folded(sum));
        }
    }

    /// Stamps the frames with this stream number.
    pub fn stamp(&mut self, stream: u16) {
        self.stream = Some(stream);
        self.layers_change();
        self.make_up_for_stamp();
    }

    /// Compensates for the stamp in a frame that keeps its given length. Its payload may have checksums of its own, like
    /// those of a packet in a tunnel. A stamp sums to zero; the sum of the bytes that it replaces goes into the two
    /// bytes before it.
    fn make_up_for_stamp(&mut self) {
        let Some(end) = self.stamped_end() else { return };
        let Some(at) = end.checked_sub(2 + Stamp::LENGTH).filter(|at| *at >= self.payload) else { return };
        let bytes = &mut self.image[at..end];
        let sum = folded(sum(bytes));
        bytes.fill(0);
        bytes[..2].copy_from_slice(&sum.to_be_bytes());
        self.sum_payload();
    }

    /// Adds to the stream number in the stamps, if there are any; `None` on overflow.
    #[must_use]
    pub fn renumber(&mut self, more: u16) -> Option<()> {
        if let Some(stream) = self.stream {
            self.stream = Some(stream.checked_add(more)?);
        }
        Some(())
    }

    /// Whether the frames are stamped.
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.stream.is_some()
    }

    /// Length in bytes without FCS that the headers need.
    #[must_use]
    pub fn least(&self) -> usize {
        self.payload + self.trailer
    }

    /// Where the stamp ends in a frame that keeps its given length.
    fn stamped_end(&self) -> Option<usize> {
        self.inner.as_ref().map(|inner| inner.end).or(self.end)
    }

    /// Whether a stamp fits into a frame of `length` bytes without FCS.
    #[must_use]
    pub fn has_room(&self, length: usize) -> bool {
        match &self.inner {
            // Two more bytes compensate for what the stamp replaces.
            Some(inner) => inner.len() >= Stamp::LENGTH + 2,
            None => self.end.unwrap_or(length) >= self.payload + Stamp::LENGTH + self.trailer,
        }
    }

    /// Length without FCS of a frame that keeps its given length.
    #[must_use]
    pub fn given_length(&self) -> usize {
        self.image.len()
    }

    /// Where a field is, if the stack has it.
    #[must_use]
    pub fn site(&self, key: Key) -> Option<Site> {
        if let Some(layered) = &self.layers {
            return key.site_in(&self.image, &layered.layers);
        }
        let mut site = key.site(&self.image[..self.payload.max(14)], &Headers::of(&self.image)?)?;
        site.in_transport &= self.checksum.is_some() && !self.beyond_sum(site);
        Some(site)
    }

    /// Where a field of layer number `of` of a [layered](Template::layered) frame is.
    #[must_use]
    pub fn site_of(&self, of: usize, field: &Field) -> Option<Site> {
        let layer = self.layers.as_ref()?.layers.all().get(of)?;
        let offset = field.offset(layer.header(&self.image))?;
        Site::of_bits(layer.start as usize * 8 + usize::from(offset), field.width().into(), &self.image)
    }

    /// The current value of a field.
    #[must_use]
    pub fn value(&self, site: &Site) -> u128 {
        site.read(&self.image)
    }

    /// ICMP has no pseudo header, so its checksum does not cover addresses.
    fn beyond_sum(&self, site: Site) -> bool {
        self.ip.is_some_and(|ip| ip.protocol == ICMP && ip.transport.is_some_and(|start| site.at < start))
    }

    /// Sets a field in all frames.
    pub fn fix(&mut self, site: &Site, value: u128) {
        self.leave_out(site);
        self.base.put(site, value, &mut self.image);
        self.layers_change();
    }

    /// Declares a field that is set for each frame.
    pub fn vary(&mut self, site: &Site) {
        self.leave_out(site);
        self.layers_change();
        if let Some(layered) = &mut self.layers {
            layered.varied.push(site.at..site.at + site.width);
        }
    }

    /// Discards the prepared checksums.
    fn layers_change(&mut self) {
        if let Some(layered) = &mut self.layers {
            layered.prepared.clear();
        }
    }

    fn leave_out(&mut self, site: &Site) {
        let old = site.sum(site.read(&self.image));
        if site.in_ip {
            self.base.ip = less(self.base.ip, old);
        }
        if site.in_transport {
            self.base.transport = less(self.base.transport, old);
        }
    }

    /// The initial sums of a frame.
    #[inline]
    #[must_use]
    pub fn sums(&self) -> Sums {
        self.base
    }

    /// Sets a field of the next frame.
    #[inline]
    pub fn set(&mut self, site: &Site, value: u128, sums: &mut Sums) {
        sums.put(site, value, &mut self.image);
    }

    /// Sets a field of the next frame that [is a word](Site::is_word).
    #[inline]
    pub fn set_word(&mut self, site: &Site, value: u32, sums: &mut Sums) {
        sums.put_word(site, value, &mut self.image);
    }

    /// Writes the next frame, number `sequence` of its stream, with the length of `frame` (without FCS).
    ///
    /// # Panics
    /// If `frame` is longer than the longest frame, or shorter than its headers.
    #[inline]
    pub fn write(&mut self, mut sums: Sums, sequence: u64, frame: &mut [u8]) {
        self.put_lengths(frame.len(), &mut sums);
        sums.seal(self.ip.as_ref(), self.checksum, &mut self.image);
        frame.copy_from_slice(&self.image[..frame.len()]);
        self.write_stamp(sequence, frame);
        if let Some(layered) = &mut self.layers {
            layered.prepare(frame);
        }
        if self.layers.is_some() || self.crc {
            self.seal_layers(frame);
        }
    }

    /// Writes what all frames of this length have in common, and returns their initial sums. A frame is complete once
    /// its fields are [put](Sums::put) and it is [sealed](Template::seal).
    ///
    /// # Panics
    /// As [`Template::write`].
    pub fn lay(&mut self, frame: &mut [u8]) -> Sums {
        let mut sums = self.base;
        self.put_lengths(frame.len(), &mut sums);
        frame.copy_from_slice(&self.image[..frame.len()]);
        self.write_stamp(0, frame);
        if let Some(layered) = &mut self.layers {
            layered.prepare(frame);
        }
        sums
    }

    /// Writes the checksums and the stamp of frame number `sequence`, which [`Template::lay`] began.
    ///
    /// # Panics
    /// If the frame is shorter than its headers.
    #[inline]
    pub fn seal(&self, sums: Sums, sequence: u64, frame: &mut [u8]) {
        sums.seal(self.ip.as_ref(), self.checksum, frame);
        self.write_stamp(sequence, frame);
        if self.layers.is_some() || self.crc {
            self.seal_layers(frame);
        }
    }

    // Out of line, so that frames without tunnels do not pay for it.
    #[inline(never)]
    fn seal_layers(&self, frame: &mut [u8]) {
        if let Some(Layered { layers, prepared, .. }) = self.layers.as_deref() {
            match prepared.iter().find(|(length, _)| *length == frame.len()) {
                Some((_, Some(prepared))) => prepared.write(frame),
                _ => make_checksums_right(frame, &layers.resized(frame.len())),
            }
        } else if self.crc {
            make_crcs_right(frame, &Layers::of(frame));
        }
    }

    /// Replaces the payload of a complete frame by bytes from `draw`, and updates the checksum that covers it. Keeps
    /// the stamp.
    ///
    /// # Panics
    /// If the frame is shorter than its headers.
    pub fn draw_payload(&self, frame: &mut [u8], mut draw: impl FnMut() -> u64) {
        let stamp = if self.stream.is_some() { Stamp::LENGTH } else { 0 };
        let end = self.end.unwrap_or(frame.len() - self.trailer) - stamp;
        if end <= self.payload {
            return;
        }
        let drawn = &mut frame[self.payload..end];
        for bytes in drawn.chunks_mut(8) {
            bytes.copy_from_slice(&draw().to_le_bytes()[..bytes.len()]);
        }
        if let Some(layered) = &self.layers {
            make_checksums_right(frame, &layered.layers.resized(frame.len()));
            return;
        }
        if self.crc {
            self.seal_layers(frame);
            return;
        }
        let (Some(at), Some(ip)) = (self.checksum, self.ip) else { return };
        let old = folded(sum(&self.image[self.payload..end]));
        let difference = u64::from(folded(sum(drawn))) + u64::from(0xffff - old);
        update(frame, at, difference, ip.protocol == UDP);
    }

    /// Where the stamp of a frame of `length` bytes ends; `None` without a stamp, or if a CRC covers it.
    #[must_use]
    pub fn stamp_end(&self, length: usize) -> Option<usize> {
        let has_crc =
            |layers: &Layers| layers.all().iter().any(|layer| matches!(layer.kind, LayerKind::Sctp | LayerKind::Roce));
        if self.crc || self.layers.as_ref().is_some_and(|layered| has_crc(&layered.layers)) {
            return None;
        }
        self.stream.map(|_| self.stamped_end().unwrap_or(length))
    }

    #[inline]
    fn write_stamp(&self, sequence: u64, frame: &mut [u8]) {
        if let Some(stream) = self.stream {
            let end = self.stamped_end().unwrap_or(frame.len() - self.trailer);
            Stamp { stream, sequence: sequence as u32, time_ns: 0 }.write(&mut frame[..end]);
        }
    }

    /// Writes the lengths into the headers of a frame of `length` bytes, and adds them and the payload to its sums.
    #[inline]
    fn put_lengths(&mut self, length: usize, sums: &mut Sums) {
        if let Some(layered) = &self.layers {
            for layer in layered.layers.all() {
                if let Some(Length { at, less }) = layer.kind.description().length {
                    let start = layer.start as usize;
                    let at = start.saturating_add_signed(at);
                    let value = (length - start - less) as u16;
                    self.image[at..at + 2].copy_from_slice(&value.to_be_bytes());
                }
            }
        }
        let Some(ip) = &self.ip else { return };
        let end = self.end.unwrap_or(length);
        if self.end.is_none() {
            let (at, length) = if ip.version == 4 { (2, end - ip.start) } else { (4, end - ip.start - 40) };
            self.image[ip.start + at..ip.start + at + 2].copy_from_slice(&(length as u16).to_be_bytes());
            sums.ip += length as u64;
            if let Some(start) = ip.transport.filter(|_| self.checksum.is_some()) {
                let length = end - start;
                sums.transport += transport_lengths(ip.protocol) * length as u64;
                if ip.protocol == UDP {
                    self.image[start + 4..start + 6].copy_from_slice(&(length as u16).to_be_bytes());
                }
            }
        }
        if self.checksum.is_some() {
            // A stamp sums to zero. In a tunnel, bytes may follow it.
            let stamp = if self.stream.is_some() && self.inner.is_none() { Stamp::LENGTH } else { 0 };
            sums.transport += u64::from(self.payload_sums[end - stamp - self.payload]);
        }
    }
}

/// How often the transport sum contains the transport length: in the pseudo header, and in UDP's own field.
const fn transport_lengths(protocol: u8) -> u64 {
    match protocol {
        UDP => 2,
        ICMP => 0,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::TCP;
    use crate::layers::Role;
    use crate::protocol::Protocol;

    /// Checks the checksums of a frame by the rule itself: each must sum to zero.
    fn are_valid(frame: &[u8]) -> bool {
        let headers = Headers::of(frame).expect("headers");
        let Some(ip) = headers.ip else { return true };
        if ip.version == 4 && internet_checksum(&[&frame[ip.start..ip.start + 20]]) != 0 {
            return false;
        }
        let Some(start) = ip.transport.filter(|_| matches!(ip.protocol, UDP | TCP | ICMP | ICMPV6)) else {
            return true;
        };
        let (source, destination) = ip.addresses(frame).expect("addresses");
        let rest = &frame[start..ip.end];
        let pseudo = [source, destination, &(rest.len() as u32).to_be_bytes(), &[0, 0, 0, ip.protocol]].concat();
        let pseudo = if ip.protocol == ICMP { Vec::new() } else { pseudo };
        internet_checksum(&[&pseudo, rest]) == 0
    }

    fn address(v6: bool) -> u128 {
        if v6 { 0x2001_0db8_0000_0000_0000_0000_0000_0001 } else { 0x0a00_0001 }
    }

    #[test]
    fn every_stack_has_valid_checksums_at_every_length() {
        // Each over IPv4 and IPv6, with and without stamp, after up to two tags.
        let stacks = Protocol::ALL.iter().flat_map(|protocol| (0..12_usize).map(move |n| (protocol, n)));
        for (protocol, n) in stacks {
            let (v6, stamped, tags) = (n & 1 == 1, n & 2 == 2, n / 4);
            let mut template = Template::made(protocol.headers(v6, tags), &[1, 2, 3], 300);
            for key in [Key::Source, Key::Destination] {
                if let Some(site) = template.site(key) {
                    template.fix(&site, address(v6));
                }
            }
            if stamped {
                template.stamp(7);
            }
            // Another protocol or EtherType would change the stack.
            let fields = Key::ALL.iter().filter(|key| !matches!(key, Key::Proto | Key::EtherType));
            let varied: Vec<Site> = fields.filter_map(|key| template.site(*key)).collect();
            for site in &varied {
                template.vary(site);
            }
            let least = template.least() + if stamped { Stamp::LENGTH } else { 0 };
            for length in least.max(60)..300 {
                let mut frame = vec![0xff; length];
                let mut sums = template.sums();
                for (i, site) in varied.iter().enumerate() {
                    template.set(site, (length * 7_919 * (i + 1)) as u128, &mut sums);
                }
                template.write(sums, length as u64, &mut frame);
                assert!(
                    are_valid(&frame),
                    "{protocol:?} v6 {v6} tags {tags} stamped {stamped} {length} B: {frame:02x?}"
                );
                let mut laid = vec![0xff; length];
                let mut sums = template.lay(&mut laid);
                for (i, site) in varied.iter().enumerate() {
                    sums.put(site, (length * 7_919 * (i + 1)) as u128, &mut laid);
                }
                template.seal(sums, length as u64, &mut laid);
                assert_eq!(laid, frame, "{protocol:?} v6 {v6} tags {tags} stamped {stamped} {length} B");
                let stamp = Stamp::of(&frame).map(|stamp| (stamp.stream, stamp.sequence));
                assert_eq!(stamp, stamped.then_some((7, length as u32)));
                if let Some(ip) = Headers::of(&frame).and_then(|headers| headers.ip) {
                    assert_eq!(ip.end, length, "{protocol:?}");
                }
            }
        }
    }

    fn udp(length: usize) -> Vec<u8> {
        let mut template = Template::made(Protocol::Udp.headers(false, 0), b"abc", length);
        for (key, value) in [(Key::Source, 1), (Key::Destination, 2), (Key::Sport, 3), (Key::Dport, 4)] {
            let site = template.site(key).expect("udp has it");
            template.fix(&site, value);
        }
        let mut frame = vec![0; length];
        template.write(template.sums(), 0, &mut frame);
        frame
    }

    #[test]
    fn a_given_frame_is_not_changed() {
        for mut frame in [udp(77), udp(60), vec![9; 14]] {
            frame.resize(frame.len().max(60), 0);
            let mut template = Template::given(&frame, None, None).expect("a frame");
            let mut got = vec![0; template.given_length()];
            template.write(template.sums(), 0, &mut got);
            assert_eq!(got, frame);
        }
    }

    #[test]
    fn stamping_keeps_checksums_valid() {
        for inner in [udp(77), udp(90), udp(101)] {
            // The UDP packet in IPv4, GRE, an unknown protocol, and UDP without a checksum, at even and odd offsets.
            for (protocol, tunnel) in
                [(4, &[][..]), (47, &[0, 0, 8, 0]), (253, &[1]), (UDP, &[9, 9, 9, 9, 0, 0, 0, 0, 7, 7, 7])]
            {
                let packet = [tunnel, &inner[14..]].concat();
                let mut frame = inner[..34].to_vec();
                frame.extend(&packet);
                frame[16..18].copy_from_slice(&(20 + packet.len() as u16).to_be_bytes());
                (frame[23], frame[24], frame[25]) = (protocol, 0, 0);
                if protocol == UDP {
                    frame[38..40].copy_from_slice(&(packet.len() as u16).to_be_bytes());
                }
                let sum = internet_checksum(&[&frame[14..34]]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
                let mut template = Template::given(&frame, None, None).expect("a frame");
                template.stamp(3);
                let mut got = vec![0; template.given_length()];
                template.write(template.sums(), 5, &mut got);
                assert_eq!(got[..got.len() - 20], frame[..frame.len() - 20], "the rest stays");
                assert_eq!(Stamp::of(&got).map(|stamp| stamp.sequence), Some(5));
                let carried = [&inner[..14], &got[34 + tunnel.len()..]].concat();
                assert!(are_valid(&carried), "{protocol}: {carried:02x?}");
            }
        }
    }

    /// The inner frame is padded, so the stamp does not end where the outer packet ends.
    #[test]
    fn stamps_lie_in_the_innermost_payload() {
        use crate::layers::{LayerKind, checksum_is_right, make_checksums_right, stack};
        use LayerKind::{Ethernet, Ipv4, Mpls, Pppoe, Udp, Vxlan};
        for (outer, inner) in [
            (&[Ethernet, Ipv4, Udp, Vxlan][..], &[Ethernet, Ipv4, Udp][..]),
            (&[Ethernet, Mpls], &[Ethernet, Ipv4, Udp]),
            (&[Ethernet], &[Ethernet, Pppoe, Ipv4, Udp]),
        ] {
            for length in [19, 20, 21, 40] {
                let carried = [stack(inner, &vec![0x5a; length]).expect("a stack"), vec![0; 6]].concat();
                let mut frame = if outer.len() > 1 { stack(outer, &carried).expect("a stack") } else { carried };
                let layers = Layers::of(&frame);
                // Gives the outer datagram a checksum too.
                if let Some(udp) = layers.all().iter().find(|layer| layer.kind == Udp) {
                    frame[udp.start as usize + 6] = 1;
                }
                make_checksums_right(&mut frame, &layers);
                let mut template = Template::given(&frame, None, None).expect("a frame");
                assert_eq!(template.has_room(frame.len()), length >= 20, "{outer:?} {length}");
                if length < 20 {
                    continue;
                }
                template.stamp(3);
                let mut got = vec![0; template.given_length()];
                template.write(template.sums(), 5, &mut got);
                assert_eq!(Stamp::find(&got).map(|(stamp, end)| (stamp.sequence, end)), Some((5, frame.len() - 6)));
                let layers = Layers::of(&got);
                for of in 0..layers.all().len() {
                    assert_ne!(checksum_is_right(&got, &layers, of), Some(false), "{of} of {outer:?} {length}");
                }
                let payload = layers.last().expect("layers").content as usize;
                assert_eq!(got[..payload], frame[..payload], "headers stay");
            }
        }
    }

    #[test]
    fn a_given_frame_can_be_changed_in_all_ways() {
        for (pattern, longest) in
            [(None, None), (Some(&b"xyz!"[..]), None), (None, Some(200)), (Some(&b"q"[..]), Some(200))]
        {
            let mut template = Template::given(&udp(101), pattern, longest).expect("a frame");
            template.stamp(3);
            let site = template.site(Key::Dport).expect("a port");
            template.vary(&site);
            for length in if longest.is_some() { 60..200 } else { 101..102 } {
                let mut frame = vec![0; length];
                let mut sums = template.sums();
                template.set(&site, length as u128, &mut sums);
                template.write(sums, 5, &mut frame);
                assert!(are_valid(&frame), "{pattern:?} {longest:?} {length}");
                assert_eq!(Stamp::of(&frame).map(|stamp| stamp.sequence), Some(5));
                if let Some(pattern) = pattern {
                    assert_eq!(frame[42..].first(), pattern.first().filter(|_| length > 60).or(frame.get(42)));
                }
            }
        }
    }

    #[test]
    fn wrong_checksums_stay_wrong_and_none_stays_none() {
        let mut wrong = udp(80);
        wrong[40] ^= 0x55;
        let mut none = udp(80);
        none[40..42].fill(0);
        for (given, zero) in [(wrong, false), (none, true)] {
            let mut template = Template::given(&given, None, None).expect("a frame");
            let site = template.site(Key::Sport).expect("a port");
            template.fix(&site, 999);
            let mut frame = vec![0; 80];
            template.write(template.sums(), 0, &mut frame);
            assert_eq!(frame[40..42] == [0, 0], zero);
            assert!(!are_valid(&frame));
            assert_eq!(frame[34..36], 999_u16.to_be_bytes());
        }
    }

    #[test]
    fn stacks_have_their_fields_only() {
        let has = |protocol: Protocol, v6, tags, key| {
            Template::made(protocol.headers(v6, tags), &[0], 100).site(key).is_some()
        };
        assert!(has(Protocol::Tcp, false, 0, Key::Flags) && !has(Protocol::Udp, false, 0, Key::Flags));
        assert!(has(Protocol::Udp, true, 0, Key::FlowLabel) && !has(Protocol::Udp, false, 0, Key::FlowLabel));
        assert!(has(Protocol::Udp, false, 1, Key::Vlan) && !has(Protocol::Udp, false, 0, Key::Vlan));
        assert!(has(Protocol::Udp, false, 2, Key::Svlan) && !has(Protocol::Udp, false, 1, Key::Svlan));
        assert!(has(Protocol::Arp, false, 0, Key::Sha) && !has(Protocol::Arp, false, 0, Key::Ttl));
        assert!(has(Protocol::Ethernet, false, 0, Key::EtherType) && !has(Protocol::Ethernet, false, 0, Key::Source));
        assert!(has(Protocol::Ip, false, 0, Key::Proto) && !has(Protocol::Udp, false, 0, Key::Proto));
        assert!(has(Protocol::Icmp, true, 0, Key::EchoSeq) && !has(Protocol::Icmp, true, 0, Key::Sport));
    }

    /// Each field of each layer takes another value in each frame.
    #[test]
    fn prepared_checksums_are_those_of_the_whole_frame() {
        use LayerKind::{
            DestinationOptions, Ethernet, Fragment, Geneve, Gre, Gtpu, Icmp, Icmp6, Ipv4, Ipv6, Mpls, Pppoe, Routing,
            Sctp, Srv6, Tcp, Udp, Vlan, Vxlan,
        };
        let odd = [(5, vec![0xab, 0xcd, 0xef])];
        for (kinds, bytes, are_prepared) in [
            (&[Ethernet, Ipv4, Udp, Vxlan, Ethernet, Ipv4, Tcp][..], &[][..], true),
            (&[Ethernet, Vlan, Ipv6, Udp, Geneve, Ethernet, Ipv4, Udp], &[], true),
            (&[Ethernet, Ipv6, Udp, Gtpu, Ipv6, Icmp6], &[], true),
            (&[Ethernet, Mpls, Mpls, Ipv4, Icmp], &[], true),
            (&[Ethernet, Pppoe, Ipv6, Udp], &[], true),
            (&[Ethernet, Ipv4, Gre, Ipv4, Ipv6, Tcp], &[], true),
            (&[Ethernet, Ipv6, Udp, Vxlan, Ethernet, Ipv4, Udp], &odd, true),
            (&[Ethernet, Ipv6, Fragment, Udp], &[], true),
            // Segments left selects the address that the checksum covers, and a CRC is not a sum.
            (&[Ethernet, Ipv6, Srv6, Ipv6, DestinationOptions, Tcp], &[], false),
            (&[Ethernet, Ipv6, Routing, Udp], &[], false),
            (&[Ethernet, Ipv4, Sctp], &[], false),
        ] {
            for (stamp, length) in [(false, 250), (false, 251), (true, 250), (true, 251)] {
                let mut template = Template::layered(kinds, &[], bytes, &[1, 2, 3], 300).expect("a stack");
                let fields =
                    |kind: &LayerKind| kind.description().fields.iter().filter(|field| field.role == Role::Plain);
                let all = kinds.iter().enumerate().flat_map(|(of, kind)| fields(kind).map(move |field| (of, field)));
                let sites: Vec<Site> = all.filter_map(|(of, field)| template.site_of(of, field)).collect();
                sites.iter().for_each(|site| template.vary(site));
                if stamp {
                    template.stamp(7);
                }
                for i in 0..300_u64 {
                    let value = |k: usize| (u128::from(i) * 7_919 + 1) * (k as u128 + 1) * 0x1_0001_0103_0507;
                    let mut frame = vec![0; length];
                    if i % 3 == 0 {
                        let mut sums = template.sums();
                        sites.iter().enumerate().for_each(|(k, site)| template.set(site, value(k), &mut sums));
                        template.write(sums, i, &mut frame);
                    } else {
                        let mut sums = template.lay(&mut frame);
                        sites.iter().enumerate().for_each(|(k, site)| sums.put(site, value(k), &mut frame));
                        template.seal(sums, i, &mut frame);
                    }
                    let mut right = frame.clone();
                    make_checksums_right(&mut right, &template.layers.as_ref().expect("layers").layers.resized(length));
                    assert_eq!(frame, right, "{kinds:?}, {length} B, frame {i}");
                    assert_eq!(Stamp::of(&frame).map(|stamp| u64::from(stamp.sequence)), stamp.then_some(i));
                }
                let prepared = template
                    .layers
                    .iter()
                    .flat_map(|layered| &layered.prepared)
                    .filter(|(_, prepared)| prepared.is_some())
                    .count();
                assert_eq!(prepared == 1, are_prepared, "{kinds:?}");
            }
        }
    }

    #[test]
    fn a_drawn_payload_keeps_checksums_and_stamps() {
        let mut state = 1_u64;
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state
        };
        for (protocol, v6, stamp) in [Protocol::Udp, Protocol::Tcp, Protocol::Icmp, Protocol::Ip]
            .into_iter()
            .flat_map(|protocol| [false, true].map(|v6| (protocol, v6)))
            .flat_map(|(protocol, v6)| [false, true].map(|stamp| (protocol, v6, stamp)))
        {
            let mut template = Template::made(protocol.headers(v6, 1), &[0], 300);
            if stamp {
                template.stamp(7);
            }
            let mut seen = std::collections::HashSet::new();
            for (sequence, length) in (100..200).enumerate() {
                let mut frame = vec![0; length];
                template.write(template.sums(), sequence as u64, &mut frame);
                let before = frame.clone();
                for _ in 0..2 {
                    // Frames that are patched keep what was drawn before.
                    let sums = template.lay(&mut before.clone());
                    template.seal(sums, sequence as u64, &mut frame);
                    template.draw_payload(&mut frame, &mut draw);
                    assert!(are_valid(&frame), "{protocol:?} v6 {v6} stamp {stamp} {length}");
                }
                assert_eq!(Stamp::of(&frame), Stamp::of(&before));
                assert!(seen.insert(frame[template.least()..template.least() + 16].to_vec()));
            }
        }
    }
}
