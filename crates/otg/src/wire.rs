//! The interface between the engine and a port. The command line implements it for Linux interfaces.

use packet::MacAddr;
use std::time::Duration;

/// Sends the frames of one port on a dedicated thread.
pub trait Transmit: Send {
    /// Called once on the sending thread.
    fn begin(&mut self) {}

    /// Called on the sending thread when its flows change. `first` is true if the thread may have a priority above
    /// other threads, because it sleeps most of the time.
    fn set_raised_priority(&mut self, _raised: bool) {}

    /// Sends a frame, given without FCS. False if there is no space in the queue at the moment.
    ///
    /// # Errors
    /// Why the port accepts no frame, for example because the link is down.
    fn send(&mut self, frame: &[u8]) -> Result<bool, String>;
}

/// Receives on one port on a dedicated thread.
pub trait Receive: Send {
    /// Calls `each` for each arrived frame, with its arrival in nanoseconds since the UNIX epoch. Waits at most `wait`
    /// for the first frame.
    ///
    /// # Errors
    /// Why no frame can arrive, for example because the link is down.
    fn receive(&mut self, wait: Duration, each: &mut dyn FnMut(u64, &[u8])) -> Result<(), String>;

    /// Sends an answer to a received frame. Returns false if there is no space in the queue.
    fn answer(&mut self, frame: &[u8]) -> bool;

    /// Number of frames since the start that arrived but were lost before delivery.
    fn lost(&mut self) -> u64;
}

/// The link of one port.
pub trait Link: Send {
    /// Whether the link is up.
    fn is_up(&self) -> bool;

    /// Sets the link up or down.
    ///
    /// # Errors
    /// Why the link cannot be changed.
    fn set(&self, up: bool) -> Result<(), String>;
}

/// An open port.
pub struct OpenPort {
    /// Its name. Configurations use it as `location`.
    pub name: String,
    /// The port in netlathe's syntax, such as `if:eth1`.
    pub text: String,
    /// Its hardware address.
    pub mac: MacAddr,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its line rate in bits per second, if it has one.
    pub line_bps: Option<u64>,
    /// Its sender.
    pub transmit: Box<dyn Transmit>,
    /// Its receiver.
    pub receive: Box<dyn Receive>,
    /// Its link.
    pub link: Box<dyn Link>,
}

impl std::fmt::Debug for OpenPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenPort({}={})", self.name, self.text)
    }
}

/// Two ports connected by an in-memory cable.
#[cfg(test)]
pub(crate) mod cable {
    use super::{Link, OpenPort, Receive, Transmit};
    use crate::meters::now_ns;
    use packet::MacAddr;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
    use std::time::Duration;

    struct End(Sender<(u64, Vec<u8>)>);

    impl Transmit for End {
        fn send(&mut self, frame: &[u8]) -> Result<bool, String> {
            self.0.send((now_ns(), frame.to_vec())).map(|()| true).map_err(|_| "the cable is cut".to_owned())
        }
    }

    struct Other(Receiver<(u64, Vec<u8>)>, Sender<(u64, Vec<u8>)>);

    impl Receive for Other {
        fn receive(&mut self, wait: Duration, each: &mut dyn FnMut(u64, &[u8])) -> Result<(), String> {
            match self.0.recv_timeout(wait) {
                Ok((time, frame)) => {
                    each(time, &frame);
                    self.0.try_iter().for_each(|(time, frame)| each(time, &frame));
                    Ok(())
                }
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(wait);
                    Err("the cable is cut".to_owned())
                }
            }
        }

        fn answer(&mut self, frame: &[u8]) -> bool {
            self.1.send((now_ns(), frame.to_vec())).is_ok()
        }

        fn lost(&mut self) -> u64 {
            0
        }
    }

    struct Up;

    impl Link for Up {
        fn is_up(&self) -> bool {
            true
        }

        fn set(&self, _up: bool) -> Result<(), String> {
            Err("a cable has no link".to_owned())
        }
    }

    /// The ports p1 and p2.
    pub(crate) fn pair() -> Vec<OpenPort> {
        let ((to_first, first), (to_second, second)) = (channel(), channel());
        let port = |n: u8, out: Sender<(u64, Vec<u8>)>, arrived| OpenPort {
            name: format!("p{n}"),
            text: format!("if:cable{n}"),
            mac: MacAddr([2, 0, 0, 0, 1, n]),
            mtu: 1_500,
            line_bps: None,
            transmit: Box::new(End(out.clone())),
            receive: Box::new(Other(arrived, out)),
            link: Box::new(Up),
        };
        vec![port(1, to_second, first), port(2, to_first, second)]
    }
}
