//! The mount table of the kernel.

use crate::Error;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount, from a line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    point: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: String,
}

impl Mount {
    /// Identifies our mounts.
    pub(crate) const SUBTYPE: &'static str = "netlathe";

    pub(crate) fn is_ours(&self) -> bool {
        self.kind.strip_prefix("fuse.") == Some(Self::SUBTYPE)
    }

    /// Parses `… … … … POINT … [OPTIONAL…] - KIND SOURCE …`.
    fn read(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ');
        let point = OsString::from_vec(unescaped(words.nth(4)?)).into();
        let mut words = words.skip_while(|word| *word != b"-").skip(1);
        let mut text = || words.next().map(|word| String::from_utf8_lossy(&unescaped(word)).into_owned());
        Some(Mount { point, kind: text()?, source: text()? })
    }
}

/// The mount at exactly this path; the last one if there are several.
pub(crate) fn at(point: &Path) -> Result<Option<Mount>, Error> {
    let table = std::fs::read("/proc/self/mountinfo").map_err(Error::Mounts)?;
    let mut mounts = table.split(|byte| *byte == b'\n').filter_map(Mount::read);
    Ok(mounts.rfind(|mount| mount.point == point))
}

/// The absolute path of a mount point. Does not access the mount itself, which may not respond.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (path.parent().map(std::fs::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => {
            let whole = parent.join(name);
            // A symbolic link to the mount point is resolved.
            if whole.is_symlink() { std::fs::canonicalize(&whole).unwrap_or(whole) } else { whole }
        }
        _ => std::fs::canonicalize(&path).unwrap_or(path),
    }
}

/// Decodes the octal escapes of blanks, tabs, newlines and backslashes.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match code {
            Some(byte) => {
                text.push(byte);
                rest = &after[3..];
            }
            None => {
                text.push(*first);
                rest = after;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn parses_lines_of_mountinfo() {
        let line =
            br"98 31 0:52 / /mnt/a\040slow\134disk rw,relatime shared:7 - fuse.netlathe /data/a\040b rw,user_id=0";
        let mount = Mount::read(line).expect("a mount");
        assert_eq!(mount.point.as_os_str().as_bytes(), br"/mnt/a slow\disk");
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("fuse.netlathe", "/data/a b"));
        assert!(mount.is_ours());
        let other = Mount::read(b"22 1 8:1 / / rw - ext4 /dev/sda1 rw").expect("a mount");
        assert!(!other.is_ours());
        assert_eq!(Mount::read(b""), None);
    }

    #[test]
    fn finds_the_root_mount() {
        assert!(at(Path::new("/")).expect("it can be read").is_some());
        assert_eq!(at(Path::new("/no/such/directory")).expect("it can be read"), None);
    }

    #[test]
    fn makes_paths_absolute_without_accessing_the_last_component() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().canonicalize().expect("it is there");
        std::os::unix::fs::symlink(&real, folder.path().join("link")).expect("a link");
        assert_eq!(absolute(&folder.path().join("gone")), real.join("gone"));
        assert_eq!(absolute(&folder.path().join("link/gone")), real.join("gone"));
        assert_eq!(absolute(&folder.path().join("link")), real);
        assert_eq!(absolute(Path::new("/")), Path::new("/"));
    }
}
