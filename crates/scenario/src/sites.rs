//! Tables of sites: the round-trip time, loss and rate of each pair.
//!
//! A table is CSV. The first line and the first column name the sites. Each cell is about the direction from the site
//! of its row to the site of its column. A line that starts with `#` is a comment.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use units::{BitRate, ParseError, Share, Span, nearest};

/// Maximum number of sites: they are numbered in one byte of their addresses.
pub const MOST_SITES: usize = 200;
/// Maximum delay of one direction.
const LONGEST: Span = Span::from_ms(60_000);
/// Maximum number of problems that an error lists. The others are only counted.
const LISTED: usize = 10;

/// Sites, and the impairments between each pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites {
    /// Names as in the table, in the order of its header.
    pub names: Vec<String>,
    /// `ways[from][to]`; the entry of a site to itself has no meaning.
    pub ways: Vec<Vec<Way>>,
    /// Notes about cells that could have been read differently.
    pub notes: Vec<String>,
}

/// One direction between two sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The delay of each frame.
    pub delay: Span,
    /// The share of frames that are lost.
    pub loss: Share,
    /// The rate, if it is limited.
    pub rate: Option<BitRate>,
}

/// A text, with its name in error messages.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The file's name, or the option.
    pub name: &'a str,
    /// The content of the file, or the value of the option.
    pub text: &'a str,
}

/// A value for all pairs, or a table.
#[derive(Clone, Copy, Debug)]
pub enum ForPairs<'a> {
    /// The same for all pairs.
    Value(Named<'a>),
    /// A table with the same sites.
    Table(Named<'a>),
}

impl Sites {
    /// Reads a table of round-trip times (corner cell empty or `rtt`) or of one-way delays (`one-way`), and the losses
    /// and rates of its pairs. A unit in the corner cell applies to all numbers without one.
    ///
    /// The delay of one direction is half the round-trip time of its cell. If only one of two opposite cells has a
    /// value, it applies to both directions.
    ///
    /// # Errors
    /// One line for each problem, with the file, the line, the column and both sites.
    pub fn read(delays: Named<'_>, loss: Option<ForPairs<'_>>, rate: Option<ForPairs<'_>>) -> Result<Sites, String> {
        let mut problems = Vec::new();
        let table = Table::read(delays, &["rtt", "one-way"], &mut problems);
        let mut sites = Sites { names: table.names.clone(), ways: Vec::new(), notes: Vec::new() };
        if problems.is_empty() {
            let one_way = table.word == Some("one-way");
            let times = table.cells::<Time>(&mut problems);
            sites.notes.extend(asymmetry(&table, &times).filter(|_| !one_way));
            let way = |time: Option<Time>| {
                let time = time.unwrap_or_default().0;
                let delay = if one_way { time } else { Span::from_ps(time.as_ps() / 2) };
                Way { delay, ..Way::default() }
            };
            sites.ways = times.into_iter().map(|row| row.into_iter().map(way).collect()).collect();
        }
        for_pairs(loss, "loss", &sites.names, &mut problems, |from, to, loss: Loss| {
            if let Some(way) = sites.ways.get_mut(from).and_then(|row| row.get_mut(to)) {
                way.loss = loss.0;
            }
        });
        for_pairs(rate, "rate", &sites.names, &mut problems, |from, to, rate: WayRate| {
            if let Some(way) = sites.ways.get_mut(from).and_then(|row| row.get_mut(to)) {
                way.rate = rate.0;
            }
        });
        if problems.is_empty() {
            return Ok(sites);
        }
        let more = problems.len().saturating_sub(LISTED);
        problems.truncate(LISTED);
        if more > 0 {
            problems.push(format!("and {more} more problems"));
        }
        Err(problems.join("\n"))
    }
}

/// The name as a host name: lower-case letters, digits and dashes.
#[must_use]
pub fn host_name(site: &str) -> String {
    let dashed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = site.chars().map(dashed).collect();
    name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// Sets losses or rates from a single value or a table.
fn for_pairs<T: Cell>(
    given: Option<ForPairs<'_>>,
    word: &'static str,
    sites: &[String],
    problems: &mut Vec<String>,
    mut set: impl FnMut(usize, usize, T),
) {
    let mut values = |cells: &dyn Fn(usize, usize) -> Option<T>| {
        for (from, to) in (0..sites.len()).flat_map(|from| (0..sites.len()).map(move |to| (from, to))) {
            if let Some(value) = cells(from, to).filter(|_| from != to) {
                set(from, to, value);
            }
        }
    };
    match given {
        None => {}
        Some(ForPairs::Value(Named { name, text })) => match T::parse(text.trim()) {
            Ok(value) => values(&|_, _| Some(value)),
            Err(error) => problems.push(format!("{name}: {error}")),
        },
        Some(ForPairs::Table(named)) => {
            let before = problems.len();
            let table = Table::read(named, &[word], problems);
            // The problems of the table of delays come first. Without its sites there is nothing to compare with.
            let same = table.order(sites);
            if problems.len() > before || sites.is_empty() {
                return;
            }
            let Some(order) = same else {
                let (has, wanted) = (table.names.join(", "), sites.join(", "));
                problems.push(format!(
                    "{}: its sites are {has}, and those of the round trips are {wanted}: give each table the same sites",
                    named.name
                ));
                return;
            };
            let cells = table.cells::<T>(problems);
            values(&|from, to| cells[order[from]][order[to]]);
        }
    }
}

/// A note if opposite cells differ, since a round trip includes both directions.
fn asymmetry(table: &Table<'_>, times: &[Vec<Option<Time>>]) -> Option<String> {
    let names = &table.names;
    let pairs = (0..names.len()).flat_map(|a| (0..a).map(move |b| (b, a)));
    let differing: Vec<(Span, usize, usize)> = pairs
        .filter_map(|(a, b)| {
            let (there, back) = (times[a][b]?.0, times[b][a]?.0);
            let by = Span::from_ps(there.as_ps().abs_diff(back.as_ps()));
            (by > Span::ZERO).then_some((by, a, b))
        })
        .collect();
    let (_, a, b) = *differing.iter().max()?;
    let (there, back) = (times[a][b]?.0, times[b][a]?.0);
    let mean = Span::from_ps(u64::midpoint(there.as_ps(), back.as_ps()));
    Some(format!(
        "{}: {} of the pairs differ by direction, {} and {} the most ({there} and {back}): a ping takes both ways, so \
         each round trip is the mean ({mean})",
        table.file,
        differing.len(),
        names[a],
        names[b]
    ))
}

/// A table of texts.
struct Table<'a> {
    file: &'a str,
    /// The corner cell's word and unit.
    word: Option<&'static str>,
    unit: String,
    names: Vec<String>,
    /// `rows[from][to]`, in the order of the header.
    rows: Vec<Vec<Field>>,
}

/// The text of a cell, and its position.
#[derive(Clone, Debug, Default)]
struct Field {
    text: String,
    line: usize,
    column: usize,
}

impl<'a> Table<'a> {
    /// Reads names and cells. If there is a problem, the table is incomplete.
    fn read(Named { name: file, text }: Named<'a>, words: &[&'static str], problems: &mut Vec<String>) -> Table<'a> {
        let mut table = Table { file, word: None, unit: String::new(), names: Vec::new(), rows: Vec::new() };
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line))
            .filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
        let Some((number, header)) = lines.next() else {
            problems.push(format!("{file}: it has no lines: write the sites in the first line and the first column"));
            return table;
        };
        let header = fields(header, number);
        table.read_corner(&header[0], words, problems);
        for field in &header[1..] {
            let mut wrong =
                |what: String| problems.push(format!("{file}: line {number}, column {}: {what}", field.column));
            if let Err(why) = check_name(&field.text) {
                wrong(why);
            }
            let host = host_name(&field.text);
            if let Some(other) = table.names.iter().find(|other| host_name(other) == host && !host.is_empty()) {
                wrong(format!("'{}' has the host name of '{other}', {host}: rename one of them", field.text));
            }
            table.names.push(field.text.clone());
        }
        let sites = table.names.len();
        if !(2..=MOST_SITES).contains(&sites) {
            problems
                .push(format!("{file}: line {number}: {sites} sites: write 2 to {MOST_SITES}, separated by commas"));
        }
        if !problems.is_empty() {
            return table;
        }
        let mut rows: HashMap<usize, Vec<Field>> = HashMap::new();
        for (number, line) in lines {
            let mut row = fields(line, number);
            let name = row.remove(0).text;
            let mut wrong = |what: String| problems.push(format!("{file}: line {number}: {what}"));
            let known: Vec<&str> = table.names.iter().map(String::as_str).collect();
            match table.names.iter().position(|site| *site == name) {
                None => {
                    let meant = nearest(&name, &known).map(|near| format!(", perhaps '{near}'")).unwrap_or_default();
                    wrong(format!("'{name}' is not in the first line{meant}: use the same names in both"));
                }
                Some(_) if row.len() != sites => {
                    let cells = row.len();
                    wrong(format!(
                        "'{name}' has {cells} cells for {sites} sites: write one for each, empty for itself"
                    ));
                }
                Some(site) if rows.contains_key(&site) => wrong(format!("'{name}' has a line already: leave one out")),
                Some(site) => drop(rows.insert(site, row)),
            }
        }
        if problems.is_empty() {
            for (site, name) in table.names.iter().enumerate() {
                match rows.remove(&site) {
                    Some(row) => table.rows.push(row),
                    None => problems.push(format!("{file}: '{name}' has no line: write one for each site")),
                }
            }
        }
        table
    }

    fn read_corner(&mut self, corner: &Field, words: &[&'static str], problems: &mut Vec<String>) {
        let mut parts = corner.text.split_whitespace();
        let mut next = parts.next();
        self.word = words.iter().copied().find(|word| next == Some(word));
        if self.word.is_some() {
            next = parts.next();
        }
        self.unit = next.unwrap_or_default().to_owned();
        let is_unit = self.unit.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '%' | '/'));
        if parts.next().is_some() || !is_unit {
            let example = words.first().copied().unwrap_or_default();
            problems.push(format!(
                "{}: line {}, column 1: '{}' does not belong in the corner: leave it empty, or write {} and a unit, \
                 such as '{example} {}'",
                self.file,
                corner.line,
                corner.text,
                words.join(" or "),
                match example {
                    "loss" => "%",
                    "rate" => "Mbps",
                    _ => "ms",
                }
            ));
        }
    }

    /// The values of the cells. If only one of two opposite cells has a value, it applies to both directions.
    fn cells<T: Cell>(&self, problems: &mut Vec<String>) -> Vec<Vec<Option<T>>> {
        let sites = self.names.len();
        let mut values = vec![vec![None; sites]; sites];
        for (from, to) in (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to))) {
            let field = &self.rows[from][to];
            let mut wrong = |what: &dyn fmt::Display| {
                let (a, b) = (&self.names[from], &self.names[to]);
                let (line, column) = (field.line, field.column);
                problems.push(format!("{}: line {line}, column {column} ({a} to {b}): {what}", self.file));
            };
            match (from == to, field.text.as_str()) {
                (true, "") => {}
                (true, other) => wrong(&format!("'{other}' is for a site itself: leave the cell empty")),
                (false, "") if self.rows[to][from].text.is_empty() && from < to => {
                    wrong(&format!("neither it nor the opposite cell has a value: write {}", T::EXAMPLE));
                }
                (false, "") => {}
                (false, text) => match T::parse(&self.with_unit(text)) {
                    Ok(value) => values[from][to] = Some(value),
                    Err(error) => wrong(&error),
                },
            }
        }
        for (from, to) in (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to))) {
            if values[from][to].is_none() {
                values[from][to] = values[to][from];
            }
        }
        values
    }

    fn with_unit(&self, text: &str) -> String {
        let bare = text.chars().all(|c| c.is_ascii_digit() || c == '.');
        if bare { format!("{text}{}", self.unit) } else { text.to_owned() }
    }

    /// The index in this table of each of `sites`, if the table has the same sites.
    fn order(&self, sites: &[String]) -> Option<Vec<usize>> {
        let places = sites.iter().map(|site| self.names.iter().position(|name| name == site));
        places.collect::<Option<Vec<_>>>().filter(|_| self.names.len() == sites.len())
    }
}

/// Splits a line at commas. A cell in double quotes may contain commas; a doubled quote stands for a quote.
fn fields(line: &str, number: usize) -> Vec<Field> {
    let mut texts = vec![String::new()];
    let (mut quoted, mut characters) = (false, line.chars().peekable());
    while let Some(c) = characters.next() {
        let last = texts.len() - 1;
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                texts[last].push('"');
            }
            '"' if quoted || texts[last].trim().is_empty() => quoted = !quoted,
            ',' if !quoted => texts.push(String::new()),
            other => texts[last].push(other),
        }
    }
    let field = |(i, text): (usize, String)| Field { text: text.trim().to_owned(), line: number, column: i + 1 };
    texts.into_iter().enumerate().map(field).collect()
}

fn check_name(name: &str) -> Result<(), String> {
    const HOW: &str = "write letters, digits, spaces, '-', '_', '.', at most 32, with a letter";
    let allowed = |c: char| c.is_ascii_alphanumeric() || " -_.".contains(c);
    if name.is_empty() {
        return Err(format!("a site has no name: {HOW}"));
    }
    let fits = name.len() <= 32 && name.chars().all(allowed) && name.contains(|c: char| c.is_ascii_alphabetic());
    if !fits || host_name(name) == "localhost" {
        return Err(format!("'{name}' is not a site's name: {HOW}"));
    }
    Ok(())
}

/// A value in a cell.
trait Cell: Copy {
    const EXAMPLE: &'static str;
    fn parse(text: &str) -> Result<Self, ParseError>;
}

/// A round-trip time or a delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Time(Span);

impl Cell for Time {
    const EXAMPLE: &'static str = "a time such as 12.5ms";

    fn parse(text: &str) -> Result<Self, ParseError> {
        let time = Span::from_str(text)?;
        if time > LONGEST {
            return Err(ParseError::new(format!("{time} is longer than a minute"), "write at most 60s"));
        }
        Ok(Time(time))
    }
}

#[derive(Clone, Copy, Debug)]
struct Loss(Share);

impl Cell for Loss {
    const EXAMPLE: &'static str = "a share such as 0.5%, or 0%";

    fn parse(text: &str) -> Result<Self, ParseError> {
        Share::from_str(text).map(Loss)
    }
}

#[derive(Clone, Copy, Debug)]
struct WayRate(Option<BitRate>);

impl Cell for WayRate {
    const EXAMPLE: &'static str = "a rate such as 10Mbps, or none";

    fn parse(text: &str) -> Result<Self, ParseError> {
        if text == "none" {
            return Ok(WayRate(None));
        }
        BitRate::from_str(text).map(|rate| WayRate(Some(rate)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Sites, String> {
        Sites::read(Named { name: "rtt.csv", text }, None, None)
    }

    fn us(way: Way) -> u64 {
        way.delay.as_ps() / 1_000_000
    }

    #[test]
    fn a_direction_takes_half_of_its_round_trip() {
        let sites = read("# source\n,Oslo,New York,rome\nOslo,,100ms,30ms\nNew York,100ms,,\nrome,30.5ms,120ms,\n")
            .expect("sites");
        assert_eq!(sites.names, ["Oslo", "New York", "rome"]);
        assert_eq!((us(sites.ways[0][1]), us(sites.ways[1][0])), (50_000, 50_000));
        assert_eq!((us(sites.ways[0][2]), us(sites.ways[2][0])), (15_000, 15_250));
        assert_eq!((us(sites.ways[1][2]), us(sites.ways[2][1])), (60_000, 60_000), "one of two opposite cells");
        assert!(sites.notes[0].contains("1 of the pairs") && sites.notes[0].contains("(30.25ms)"), "{:?}", sites.notes);
    }

    #[test]
    fn the_corner_has_the_unit_and_says_which_time() {
        let sites = read("rtt ms,a,b\na,,12.5\nb,13us,\n").expect("sites");
        assert_eq!((us(sites.ways[0][1]), sites.ways[1][0].delay), (6_250, Span::from_ns(6_500)));
        let sites = read("one-way ms,a,b\na,,12\nb,20,\n").expect("sites");
        assert_eq!((us(sites.ways[0][1]), us(sites.ways[1][0])), (12_000, 20_000));
        assert!(sites.notes.is_empty());
    }

    #[test]
    fn rows_may_stand_in_any_order_and_cells_in_quotes() {
        let sites = read("ms,\"a\",b\nb,1,\n\"a\",,\n").expect("sites");
        assert_eq!(us(sites.ways[0][1]), 500);
        assert_eq!(
            fields("x,\"a, \"\"b\"\"\",", 1).into_iter().map(|f| f.text).collect::<Vec<_>>(),
            ["x", "a, \"b\"", ""]
        );
    }

    #[test]
    fn losses_and_rates_are_for_all_pairs_or_by_a_table() {
        let named = |text| Named { name: "x", text };
        let delays = named("ms,a,b\na,,1\nb,1,\n");
        let loss = Some(ForPairs::Value(named("0.5%")));
        let rate = Some(ForPairs::Table(named("rate Mbps,b,a\nb,,none\na,10,\n")));
        let sites = Sites::read(delays, loss, rate).expect("sites");
        assert_eq!(sites.ways[0][1].loss, Share::from_ppb(5_000_000));
        assert_eq!(sites.ways[0][1].rate, Some(BitRate::from_bps(10_000_000)));
        assert_eq!(sites.ways[1][0].rate, None);
        assert_eq!(sites.ways[0][0], Way::default());
        for (text, why) in [
            ("rate,a,c\na,,1Mbps\nc,1Mbps,\n", "its sites are a, c"),
            ("rate Mbps,a,b\na,,0\nb,1,\n", "line 2, column 3 (a to b): '0Mbps' is not a rate"),
        ] {
            let error = Sites::read(delays, None, Some(ForPairs::Table(named(text)))).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
        let error = Sites::read(delays, Some(ForPairs::Value(named("0.5"))), None).expect_err("no unit");
        assert!(error.starts_with("x: "), "{error}");
    }

    #[test]
    fn errors_name_the_line_and_the_column() {
        for (text, why) in [
            ("", "no lines"),
            ("ms,a\na,\n", "1 sites"),
            ("ms,a,b\na,,12x\nb,1,\n", "line 2, column 3 (a to b): "),
            (",a,b\na,,12\nb,1ms,\n", "line 2, column 3 (a to b): '12'"),
            ("ms,a,b\na,,-1\nb,1,\n", "line 2, column 3"),
            ("ms,a,b\na,0,1\nb,1,\n", "line 2, column 2 (a to a): '0' is for a site itself"),
            (
                "ms,a,b,c\na,,1,2\nb,1,,\nc,2,,\n",
                "line 3, column 4 (b to c): neither it nor the opposite cell has a value",
            ),
            ("ms,a,b\na,,1\n", "'b' has no line"),
            ("ms,a,b\na,,1\nb,1,\na,,1\n", "line 4: 'a' has a line already"),
            ("ms,alpha,b\nalpa,,1\nb,1,\n", "line 2: 'alpa' is not in the first line, perhaps 'alpha'"),
            ("ms,a,b\na,,1,3\nb,1,\n", "line 2: 'a' has 3 cells for 2 sites"),
            (
                "ms,New York,new-york\nNew York,,1\nnew-york,1,\n",
                "column 3: 'new-york' has the host name of 'New York'",
            ),
            ("ms,a,\na,,1\n", "column 3: a site has no name"),
            ("ms,a,7\na,,1\n7,1,\n", "column 3: '7' is not a site's name"),
            ("round trips,a,b\na,,1\nb,1,\n", "line 1, column 1: 'round trips' does not belong"),
            ("rtt 5,a,b\na,,1\nb,1,\n", "line 1, column 1"),
            ("s,a,b\na,,61\nb,1,\n", "longer than a minute"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(why) && error.starts_with("rtt.csv: "), "{text:?}: {error}");
        }
        let many: String = (0..30).fold("x".to_owned(), |row, i| format!("{row},s{i}")) + "\n";
        let error = read(&(many + "q,1\n".repeat(25).as_str())).expect_err("25 lines");
        assert!(error.ends_with("and 15 more problems") && error.lines().count() == 11, "{error}");
    }

    #[test]
    fn names_become_host_names() {
        assert_eq!(["New York", "S. Paulo 2", "rome"].map(host_name), ["new-york", "s-paulo-2", "rome"]);
    }
}
