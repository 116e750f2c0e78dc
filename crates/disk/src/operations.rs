//! The operations of a file system that can be counted, delayed and made to fail.

use std::fmt;
use std::str::FromStr;
use units::ParseError;

macro_rules! operations {
    ($($operation:ident $name:literal,)*) => {
        /// What the kernel asks a file system to do. The names are those of the system calls, or of
        /// what the kernel does for them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Operation {
            $(#[doc = $name] $operation,)*
        }

        impl Operation {
            /// All of them, in the order of reports.
            pub const ALL: &'static [Operation] = &[$(Operation::$operation),*];

            /// How it is written.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Operation::$operation => $name,)*
                }
            }
        }
    };
}

operations! {
    Read "read",
    Write "write",
    Fsync "fsync",
    Lookup "lookup",
    Getattr "getattr",
    Setattr "setattr",
    Open "open",
    Create "create",
    Flush "flush",
    Opendir "opendir",
    Readdir "readdir",
    Mkdir "mkdir",
    Mknod "mknod",
    Symlink "symlink",
    Readlink "readlink",
    Link "link",
    Rename "rename",
    Unlink "unlink",
    Rmdir "rmdir",
    Fallocate "fallocate",
    Lseek "lseek",
    Statfs "statfs",
    Getxattr "getxattr",
    Setxattr "setxattr",
    Listxattr "listxattr",
    Removexattr "removexattr",
}

/// Some of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations(u32);

impl Operations {
    /// Whether this one is among them.
    #[must_use]
    pub const fn contains(self, operation: Operation) -> bool {
        self.0 & (1 << operation as u32) != 0
    }

    fn with(self, operation: Operation) -> Self {
        Operations(self.0 | 1 << operation as u32)
    }

    /// These and others.
    pub(crate) const fn and(self, others: Self) -> Self {
        Operations(self.0 | others.0)
    }

    /// What stands before a delay or an error that is of some operations only, and the rest.
    pub(crate) fn before<'a, 'b>(words: &'a [&'b str]) -> (Option<Self>, &'a [&'b str]) {
        let read = words.split_first().and_then(|(first, rest)| Some((first.parse().ok()?, rest)));
        read.map_or((None, words), |(operations, rest)| (Some(operations), rest))
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Operation> {
        Operation::ALL.iter().copied().filter(move |operation| self.contains(*operation))
    }
}

impl Default for Operations {
    /// What moves data, or waits for it to be moved: read, write and fsync.
    fn default() -> Self {
        [Operation::Read, Operation::Write, Operation::Fsync].into_iter().fold(Operations(0), Operations::with)
    }
}

impl FromStr for Operations {
    type Err = ParseError;

    /// Reads `read,write,fsync`, and `all`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut operations = Operations(0);
        for name in text.split(',') {
            if name == "all" {
                return if text == name {
                    Ok(Operation::ALL.iter().copied().fold(operations, Operations::with))
                } else {
                    Err(ParseError::new(format!("'{text}' says all and more"), "write all alone, or names"))
                };
            }
            let Some(operation) = Operation::ALL.iter().copied().find(|operation| operation.name() == name) else {
                let names: Vec<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
                return Err(ParseError::new(
                    format!("'{name}' is no operation"),
                    format!("write some of {}, with commas between them, or all", names.join(", ")),
                ));
            };
            if operations.contains(operation) {
                return Err(ParseError::new(format!("'{name}' is there twice"), "leave one out"));
            }
            operations = operations.with(operation);
        }
        Ok(operations)
    }
}

impl fmt::Display for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.iter().count() == Operation::ALL.len() {
            return f.write_str("all");
        }
        let names: Vec<&str> = self.iter().map(Operation::name).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_read_and_print() {
        assert_eq!(Operations::default().to_string(), "read,write,fsync");
        for text in ["read", "write,lookup", "all", "read,write,fsync"] {
            let operations: Operations = text.parse().expect(text);
            assert_eq!(operations.to_string().parse(), Ok(operations), "{text}");
        }
        let some: Operations = "write,rename".parse().expect("two names");
        assert!(some.contains(Operation::Rename) && !some.contains(Operation::Read));
        assert_eq!(some.iter().count(), 2);
        for text in ["", "read,", "reed", "read,read", "all,read", "read,all", "READ"] {
            let error = text.parse::<Operations>().expect_err(text).to_string();
            assert!(error.contains("write") || error.contains("leave"), "{text}: {error}");
        }
    }
}
