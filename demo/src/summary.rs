//! What comes first: a sentence, nine numbers, and what is to be known of them. It needs no knowledge of the field.

use coalesce_demo::paired::{Interval, Verdict};
use coalesce_demo::table::{Cell, Table, number};

use crate::jobs::Job;
use crate::metric::What;
use crate::place::Place;
use crate::policies::{Policies, Policy};
use crate::results::{Measured, Noise, Section};

/// An interval between 1 / this factor and this factor says: the same.
const SAME: f64 = 1.1;
/// Marks an interval without 0 % in it of which nothing is told, as the baseline differs from itself by as much.
const AS_ITSELF: char = '*';
/// Nobody waits for more than this multiple of the time.
const PATIENCE: f64 = 20.0;
/// The width of a line, where nobody says less.
pub const COLUMNS: usize = 110;

/// Which number of a row.
type Of = fn(&Row<'_>) -> What;

/// A load at a place.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The load.
    pub load: &'static str,
    /// What was measured.
    pub measured: &'a Measured,
}

/// What comes first.
#[derive(Debug)]
pub struct Summary<'a> {
    /// One read at a time; 32 in flight on the host; 32 in flight in a guest. Without those that were not measured.
    pub rows: Vec<Row<'a>>,
    /// Which guest the rows of a guest are about, and what executes its instructions; none: there is no such row.
    pub guest: Option<&'a str>,
    policies: &'a Policies,
    waited: Option<f64>,
    seconds: f64,
}

/// What may be said of a number under a policy.
#[derive(Clone, Debug)]
pub struct Change {
    /// "−64 %", "same" or "cannot tell".
    pub text: String,
    /// "(−66 to −62 %)", or nothing; with [`AS_ITSELF`] behind it if only the control keeps it from being told.
    pub range: String,
    /// Whether more is known than its range.
    pub is_told: bool,
}

impl Change {
    /// The text with its range.
    fn full(&self) -> String {
        format!("{} {}", self.text, self.range).trim_end().to_owned()
    }

    /// The text where there is no room for the range, with the mark of the range.
    pub fn brief(&self) -> String {
        let mark = self.range.ends_with(AS_ITSELF).then_some(AS_ITSELF);
        self.text.chars().chain(mark).collect()
    }
}

impl Row<'_> {
    /// What an interrupt is at this place: in a guest one that its kernel takes.
    pub fn interrupts(&self) -> What {
        if self.measured.place == Place::Native { What::Interrupts } else { What::Taken }
    }

    /// Where: "in a Linux guest".
    pub const fn place(&self) -> &'static str {
        self.measured.place.short()
    }

    /// What is known of a number of the nth policy besides the baseline.
    fn verdict(&self, nth: usize, what: What) -> Option<Verdict> {
        self.measured.compare(what).verdicts.get(nth).copied()
    }

    /// The same, in words.
    pub fn change(&self, nth: usize, what: What) -> Change {
        change(self.verdict(nth, what))
    }

    /// What the table has of it.
    fn numbers(&self) -> [What; 3] {
        [self.interrupts(), What::Cpu, What::Rate(0)]
    }
}

impl<'a> Summary<'a> {
    /// Of these parts. `seconds`: how long each job was measured.
    pub fn new(sections: &[(Place, &'a Section)], policies: &'a Policies, noise: &Noise, seconds: f64) -> Self {
        let found = |load, job, places: &[Place]| {
            let at = |place: &Place| sections.iter().find(|(at, _)| at == place)?.1.job(job);
            places.iter().find_map(at).map(|measured| Row { load, measured })
        };
        let rows = [
            found("one at a time", Job::Depth1, &[Place::Nvme, Place::Guest, Place::Bare, Place::Native]),
            found("32 in flight", Job::Depth32, &[Place::Native]),
            found("32 in flight", Job::Depth32, &[Place::Nvme, Place::Guest, Place::Bare]),
        ];
        let rows: Vec<_> = rows.into_iter().flatten().collect();
        let places: Vec<_> = rows.iter().rev().map(|row: &Row<'_>| row.measured.place).collect();
        let about =
            |place: &Place| sections.iter().find(|(at, _)| at == place).map(|(_, section)| section.about.as_str());
        let guest = places.iter().filter_map(about).find(|about| !about.is_empty());
        Self { rows, guest, policies, waited: noise.waited, seconds }
    }

    /// The columns: the baseline, and the others without further points of the picture; of those, where there are a fixed timer and
    /// a policy that is judged, these alone.
    pub fn columns(&self) -> (&'a Policy, impl Iterator<Item = (usize, &'a Policy)>) {
        let judged = self.policies.judged().filter(|(_, policy)| !policy.is_timer()).map(|(nth, _)| nth);
        let judged = judged.filter(|_| self.policies.others().any(Policy::is_timer));
        let others = self.policies.others().enumerate().filter(move |(nth, policy)| {
            !policy.is_further && judged.is_none_or(|judged| *nth == judged || policy.is_timer())
        });
        (self.policies.baseline(), others)
    }

    /// Reads where something can be saved: those of a guest, if there is one.
    pub fn deep(&self) -> Option<Row<'a>> {
        self.rows.iter().rev().find(|row| row.measured.job == Job::Depth32).copied()
    }

    /// The same, or those of a program on the host if only of them something is told about the nth policy.
    fn decisive(&self, nth: usize) -> Option<Row<'a>> {
        let differs = |row: &Row<'a>, what| row.verdict(nth, what).is_some_and(|verdict| verdict.differs());
        let is_told = |row: &Row<'a>| row.numbers().into_iter().any(|what| differs(row, what));
        let mut deep = self.rows.iter().rev().filter(|row| row.measured.job == Job::Depth32);
        deep.find(|row| is_told(row)).copied().or_else(|| self.deep())
    }

    /// A requester that waits for each of its reads.
    pub fn single(&self) -> Option<Row<'a>> {
        self.rows.iter().find(|row| row.measured.job == Job::Depth1).copied()
    }

    /// All lines but the table.
    pub fn lines(&self) -> Vec<String> {
        [self.sentence()].into_iter().chain(self.notes()).collect()
    }

    /// What is to be known of the numbers.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        [self.as_itself(), self.taken(), self.unlicensed(), self.needs()].into_iter().flatten()
    }

    /// The verdict.
    pub fn sentence(&self) -> String {
        let Some((nth, policy)) = self.policies.judged() else { return "Nothing was compared.".into() };
        let (baseline, label) = (self.baseline(), &policy.label);
        let deep = self.decisive(nth).map(|row| {
            let [interrupts, cpu, reads] = row.numbers().map(|what| row.verdict(nth, what));
            let told = [
                told(interrupts, "takes", "fewer interrupts", "more interrupts"),
                told(cpu, "needs", "less CPU time for each read", "more CPU time for each read"),
                told(reads, "reads", "less per second", "more per second"),
            ];
            let told: Vec<_> = told.into_iter().flatten().collect();
            let who = format!("{} with 32 reads in flight", row.measured.place.who());
            match told.as_slice() {
                [] => format!("it cannot be told yet whether {label} saves anything for {who}"),
                [one] => format!("with {label} {who} {one} than with {baseline}"),
                [others @ .., last] => {
                    format!("with {label} {who} {} and {last} than with {baseline}", others.join(", "))
                }
            }
        });
        let single = self.single().map(|row| {
            let same_place = self.decisive(nth).is_some_and(|deep| deep.measured.place == row.measured.place);
            let who = if same_place { "one" } else { row.measured.place.who() };
            let speed = |nth| told(row.verdict(nth, What::Rate(0)), "reads", "less per second", "more per second");
            let own = match (speed(nth), row.change(nth, What::Rate(0))) {
                (Some(told), _) => told,
                (None, change) if change.is_told => format!("is as fast {}", change.range),
                _ => "may be slower or faster".into(),
            };
            let timer = self.columns().1.find(|(_, policy)| policy.is_timer());
            let timer = timer.and_then(|(nth, _)| speed(nth));
            let timer = timer.map_or_else(String::new, |told| format!(", and with a fixed timer {told}"));
            format!("{who} that waits for each read {own}{timer}")
        });
        let parts: Vec<_> = [deep, single].into_iter().flatten().collect();
        if parts.is_empty() {
            return "The jobs depth1 and depth32, of which there would be a verdict, were not measured.".into();
        }
        let guest = self.guest.map_or_else(String::new, |about| format!(", its guest {about}:"));
        format!("On this machine{guest} {}.", parts.join("; "))
    }

    fn baseline(&self) -> &str {
        match self.policies.baseline().text.as_str() {
            "none" => "an interrupt for each completion",
            other => other,
        }
    }

    /// What the mark is about; none: nothing has it.
    fn as_itself(&self) -> Option<String> {
        let is_marked = |row: &Row<'_>| {
            let mut verdicts = self.columns().1.flat_map(|(nth, _)| row.numbers().map(|what| row.verdict(nth, what)));
            verdicts.any(|verdict| matches!(verdict, Some(Verdict::CannotTell(interval)) if is_as_itself(&interval)))
        };
        let label = &self.policies.baseline().label;
        self.rows
            .iter()
            .any(is_marked)
            .then(|| format!("{AS_ITSELF} In this run {label} differs from itself by as much."))
    }

    /// What a guest takes of the interrupts that are sent to it.
    pub fn taken(&self) -> Option<String> {
        let row = self.deep().filter(|row| row.measured.place != Place::Native)?;
        let (nth, policy) = self.policies.judged()?;
        let of = |variant: usize| [What::Interrupts, What::Taken].map(|what| row.measured.median(variant, what));
        let [[sent, taken], [sent_judged, taken_judged]] = [of(0), of(nth + 2)];
        if !(taken + taken_judged).is_finite() {
            return None;
        }
        let counts = format!(
            "For each read the disk sends {} interrupts under {} and {} under {}; the guest takes {} and {}",
            number(sent),
            self.policies.baseline().label,
            number(sent_judged),
            policy.label,
            number(taken),
            number(taken_judged)
        );
        let merge = taken < 0.95 * sent || taken_judged < 0.95 * sent_judged;
        let why = if merge { ", as one that comes while another is still pending is merged with it" } else { "" };
        Some(format!("{counts}{why}."))
    }

    /// That the judged policy had found nothing where something can be saved; none: it had.
    pub fn unlicensed(&self) -> Option<String> {
        let row = self.deep()?;
        let (_, policy) = self.policies.judged()?;
        let (without, turns) = row.measured.unlicensed(&policy.label)?;
        Some(format!(
            "In {without} of its {turns} turns with 32 reads in flight {} {} had no licence: its trials had not shown, by more than chance, \
             that holding pays, which takes longer beside other programs.",
            row.place(),
            policy.label
        ))
    }

    /// What is needed to tell the rest; none: everything is told.
    pub fn needs(&self) -> Option<String> {
        let factors = self.rows.iter().flat_map(|row| {
            let blocks = row.measured.blocks.len().max(1) as f64;
            let few = row.measured.plan.looks[0] as f64 / blocks;
            let of_column = move |(nth, _)| row.numbers().into_iter().filter_map(move |what| row.verdict(nth, what));
            self.columns().1.flat_map(of_column).filter_map(move |verdict| more(verdict, few))
        });
        let factor = factors.reduce(f64::max)?.max(1.5);
        let time = if factor <= PATIENCE && self.unlicensed().is_none() {
            format!("--seconds {:.0} may, and so may ", (self.seconds * factor / 5.0).ceil() * 5.0)
        } else {
            "the machine needs ".into()
        };
        let waited = self.waited.map_or_else(String::new, |waited| {
            format!(" (client and disk waited for a CPU {:.0} % of the time that they could run)", waited * 100.0)
        });
        Some(format!("Where this cannot tell, {time}fewer other programs{waited}."))
    }

    /// The numbers, for a terminal of this width: with their ranges, if there is room for them.
    fn table(&self, columns: usize) -> Table {
        let (baseline, others) = self.columns();
        let others: Vec<_> = others.collect();
        let heads = [String::new(), baseline.label.clone()];
        let heads = heads.into_iter().chain(others.iter().map(|(_, policy)| policy.title())).collect();
        let mut lines = Vec::new();
        let groups: [(&str, Of); 3] = [
            ("reads per second", |_| What::Rate(0)),
            ("interrupts per read; in a guest those that it takes", |row| row.interrupts()),
            ("CPU time per read, µs", |_| What::Cpu),
        ];
        for (name, of) in groups {
            lines.push(vec![Cell::from(name.to_owned())]);
            for row in &self.rows {
                let what = of(row);
                let mut line = vec![Cell::from(format!("  {}, {}", row.load, row.place()))];
                line.push(number(row.measured.median(0, what)).into());
                line.extend(others.iter().map(|(nth, _)| {
                    let change = row.change(*nth, what);
                    let text = if columns < COLUMNS { change.brief() } else { change.full() };
                    Cell { text, is_grey: !change.is_told }
                }));
                lines.push(line);
            }
        }
        Table { heads, lines }
    }

    /// What a terminal of this width has of it. `styled`: it is one.
    pub fn text(&self, styled: bool, columns: usize) -> String {
        let wrapped = |line: String| wrap(&line, columns.min(COLUMNS));
        let notes = [self.as_itself(), self.unlicensed().or_else(|| self.taken()), self.needs()]; // 25 lines have no room for all
        let notes = notes.into_iter().flatten().map(wrapped);
        let table =
            if self.rows.is_empty() { String::new() } else { format!("\n{}\n", self.table(columns).text(styled)) };
        format!("{}{table}{}", wrapped(self.sentence()), notes.collect::<String>())
    }
}

/// How many times the blocks are needed to tell this. None: it is told.
fn more(verdict: Verdict, few: f64) -> Option<f64> {
    match verdict {
        Verdict::Differs(_) => None,
        Verdict::CannotTell(interval) if interval.is_within(SAME) => None,
        // The width of an interval goes with the square root of the blocks. It is told where 1 is outside, or all is near 1.
        Verdict::CannotTell(Interval { median, low, high }) => {
            let (half, centre) = ((high / low).ln() / 2.0, median.ln().abs());
            Some((half / centre.max(SAME.ln() - centre)).powi(2))
        }
        Verdict::TooFew => Some(few),
    }
}

/// "takes 64 % fewer interrupts"; none: no difference is told.
fn told(verdict: Option<Verdict>, verb: &str, less: &str, more: &str) -> Option<String> {
    let Verdict::Differs(Interval { median, .. }) = verdict? else { return None };
    let percent = (median - 1.0) * 100.0;
    let digits = usize::from(percent.abs() < 9.95);
    Some(format!("{verb} {:.digits$} % {}", percent.abs(), if percent < 0.0 { less } else { more }))
}

/// Whether only the control keeps an interval of which nothing is told from a difference.
fn is_as_itself(interval: &Interval) -> bool {
    !interval.is_within(SAME) && !interval.contains(1.0)
}

fn change(verdict: Option<Verdict>) -> Change {
    let range = |Interval { low, high, .. }: Interval| format!("({} to {} %)", signed(low), signed(high));
    match verdict {
        Some(Verdict::Differs(interval)) => {
            Change { text: format!("{} %", signed(interval.median)), range: range(interval), is_told: true }
        }
        Some(Verdict::CannotTell(interval)) => {
            let is_told = interval.is_within(SAME);
            let mut range = range(interval);
            range.extend(is_as_itself(&interval).then_some(AS_ITSELF));
            Change { text: if is_told { "same" } else { "cannot tell" }.into(), range, is_told }
        }
        Some(Verdict::TooFew) | None => Change { text: "cannot tell".into(), range: String::new(), is_told: false },
    }
}

/// What a ratio adds, in percent.
fn signed(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    let digits = usize::from(percent.abs() < 9.95);
    format!("{percent:+.digits$}").replace('-', "−")
}

/// The text in lines of at most this many characters, broken between words.
fn wrap(text: &str, columns: usize) -> String {
    let (mut wrapped, mut column) = (String::new(), 0);
    // A number stays with its unit.
    for word in text.replace(" %", "\u{a0}%").split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > columns {
            wrapped.push('\n');
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped += word;
        column += length;
    }
    wrapped.replace('\u{a0}', " ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::parse_policies;
    use crate::results::Learned;
    use crate::results::tests::measured;

    fn section(jobs: Vec<Measured>) -> Section {
        Section { jobs, ..Section::default() }
    }

    fn at(place: Place, job: Job, work: &[(u64, u64)]) -> Measured {
        Measured { place, ..measured(job, work) }
    }

    const BASELINE: [(u64, u64); 2] = [(1000, 1000), (1000, 1000)];

    /// A page of `none`, `nvme` and `auto`, natively and in a guest.
    fn page() -> [Section; 2] {
        [Place::Native, Place::Guest].map(|place| {
            let single = [BASELINE.as_slice(), &[(400, 400), (1000, 1000)]].concat();
            let deep = [BASELINE.as_slice(), &[(1500, 250), (1500, 500)]].concat();
            let about = if place == Place::Guest { "Linux 6.1.0 under QEMU (KVM)" } else { "" };
            Section {
                about: about.into(),
                ..section(vec![at(place, Job::Depth1, &single), at(place, Job::Depth32, &deep)])
            }
        })
    }

    fn summary<'a>([native, guest]: &'a [Section; 2], policies: &'a Policies) -> Summary<'a> {
        let sections = [(Place::Native, native), (Place::Guest, guest)];
        let noise = Noise::of(sections.iter().map(|(_, section)| *section));
        Summary::new(&sections, policies, &noise, 9.0)
    }

    #[test]
    fn a_sentence_says_what_was_measured() {
        let (page, policies) = (page(), parse_policies("none,nvme,auto").unwrap());
        let summary = summary(&page, &policies);
        assert_eq!(
            summary.sentence(),
            "On this machine, its guest Linux 6.1.0 under QEMU (KVM): with auto a Linux guest with 32 reads in flight takes 67 % fewer \
             interrupts, needs 67 % less CPU time for each read and reads 50 % more per second than with an interrupt for each completion; one that \
             waits for each read is as fast (+0.0 to +0.0 %), and with a fixed timer reads 60 % less per second."
        );
        assert_eq!(summary.needs(), None);
        let taken = summary.taken().unwrap();
        assert!(
            taken.contains("1.00 interrupts under none and 0.333 under auto; the guest takes 0.500 and 0.167, as"),
            "{taken}"
        );
    }

    #[test]
    fn a_table_has_nine_numbers_and_fits_a_terminal() {
        let (page, policies) = (page(), parse_policies("none,nvme,auto").unwrap());
        let summary = summary(&page, &policies);
        let table = summary.table(COLUMNS);
        assert_eq!((table.heads.join("|"), table.lines.len()), ("|none|fixed timer|auto".into(), 12));
        let reads: Vec<_> =
            table.lines[1..4].iter().map(|line| line.iter().map(|cell| cell.text.as_str()).collect()).collect();
        let reads: Vec<Vec<&str>> = reads;
        assert_eq!(
            reads[0],
            ["  one at a time, in a Linux guest, virtio-blk", "1000", "−60 % (−60 to −60 %)", "same (+0.0 to +0.0 %)"]
        );
        assert_eq!(reads[1][0], "  32 in flight, on the host");
        assert_eq!(reads[2][2], "+50 % (+50 to +50 %)");
        let text = summary.text(false, COLUMNS);
        assert!(text.lines().count() <= 21 && text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        let [native, guest] = page;
        let jobs = guest.jobs.into_iter().map(|job| Measured { place: Place::Nvme, ..job }).collect();
        let sections = [(Place::Native, &native), (Place::Nvme, &section(jobs))];
        let noise = Noise::of(sections.iter().map(|(_, section)| *section));
        let narrow = Summary::new(&sections, &policies, &noise, 9.0).text(false, 80);
        assert!(narrow.lines().count() <= 25 && narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        assert!(narrow.contains(" −60 %  ") && !narrow.contains("(+50"), "{narrow}");
    }

    #[test]
    fn what_cannot_be_told_says_what_it_needs() {
        let mut page = page();
        let policies = parse_policies("none,nvme,auto").unwrap();
        for section in &mut page {
            for job in &mut section.jobs {
                job.blocks.truncate(4);
            }
        }
        let summary = summary(&page, &policies);
        assert_eq!(
            summary.sentence(),
            "On this machine, its guest Linux 6.1.0 under QEMU (KVM): it cannot be told yet whether auto saves anything for a Linux guest with 32 reads in flight; one that waits \
             for each read may be slower or faster."
        );
        let needs = summary.needs().unwrap();
        assert!(
            needs.starts_with("Where this cannot tell, --seconds 35 may, and so may fewer other programs (client"),
            "{needs}"
        );
        let interval = |low, high| Verdict::CannotTell(Interval { median: 1.0, low, high });
        assert_eq!(more(interval(0.95, 1.05), 3.0), None);
        assert!(
            (more(interval(1.0 / 1.21, 1.21), 3.0).unwrap() - 4.0).abs() < 1e-9,
            "twice as wide: four times as long"
        );
        let between = Verdict::CannotTell(Interval {
            median: 1.1f64.sqrt(),
            low: 1.1f64.sqrt() / 1.1,
            high: 1.1f64.sqrt() * 1.1,
        });
        assert!((more(between, 3.0).unwrap() - 4.0).abs() < 1e-9, "neither the same nor different until half as wide");
        assert_eq!(more(Verdict::TooFew, 3.0), Some(3.0));
    }

    #[test]
    fn a_policy_that_had_found_nothing_is_told_of_and_more_seconds_are_not_promised() {
        let mut page = page();
        let policies = parse_policies("none,nvme,auto").unwrap();
        for job in page.iter_mut().flat_map(|section| &mut section.jobs) {
            job.blocks.truncate(4);
            job.learned = vec![Learned { label: "auto".into(), stretches: Vec::new() }];
        }
        let summary = summary(&page, &policies);
        let said = summary.unlicensed().unwrap();
        assert!(
            said.starts_with("In 4 of its 4 turns with 32 reads in flight in a Linux guest, virtio-blk auto had no"),
            "{said}"
        );
        let needs = summary.needs().unwrap();
        assert!(needs.starts_with("Where this cannot tell, the machine needs fewer other programs (client"), "{needs}");
        let text = summary.text(false, COLUMNS);
        assert!(text.contains("had no licence") && text.lines().count() <= 24, "{text}");
    }

    #[test]
    fn an_interval_that_only_the_control_keeps_from_a_verdict_is_marked_and_explained() {
        let mut page = page();
        let policies = parse_policies("none,nvme,auto").unwrap();
        for (nth, block) in page[1].jobs[1].blocks.iter_mut().enumerate() {
            let again = &mut block[1].value;
            again.reads = if nth % 2 == 0 { again.reads * 2 } else { again.reads / 2 };
        }
        let summary = summary(&page, &policies);
        let text = summary.text(false, COLUMNS);
        assert_eq!(text.matches("cannot tell (+50 to +50 %)*").count(), 2, "{text}");
        assert!(text.contains("\n* In this run none differs from itself by as much.\n"), "{text}");
        assert_eq!(summary.deep().unwrap().change(0, What::Rate(0)).brief(), "cannot tell*");
        // One more says where the page is, and a terminal has 25.
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    #[test]
    fn without_a_guest_it_is_about_the_host_and_with_one_policy_about_nothing() {
        let [native, _] = page();
        let policies = parse_policies("none,nvme,auto").unwrap();
        let page = [native, Section::default()];
        let summary_of = summary(&page, &policies);
        assert!(
            summary_of.sentence().contains("a program on the host with 32 reads in flight"),
            "{}",
            summary_of.sentence()
        );
        assert_eq!((summary_of.rows.len(), summary_of.taken(), summary_of.guest), (2, None, None));
        let alone = parse_policies("none").unwrap();
        assert_eq!(summary(&page, &alone).sentence(), "Nothing was compared.");
        let nothing = [Section::default(), Section::default()];
        assert!(summary(&nothing, &policies).sentence().contains("were not measured"));
    }

    #[test]
    fn a_guest_of_which_nothing_is_told_leaves_the_word_to_the_host() {
        let mut page = page();
        page[1].jobs.iter_mut().for_each(|job| job.blocks.truncate(4));
        let policies = parse_policies("none,nvme,auto").unwrap();
        let summary = summary(&page, &policies);
        let sentence = summary.sentence();
        assert!(
            sentence.starts_with(
                "On this machine, its guest Linux 6.1.0 under QEMU (KVM): with auto a program on the host with 32"
            ),
            "{sentence}"
        );
        assert!(sentence.ends_with("; a Linux guest that waits for each read may be slower or faster."), "{sentence}");
        assert!(summary.needs().is_some());
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        assert_eq!(wrap("one two three", 7), "one two\nthree\n");
        assert_eq!(wrap("at 12 %", 6), "at\n12 %\n", "a number stays with its unit");
    }
}
