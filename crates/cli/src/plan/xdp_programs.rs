//! XDP programs of other processes on an interface, which see its frames first.

use crate::output;

/// Warns if an interface has an XDP program. Such a program sees arriving frames before packet sockets do, and the one
/// of af_xdp passes none on.
pub(crate) fn warn_if_any(interface: &str) {
    if let Ok(Some(program)) = dpdk::xdp_program(interface) {
        output::warn(format!(
            "{interface} has an XDP program ({program}): frames that it takes, such as for a netlathe with driver=af_xdp, \
             do not arrive here; if that is another netlathe, start it with if:{interface},driver=af_packet"
        ));
    }
}
