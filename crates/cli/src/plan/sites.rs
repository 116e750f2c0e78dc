//! The matrix of a lab of sites, with losses and rates.

use super::files::read_text;
use crate::output::Failure;
use scenario::{ForPairs, Named, Sites};
use std::path::Path;

/// Reads the table of round trips, and the losses and rates of its pairs. `loss` and `rate` are a value for all pairs
/// or the name of a table.
pub(crate) fn read(matrix: &Path, loss: Option<&str>, rate: Option<&str>) -> Result<Sites, Failure> {
    let text = |path: &Path| {
        let how = "check the path, its permissions, and that it is a text file";
        read_text(path).map_err(|cause| Failure::new(format!("cannot read {}: {cause}: {how}", path.display())))
    };
    let delays = text(matrix)?;
    let table = |given: Option<&str>| match given {
        Some(path) if Path::new(path).is_file() => text(Path::new(path)).map(Some),
        _ => Ok(None),
    };
    let (losses, rates) = (table(loss)?, table(rate)?);
    let name = matrix.display().to_string();
    Sites::read(
        Named { name: &name, text: &delays },
        for_pairs(loss, losses.as_deref(), "--loss"),
        for_pairs(rate, rates.as_deref(), "--rate"),
    )
    .map_err(Failure::new)
}

fn for_pairs<'a>(given: Option<&'a str>, table: Option<&'a str>, option: &'a str) -> Option<ForPairs<'a>> {
    let given = given?;
    Some(match table {
        Some(text) => ForPairs::Table(Named { name: given, text }),
        None => ForPairs::Value(Named { name: option, text: given }),
    })
}
