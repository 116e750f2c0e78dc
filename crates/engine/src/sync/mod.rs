//! Synchronisation of sources. Holds frames of several sources back and releases them so that their crests follow each
//! other in a given order, with gaps or offsets (LightShaper §2.1, Fig. 7).
//!
//! A *crest* is a run of frames from one source without a silence of `silence`. The next crests of all sources form a
//! *round*. A round opens when a crest of every source has begun, or when its first crest has waited for `wait`; in
//! that case it proceeds without the missing ones. Within a crest, the gaps between frames stay the same, unless a
//! schedule after it sets them.

mod rounds;
mod spec;

pub(crate) use rounds::Synchroniser;
pub use spec::{How, SourceList, SyncSpec};
