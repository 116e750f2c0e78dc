use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::ops::Range;

/// Asks the kernel for huge pages for memory that is large and read at random (`MADV_HUGEPAGE`, madvise(2)): with small
/// ones most reads of a table of a million entries wait for the page tables too.
///
/// It is advice: a kernel that has none to give, or gives them anyway, changes nothing, and there is nothing to mend
/// here. `netlathe doctor` tells which it is.
pub fn prefer_huge_pages(memory: Range<*const u8>) {
    const PAGE: usize = 4_096;
    let start = memory.start.addr().next_multiple_of(PAGE);
    let end = memory.end.addr() / PAGE * PAGE;
    if start < end {
        let first = memory.start.cast_mut().cast::<libc::c_void>().with_addr(start);
        // SAFETY: the advice changes neither what is in memory nor who may use it, whatever the range is; a range
        // that is not mapped is refused.
        unsafe { libc::madvise(first, end - start, libc::MADV_HUGEPAGE) };
    }
}

/// The system's allocator for a program that has nothing to do without the memory: where it fails, the program says so and
/// ends with status 2, in place of an abort.
#[derive(Debug)]
pub struct OrEnd;

// SAFETY: all is left to the system's allocator; where that fails, nothing is given back.
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        there(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        there(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        there(unsafe { System.realloc(start, layout, size) }, size)
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

#[inline]
fn there(start: *mut u8, size: usize) -> *mut u8 {
    if start.is_null() { end(size) } else { start }
}

#[cold]
fn end(size: usize) -> ! {
    // Nothing may be allocated for the message.
    let mut text = [0; 256];
    let mut rest = &mut text[..];
    // A message that is cut short is still one.
    let _ = writeln!(
        rest,
        "netlathe: out of memory: cannot allocate {size} more bytes: use fewer users, shorter delays, smaller tables \
         or fewer streams, or raise the limit (ulimit -v, the container's, the machine's)"
    );
    let length = 256 - rest.len();
    // SAFETY: `length` bytes of it are written.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), length) };
    // SAFETY: takes a number only; nothing that runs at an orderly end could do so without memory.
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
