use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::ops::Range;
use std::sync::OnceLock;

/// Requests huge pages for large memory with random access (`MADV_HUGEPAGE`, madvise(2)). With small pages, most reads
/// of a table with a million entries also wait for the page tables.
///
/// The request is only advice. It has no effect if the kernel has no huge pages or already uses them, so there is no
/// error to handle. `netlathe doctor` shows which applies.
pub fn prefer_huge_pages(memory: Range<*const u8>) {
    const PAGE: usize = 4_096;
    let start = memory.start.addr().next_multiple_of(PAGE);
    let end = memory.end.addr() / PAGE * PAGE;
    if start < end {
        let first = memory.start.cast_mut().cast::<libc::c_void>().with_addr(start);
        // SAFETY: the advice changes neither the contents nor the access rights of any range, and the kernel refuses
        // unmapped ranges.
        unsafe { libc::madvise(first, end - start, libc::MADV_HUGEPAGE) };
    }
}

/// The system allocator for a program that cannot continue without memory. If an allocation fails, the program prints
/// an error and exits with status 2 instead of aborting.
#[derive(Debug)]
pub struct AbortOnOutOfMemory;

// SAFETY: the system allocator does all the work, and the process exits if it fails.
unsafe impl GlobalAlloc for AbortOnOutOfMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        there(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        there(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        there(unsafe { System.realloc(start, layout, size) }, size)
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(start, layout) }
    }
}

/// The advice on how to need less memory, from [`name_less_memory`].
static LESS: OnceLock<&str> = OnceLock::new();

/// Sets the advice that [`AbortOnOutOfMemory`] prints on how to need less memory, such as "use fewer users". Only the
/// first call has an effect.
pub fn name_less_memory(remedy: &'static str) {
    let _first = LESS.set(remedy);
}

#[inline]
fn there(start: *mut u8, size: usize) -> *mut u8 {
    if start.is_null() { end(size) } else { start }
}

#[cold]
fn end(size: usize) -> ! {
    // The message must not allocate.
    let mut text = [0; 256];
    let mut rest = &mut text[..];
    // A truncated message is still useful.
    let _ = writeln!(
        rest,
        "netlathe: out of memory: cannot allocate {size} more bytes: {}, or raise the limit (ulimit -v, the \
         container's, the machine's)",
        LESS.get().unwrap_or(&"use fewer users, shorter delays, smaller tables or fewer streams")
    );
    let length = 256 - rest.len();
    // SAFETY: the first `length` bytes of `text` are initialised.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), length) };
    // SAFETY: takes a number only, and skips exit handlers, which could not run without memory.
    unsafe { libc::_exit(2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_changes_no_content() {
        let memory: Vec<u8> = (0..3_000_000).map(|i: u32| i as u8).collect();
        prefer_huge_pages(memory.as_ptr_range());
        prefer_huge_pages(memory[..100].as_ptr_range());
        assert!(memory.iter().enumerate().all(|(i, byte)| *byte == i as u8));
    }
}
