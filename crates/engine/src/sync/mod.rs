//! Synchronisation of sources: frames of several sources are kept back and let go so that their crests come
//! in an order, at gaps or offsets (LightShaper §2.1, Fig. 7).
//!
//! A *crest* is a run of one source's frames with no silence as long as `silence`. The next crests of all
//! sources form a *round*. A round opens when a crest of every source has begun, or when its first one has
//! waited for `wait`: then it goes without those that are missing. Within a crest, the times between frames
//! stay what they were, unless a schedule behind it sets them.

mod rounds;
mod spec;

pub(crate) use rounds::Synchroniser;
pub use spec::{How, SyncSpec};
