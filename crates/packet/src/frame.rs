use units::{FrameLen, Span};

/// A frame in memory: from the first byte of the destination address to the last before the FCS.
///
/// The engine moves frames and reads their bytes. Drivers decide whether these are on the heap or in a DPDK buffer.
pub trait Frame {
    /// The bytes in memory: fewer than the frame had if a capture truncated it.
    fn bytes(&self) -> &[u8];

    /// The bytes in memory, mutable.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Copies the frame; `None` if no buffer is free.
    fn copy(&self) -> Option<Self>
    where
        Self: Sized;

    /// A number attached to the frame for its tracer. Undefined until it is set.
    fn tag(&self) -> u32 {
        0
    }

    /// Sets the tag.
    fn set_tag(&mut self, _tag: u32) {}

    /// Time that the frame had waited when its driver polled. Stages see the time of the poll as its arrival. Zero
    /// where the driver cannot know, and in virtual time.
    fn waited(&self) -> Span {
        Span::ZERO
    }

    /// Resets [`waited`](Frame::waited) to zero, after a stage has given the frame a time of its own.
    fn forget_wait(&mut self) {}

    /// A time that the engine keeps with the frame while stages hold it. Undefined until it is set.
    fn stage_time(&self) -> Span {
        Span::ZERO
    }

    /// Sets the stage time.
    fn set_stage_time(&mut self, _time: Span) {}

    /// Replaces the content by another complete frame. Returns false, and changes nothing, if the buffer is too small.
    fn replace(&mut self, bytes: &[u8]) -> bool;

    /// Length on the line with FCS, padded to the minimum. Includes what a capture truncated.
    fn length(&self) -> FrameLen {
        FrameLen::of_captured(self.bytes().len() as u32)
    }
}

/// A frame on the heap, as virtual time uses it. It is one pointer, like a driver's buffer: a frame is moved half a
/// dozen times on its way, often just after a part of it was written, and a CPU stalls on a load that is wider than the
/// recent store.
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
    /// Creates a frame that no capture truncated.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        let original = bytes.len() as u32;
        HeapFrame(Box::new(Content { bytes, original, tag: 0, stage_time: Span::ZERO }))
    }

    /// Resizes the frame to `length` bytes and returns them for writing. Keeps the existing allocation.
    pub fn resize(&mut self, length: usize) -> &mut [u8] {
        self.0.bytes.resize(length, 0);
        self.0.original = length as u32;
        &mut self.0.bytes
    }

    /// Takes the content of a capture record. `original` is the frame's length without FCS before the capture truncated
    /// it. Keeps the existing allocation.
    pub fn refill(&mut self, bytes: &[u8], original: u32) {
        self.0.bytes.clear();
        self.0.bytes.extend_from_slice(bytes);
        self.0.original = original.max(bytes.len() as u32);
    }

    /// Removes an FCS of `length` bytes from the end of a record. A capture truncates the FCS first, so it may be gone.
    pub fn leave_out_fcs(&mut self, length: u32) {
        self.0.original = self.0.original.saturating_sub(length);
        self.0.bytes.truncate(self.0.original as usize);
    }

    /// Edits the bytes with `change`. The original length grows or shrinks by the same amount.
    pub fn edit(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let Content { bytes, original, .. } = &mut *self.0;
        let cut = *original - bytes.len() as u32;
        change(bytes);
        // A record may claim any length.
        *original = (bytes.len() as u32).saturating_add(cut);
    }

    /// Fills in zeros for what a capture truncated. The frame then has its original length, and at least an Ethernet
    /// header: Linux sends nothing shorter, and reports no error. Returns true if anything was missing.
    ///
    /// A record may claim any length: nothing is added beyond 64 KiB, more than any port sends.
    pub fn make_whole(&mut self) -> bool {
        const LONGEST: usize = 1 << 16;
        const ETHERNET: usize = 14;
        let (held, was) = (self.0.bytes.len(), (self.0.original as usize).max(ETHERNET));
        self.0.bytes.resize(was.min(LONGEST).max(held), 0);
        held < was
    }

    /// Length without FCS before a capture truncated the frame.
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
