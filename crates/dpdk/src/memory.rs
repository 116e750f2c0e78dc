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
