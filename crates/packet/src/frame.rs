use units::{FrameLen, Span};

/// A frame in memory: from the first byte of the destination address to the last before the FCS.
///
/// The engine moves frames and reads their bytes; whether they live on the heap or in a DPDK
/// buffer is the driver's affair.
pub trait Frame {
    /// The bytes held. Fewer than the frame had, if a capture cut it short.
    fn bytes(&self) -> &[u8];

    /// The bytes held, to be rewritten.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Another frame of the same bytes; `None` when there is no buffer for it.
    fn copy(&self) -> Option<Self>
    where
        Self: Sized;

    /// A number that goes with the frame for whoever follows it. Until it was set it may be any.
    fn tag(&self) -> u32 {
        0
    }

    /// Sets that number.
    fn set_tag(&mut self, _tag: u32) {}

    /// How long the frame had been there when its driver looked: the time that a stage knows of it is that look's.
    /// Zero where the driver cannot tell, and where time is virtual.
    fn waited(&self) -> Span {
        Span::ZERO
    }

    /// From now on it has not waited: a stage gave it a time of its own.
    fn forget_wait(&mut self) {}

    /// A time that the engine keeps with the frame while stages hold it. Until it was set it may be any.
    fn stage_time(&self) -> Span {
        Span::ZERO
    }

    /// Sets that time.
    fn set_stage_time(&mut self, _time: Span) {}

    /// Makes it a whole frame of other bytes. False if there is no room for them; it is then as it was.
    fn replace(&mut self, bytes: &[u8]) -> bool;

    /// Length on the line, FCS included and padded to the minimum, also of what a capture cut off.
    fn length(&self) -> FrameLen {
        FrameLen::of_captured(self.bytes().len() as u32)
    }
}

/// A frame on the heap, as virtual time uses it. One pointer, as a buffer of a driver is: a frame is moved half a dozen
/// times on its way, each time right after some of it was written, and a CPU waits where it reads more at a time than was
/// written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapFrame(Box<Content>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    bytes: Vec<u8>,
    original: u32,
    tag: u32,
    stage_time: Span,
}

impl HeapFrame {
    /// A whole frame.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        let original = bytes.len() as u32;
        HeapFrame(Box::new(Content { bytes, original, tag: 0, stage_time: Span::ZERO }))
    }

    /// Makes the frame `length` bytes long, to be written. Keeps the allocation that it already has.
    pub fn resize(&mut self, length: usize) -> &mut [u8] {
        self.0.bytes.resize(length, 0);
        self.0.original = length as u32;
        &mut self.0.bytes
    }

    /// Takes over the content of a record of a capture; `original` is the frame's length without
    /// FCS before the capture cut it. Keeps the allocation that the frame already has.
    pub fn refill(&mut self, bytes: &[u8], original: u32) {
        self.0.bytes.clear();
        self.0.bytes.extend_from_slice(bytes);
        self.0.original = original.max(bytes.len() as u32);
    }

    /// Leaves out the FCS that a record ends with: what a capture cut is missing at the end, of the FCS first.
    pub fn leave_out_fcs(&mut self, length: u32) {
        self.0.original = self.0.original.saturating_sub(length);
        self.0.bytes.truncate(self.0.original as usize);
    }

    /// Lets `change` change the bytes; what it adds or takes away, the frame had or had not before a
    /// capture cut it, too.
    pub fn edit(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let Content { bytes, original, .. } = &mut *self.0;
        let cut = *original - bytes.len() as u32;
        change(bytes);
        // A record may claim any length.
        *original = (bytes.len() as u32).saturating_add(cut);
    }

    /// Puts zeros where a capture cut it, so that it is as long as it was, and an Ethernet header at least: Linux sends
    /// nothing shorter, and does not say so. True if anything was missing.
    ///
    /// A record may claim any length: beyond 64 KiB, more than any port sends, nothing is added.
    pub fn make_whole(&mut self) -> bool {
        const LONGEST: usize = 1 << 16;
        const ETHERNET: usize = 14;
        let (held, was) = (self.0.bytes.len(), (self.0.original as usize).max(ETHERNET));
        self.0.bytes.resize(was.min(LONGEST).max(held), 0);
        held < was
    }

    /// Length without FCS before a capture cut it.
    #[must_use]
    pub fn original(&self) -> u32 {
        self.0.original
    }
}

impl Frame for HeapFrame {
    fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0.bytes
    }

    fn copy(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn tag(&self) -> u32 {
        self.0.tag
    }

    fn set_tag(&mut self, tag: u32) {
        self.0.tag = tag;
    }

    fn stage_time(&self) -> Span {
        self.0.stage_time
    }

    fn set_stage_time(&mut self, time: Span) {
        self.0.stage_time = time;
    }

    fn replace(&mut self, bytes: &[u8]) -> bool {
        self.refill(bytes, 0);
        true
    }

    fn length(&self) -> FrameLen {
        FrameLen::of_captured(self.0.original)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_before_a_record_of_any_length_does_not_overflow() {
        let mut frame = HeapFrame::default();
        frame.refill(&[0; 60], u32::MAX);
        frame.edit(|bytes| drop(bytes.splice(..0, [0; 14])));
        assert_eq!((frame.bytes().len(), frame.original()), (74, u32::MAX));
    }

    #[test]
    fn truncated_frames_are_padded_to_full_length() {
        let mut frame = HeapFrame::default();
        for (held, original, made) in [
            (60, 60, 60),
            (60, 1_000, 1_000),
            (60, u32::MAX, 1 << 16),
            (70_000, 80_000, 70_000),
            (0, 0, 14),
            (10, 10, 14),
        ] {
            frame.refill(&vec![1; held], original);
            assert_eq!(
                (frame.make_whole(), frame.bytes().len()),
                (held < (original as usize).max(14), made),
                "{original}"
            );
            assert!(frame.bytes()[..held].iter().all(|byte| *byte == 1), "{original}");
            assert!(frame.bytes()[held..].iter().all(|byte| *byte == 0), "{original}");
            assert_eq!(frame.length(), FrameLen::of_captured(original));
        }
    }
}
