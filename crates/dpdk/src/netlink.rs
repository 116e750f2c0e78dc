//! Queries about interfaces through rtnetlink(7).

use crate::interface::{Interface, socket};
use crate::{Error, Result};
use std::fs::File;
use std::io::{self, Read, Write};

/// `struct nlmsghdr` and `struct ifinfomsg`, 16 bytes each.
pub(crate) const HEADERS: usize = 32;

/// The kernel's answer to RTM_GETLINK. `what` names the queried property in errors.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::System`].
pub(crate) fn request(interface: &Interface, what: &str) -> Result<Vec<u8>> {
    let netlink = File::from(socket(libc::AF_NETLINK, libc::SOCK_RAW)?);
    match ask_by(netlink, &question(interface.index, None)) {
        Ok(answer) => Ok(answer),
        Err(source) if source.raw_os_error() == Some(libc::ENODEV) => {
            Err(Error::NoInterface { name: interface.name.clone() })
        }
        Err(source) => Err(Error::System { what: format!("querying {what} of {}", interface.name), source }),
    }
}

/// The MTU of a veth's other end, in any network namespace. `None` for other kinds, and if the kernel does not report
/// it (it needs CAP_NET_ADMIN in that namespace).
pub(crate) fn far_mtu(interface: &Interface) -> Option<u32> {
    let answer = request(interface, "the other end").ok()?;
    let all = attributes_in(&answer).ok()?;
    let (_, about) = all.iter().find(|(kind, _)| *kind == libc::IFLA_LINKINFO)?;
    attributes(about).into_iter().find(|(kind, name)| *kind == libc::IFLA_INFO_KIND && name.starts_with(b"veth"))?;
    let far = question(number(&all, libc::IFLA_LINK)?, number(&all, libc::IFLA_LINK_NETNSID));
    let netlink = File::from(socket(libc::AF_NETLINK, libc::SOCK_RAW).ok()?);
    let answer = ask_by(netlink, &far).ok()?;
    number(&attributes_in(&answer).ok()?, libc::IFLA_MTU)
}

fn ask_by(mut netlink: File, question: &[u8]) -> io::Result<Vec<u8>> {
    netlink.write_all(question)?;
    let mut answer = vec![0; 1 << 16];
    let length = netlink.read(&mut answer)?;
    answer.truncate(length);
    attributes_in(&answer)?;
    Ok(answer)
}

/// An RTM_GETLINK request for one interface. `namespace` is the ID of another network namespace, as this namespace
/// numbers it (nsid).
fn question(index: u32, namespace: Option<u32>) -> Vec<u8> {
    const ATTRIBUTE: u16 = 8;
    let length = HEADERS + if namespace.is_some() { usize::from(ATTRIBUTE) } else { 0 };
    let mut question = Vec::with_capacity(length);
    question.extend((length as u32).to_ne_bytes());
    question.extend(libc::RTM_GETLINK.to_ne_bytes());
    question.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    question.extend([0; 12]);
    question.extend(index.to_ne_bytes());
    question.extend([0; 8]);
    if let Some(namespace) = namespace {
        question.extend(ATTRIBUTE.to_ne_bytes());
        question.extend(libc::IFLA_TARGET_NETNSID.to_ne_bytes());
        question.extend(namespace.to_ne_bytes());
    }
    question
}

/// The bodies of all answers to a dump request, such as RTM_GETADDR. `family` AF_UNSPEC means all families. A body
/// begins with the structure of the request's kind, such as `struct ifaddrmsg`.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn dump(kind: u16, family: u8, what: &str) -> Result<Vec<Vec<u8>>> {
    let mut netlink = File::from(socket(libc::AF_NETLINK, libc::SOCK_RAW)?);
    // The longest structure at the start of a request has 16 bytes, and the kernel ignores excess bytes.
    let question = message(kind, libc::NLM_F_REQUEST | libc::NLM_F_DUMP, &[&[family], &[0; 15]]);
    let mut bodies = Vec::new();
    let mut collect = || -> io::Result<()> {
        netlink.write_all(&question)?;
        let mut answer = vec![0; 1 << 16];
        loop {
            let length = netlink.read(&mut answer)?;
            let mut rest = &answer[..length];
            while let Some((kind, body, after)) = first_message(rest) {
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return Err(refusal(body)),
                    _ => bodies.push(body.to_vec()),
                }
                rest = after;
            }
        }
    };
    collect().map_err(|source| Error::System { what: format!("querying {what}"), source })?;
    Ok(bodies)
}

/// The body of the only answer to a request with this body. `None` if the kernel refuses.
pub(crate) fn look_up(kind: u16, body: &[&[u8]]) -> Option<Vec<u8>> {
    let mut netlink = File::from(socket(libc::AF_NETLINK, libc::SOCK_RAW).ok()?);
    netlink.write_all(&message(kind, libc::NLM_F_REQUEST, body)).ok()?;
    let mut answer = vec![0; 1 << 16];
    let length = netlink.read(&mut answer).ok()?;
    let (kind, body, _) = first_message(&answer[..length])?;
    (i32::from(kind) != libc::NLMSG_ERROR).then(|| body.to_vec())
}

/// Sends a request that changes something, and waits for the acknowledgement.
pub(crate) fn acknowledged_request(kind: u16, body: &[&[u8]]) -> io::Result<()> {
    let mut netlink = File::from(socket(libc::AF_NETLINK, libc::SOCK_RAW).map_err(io::Error::other)?);
    netlink.write_all(&message(kind, libc::NLM_F_REQUEST | libc::NLM_F_ACK, body))?;
    let mut answer = vec![0; 1 << 16];
    let length = netlink.read(&mut answer)?;
    match first_message(&answer[..length]) {
        Some((kind, body, _)) if i32::from(kind) == libc::NLMSG_ERROR => {
            let done = body.get(..4).is_some_and(|errno| errno.iter().all(|byte| *byte == 0));
            if done { Ok(()) } else { Err(refusal(body)) }
        }
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn message(kind: u16, flags: i32, body: &[&[u8]]) -> Vec<u8> {
    const HEADER: usize = 16;
    let body = body.concat();
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((flags as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The kind and body of the first message, and the bytes after it.
fn first_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(16..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The error in the body of an NLMSG_ERROR.
fn refusal(body: &[u8]) -> io::Error {
    let errno = body.get(..4).and_then(|errno| errno.try_into().ok()).map_or(libc::EIO, i32::from_ne_bytes);
    io::Error::from_raw_os_error(errno.abs())
}

/// The attributes in an answer.
pub(crate) fn attributes_in(answer: &[u8]) -> io::Result<Vec<(u16, &[u8])>> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes).ok_or_else(short)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        let errno = answer.get(16..20).and_then(|errno| errno.try_into().ok()).map(i32::from_ne_bytes);
        return Err(io::Error::from_raw_os_error(-errno.ok_or_else(short)?));
    }
    Ok(attributes(answer.get(HEADERS..).ok_or_else(short)?))
}

/// The kinds and values of all complete attributes.
pub(crate) fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    /// The mask of the kind, below two flag bits.
    const KIND: u16 = 0x3fff;
    let mut all = Vec::new();
    while let [a, b, c, d, ..] = *bytes {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let Some(value) = bytes.get(4..length) else { break };
        all.push((u16::from_ne_bytes([c, d]) & KIND, value));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

/// The value of the attribute of this kind, as a number.
pub(crate) fn number(attributes: &[(u16, &[u8])], kind: u16) -> Option<u32> {
    let (_, value) = attributes.iter().find(|(found, _)| *found == kind)?;
    Some(u32::from_ne_bytes((*value).try_into().ok()?))
}
