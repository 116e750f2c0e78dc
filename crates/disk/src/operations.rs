//! The file system operations that can be counted, delayed and made to fail.

use std::fmt;
use std::str::FromStr;
use units::ParseError;

macro_rules! operations {
    ($($operation:ident $name:literal,)*) => {
        /// An operation of the kernel on a file system, named after the system call or what the kernel does for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Operation {
            $(#[doc = $name] $operation,)*
        }

        impl Operation {
            /// All operations, in the order of reports.
            pub const ALL: &'static [Operation] = &[$(Operation::$operation),*];

            /// The name.
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

/// A set of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations(u32);

impl Operations {
    /// Whether the set contains an operation.
    #[must_use]
    pub const fn contains(self, operation: Operation) -> bool {
        self.0 & (1 << operation as u32) != 0
    }

    fn with(self, operation: Operation) -> Self {
        Operations(self.0 | 1 << operation as u32)
    }

    /// The union of two sets.
    pub(crate) const fn and(self, others: Self) -> Self {
        Operations(self.0 | others.0)
    }

    /// Splits a leading list of operations from the words of a delay or an error.
    pub(crate) fn before<'a, 'b>(words: &'a [&'b str]) -> (Option<Self>, &'a [&'b str]) {
        let read = words.split_first().and_then(|(first, rest)| Some((first.parse().ok()?, rest)));
        read.map_or((None, words), |(operations, rest)| (Some(operations), rest))
    }

    /// The operations of the set.
    pub fn iter(self) -> impl Iterator<Item = Operation> {
        Operation::ALL.iter().copied().filter(move |operation| self.contains(*operation))
    }
}

impl Default for Operations {
    /// Operations that move data or wait for it: read, write and fsync.
    fn default() -> Self {
        [Operation::Read, Operation::Write, Operation::Fsync].into_iter().fold(Operations(0), Operations::with)
    }
}

impl FromStr for Operations {
    type Err = ParseError;

    /// Parses `read,write,fsync`, and `all`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut operations = Operations(0);
        for name in text.split(',') {
            if name == "all" {
                return if text == name {
                    Ok(Operation::ALL.iter().copied().fold(operations, Operations::with))
                } else {
                    Err(ParseError::new(format!("'{text}' combines all with other names"), "write all alone, or names"))
                };
            }
            let Some(operation) = Operation::ALL.iter().copied().find(|operation| operation.name() == name) else {
                let names: Vec<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
                return Err(ParseError::new(
                    format!("'{name}' is not an operation"),
                    format!("write some of {}, with commas between them, or all", names.join(", ")),
                ));
            };
            if operations.contains(operation) {
                return Err(ParseError::new(format!("'{name}' is given twice"), "leave one out"));
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
    fn operations_survive_parsing_and_printing() {
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
