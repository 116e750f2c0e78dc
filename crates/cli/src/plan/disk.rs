use super::files::OnDisk;
use crate::options::disk::Disk;
use crate::output::Failure;
use disk::{Delay, DiskConfig, Fault, Operations};
use std::path::PathBuf;
use units::ParseError;

/// The plan of `disk`.
pub(crate) enum DiskPlan {
    Unmount { mount: PathBuf, quiet: bool },
    Mount { config: Box<DiskConfig>, options: Disk },
}

impl Disk {
    /// Mount, or unmount.
    pub(crate) fn plan(self) -> Result<DiskPlan, Failure> {
        match self.unmount {
            Some(mount) => Ok(DiskPlan::Unmount { mount, quiet: self.quiet }),
            None => Ok(DiskPlan::Mount { config: Box::new(self.config()?), options: self }),
        }
    }

    fn config(&self) -> Result<DiskConfig, Failure> {
        let (Some(backing), Some(mount)) = (self.backing.clone(), self.mount.clone()) else {
            return Err(Failure::new("--backing and --mount are both required: see the examples in --help"));
        };
        let mut config = DiskConfig::new(backing, mount);
        if let Some(words) = &self.delay {
            let read = |text: &str| -> Result<Vec<Delay>, ParseError> {
                let mut delays = Delay::parse_each(text)?;
                delays.iter_mut().try_for_each(|delay| delay.load(&OnDisk))?;
                Ok(delays)
            };
            config.delays = read(&words.join(" ")).map_err(|error| Failure::new(format!("--delay: {error}")))?;
        }
        // Several errors may be given in one value or in several options. Each has a share, and may begin with
        // operations.
        let words: Vec<&str> = self.error.iter().flat_map(|word| word.split_whitespace()).collect();
        let mut words = words.as_slice();
        while let Some(first) = words.first() {
            let many = if first.parse::<Operations>().is_ok() { 3 } else { 2 };
            let (one, rest) = words.split_at(many.min(words.len()));
            let fault = Fault::parse(&one.join(" ")).map_err(|error| Failure::new(format!("--error: {error}")))?;
            config.errors.push(fault);
            words = rest;
        }
        config.rate = self.rate;
        config.operations = self.ops.unwrap_or_default();
        config.cached = self.cached;
        config.allow_suid = self.allow_suid;
        config.seed = self.seed;
        Ok(config)
    }
}
