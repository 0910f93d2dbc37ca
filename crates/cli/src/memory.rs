//! `oxiray memory`: which process refers to which object, why, how large it is, and where it lies.

use crate::arguments::{GroupBy, MemoryOptions, SortBy, Units};
use crate::table::{Table, width, wrapped};
use crate::visit;
use crate::{say, show};
use anyhow::bail;
use oxiray_ids::ObjectId;
use oxiray_visitor::{Visitor, json};
use oxiray_wire::message::{ClusterQuery, HoldingsQuery, StateQuery};
use oxiray_wire::plain;
use oxiray_wire::state::{Holding, ObjectProcess, ObjectRow, ProcessRole, StateKind, StoreState};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

/// How long the daemon may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The most references that the daemon tells of.
const ROWS_MAX: u32 = 10_000;
const EXPECT: &str = "writing to a string does not fail";

pub(crate) fn run(options: &MemoryOptions) -> anyhow::Result<()> {
    let mut visitor = visit::begin(&visit::find(options.address.as_deref())?)?;
    let state = json::cluster(visitor.ask(ClusterQuery::default(), visit::ANSWER_LIMIT)?)?;
    let store_state = state.store.unwrap_or_default();
    let store = store_line(&store_state, options.units);
    if options.stats_only {
        say(&if options.printing.json { as_json(&store_state, None)? } else { store });
        return Ok(());
    }
    let asked = StateQuery { kind: StateKind::Objects, limit: ROWS_MAX, ..StateQuery::default() };
    let answer = visit::state(&mut visitor, asked.clone(), ANSWER_LIMIT)?;
    let Json::Array(mut rows) = json::answer(&asked, &answer)? else { bail!("the daemon's answer has no rows") };
    let told = answer.tables.as_ref().map_or(&[][..], |tables| &tables.objects);
    let holdings = holdings(&mut visitor, told)?;
    add_places(&mut rows, &holdings, told);
    add_owners(&mut rows, &holdings);
    sort(&mut rows, options.sort_by);
    let left_out = answer.total.saturating_sub(rows.len() as u64);
    if options.printing.json {
        say(&as_json(&store_state, Some((&rows, left_out)))?);
        return Ok(());
    }
    let mut text = grouped(&rows, options);
    if left_out > 0 {
        writeln!(text, "{} of {} references are shown", rows.len(), answer.total).expect(EXPECT);
    }
    if rows.iter().any(|row| row["call_site"] == "disabled") {
        text.push_str(
            "where references are made is not recorded: set RAY_record_ref_creation_sites=1 for the program and its \
             cluster\n",
        );
    }
    say(&wrapped(&format!("{text}\n{store}"), width(options.printing.wide)));
    Ok(())
}

/// What the head knows of the objects of these rows. The head tells of so many objects at most as there are rows at most: of others
/// nothing is asked, which would take the place of these.
fn holdings(visitor: &mut Visitor, told: &[ObjectRow]) -> anyhow::Result<Vec<Holding>> {
    let objects: BTreeSet<ObjectId> = told.iter().map(|row| row.object).collect();
    if objects.is_empty() {
        // All would be told of where none is named.
        return Ok(Vec::new());
    }
    let asked = HoldingsQuery { objects: objects.into_iter().collect(), ..HoldingsQuery::default() };
    Ok(visitor.ask(asked, visit::ANSWER_LIMIT)?.objects)
}

/// With how many references there are beside these.
fn as_json(store: &StoreState, references: Option<(&[Json], u64)>) -> anyhow::Result<String> {
    let mut told = json!({"store": json::value(store)?});
    if let Some((references, left_out)) = references {
        told["references"] = references.into();
        told["left_out"] = left_out.into();
    }
    Ok(serde_json::to_string_pretty(&told)?)
}

/// Where each object lies, by what the daemon knows of its store and what the rows were made of. What is small lies with its
/// owner, and tensors that are kept for an object lie on a device.
fn add_places(rows: &mut [Json], objects: &[Holding], told: &[ObjectRow]) {
    let places: BTreeMap<String, &str> =
        objects.iter().filter_map(|held| Some((held.object.hex(), held.place.as_deref()?))).collect();
    for (row, told) in rows.iter_mut().zip(told) {
        let unstored = if row["object_size"].as_i64() == Some(-1) { "not made yet" } else { "with its process" };
        let stored = row["object_id"].as_str().and_then(|id| places.get(id)).copied();
        let device = Some(told.device.as_str()).filter(|device| !device.is_empty());
        let place = device.or(stored).unwrap_or(unstored);
        row["place"] = place.into();
    }
}

/// Which process made each object. One that the head was not told of is with the process that refers to it, and owned by that.
fn add_owners(rows: &mut [Json], objects: &[Holding]) {
    let owners: BTreeMap<String, String> =
        objects.iter().filter_map(|held| Some((held.object.hex(), in_words(held.owner.as_ref()?)))).collect();
    for row in rows {
        let told = row["object_id"].as_str().and_then(|id| owners.get(id)).cloned();
        let own = || {
            format!(
                "{} {} on {}",
                row["type"].as_str().unwrap_or_default().to_lowercase(),
                row["pid"],
                row["ip"].as_str().unwrap_or_default()
            )
        };
        row["owner"] = told.unwrap_or_else(own).into();
    }
}

fn in_words(owner: &ObjectProcess) -> String {
    let label = owner.label.as_deref().filter(|label| !label.is_empty()).map(|label| format!(" ({label})"));
    let label = label.unwrap_or_default();
    match (owner.role, owner.pid) {
        (ProcessRole::Gone, _) => format!("a process that is gone, {}", owner.id),
        // Processes of two machines may have one number.
        (ProcessRole::Worker, Some(pid)) => format!("worker {pid}{label}, {}", owner.id),
        (ProcessRole::Worker, None) => format!("worker {}{label}", owner.id),
        (ProcessRole::Driver, _) => format!("driver {}", owner.id),
    }
}

fn sort(rows: &mut [Json], by: SortBy) {
    match by {
        SortBy::ObjectSize => rows.sort_by_key(|row| std::cmp::Reverse(row["object_size"].as_i64())),
        SortBy::Pid => rows.sort_by_key(|row| row["pid"].as_u64()),
        SortBy::ReferenceType => rows.sort_by_key(|row| row["reference_type"].to_string()),
    }
}

fn grouped(rows: &[Json], options: &MemoryOptions) -> String {
    let (key, words) = match options.group_by {
        GroupBy::NodeAddress => ("ip", "on"),
        GroupBy::StackTrace => ("call_site", "made at"),
        GroupBy::Owner => ("owner", "to objects of"),
    };
    let mut groups: BTreeMap<&str, Vec<&Json>> = BTreeMap::new();
    for row in rows {
        groups.entry(row[key].as_str().unwrap_or_default()).or_default().push(row);
    }
    let columns = ["object", "size", "reference", "task", "attempt", "place", "type", "pid", "ip", "call_site"];
    let columns: Vec<&str> = columns.into_iter().filter(|name| *name != key).collect();
    let mut text = String::new();
    for (name, rows) in groups {
        let bytes: i64 = rows.iter().filter_map(|row| row["object_size"].as_i64()).filter(|size| *size > 0).sum();
        let total = size(bytes, options.units);
        let noun = if rows.len() == 1 { "reference" } else { "references" };
        writeln!(text, "{} {noun} {words} {}, to {total}: {}", rows.len(), plain(name), by_type(&rows)).expect(EXPECT);
        let shown: Vec<Json> =
            rows.iter().take(options.num_entries.unwrap_or(usize::MAX)).map(|row| cells(row, options.units)).collect();
        let table = || Table::new(&columns, &shown).within(width(options.printing.wide)).draw();
        let drawn = if options.no_format { show::lines(&columns, &shown) } else { table() };
        writeln!(text, "{drawn}").expect(EXPECT);
    }
    text
}

fn by_type(rows: &[&Json]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(row["reference_type"].as_str().unwrap_or_default()).or_default() += 1;
    }
    counts.into_iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

fn cells(row: &Json, units: Units) -> Json {
    json!({
        "object": row["object_id"], "size": size(row["object_size"].as_i64().unwrap_or(-1), units),
        "reference": row["reference_type"], "task": row["task_status"], "attempt": row["attempt_number"],
        "place": row["place"], "type": row["type"], "pid": row["pid"], "ip": row["ip"], "call_site": row["call_site"],
    })
}

fn size(bytes: i64, units: Units) -> String {
    match (bytes, units) {
        (..0, _) => "?".into(),
        (_, Units::B) => format!("{bytes} B"),
        (_, Units::Kb) => format!("{:.3} KB", bytes as f64 / 1e3),
        (_, Units::Mb) => format!("{:.3} MB", bytes as f64 / 1e6),
        (_, Units::Gb) => format!("{:.3} GB", bytes as f64 / 1e9),
    }
}

fn store_line(store: &StoreState, units: Units) -> String {
    let of = |bytes: u64| size(i64::try_from(bytes).unwrap_or(i64::MAX), units);
    let plural = if store.objects == 1 { "" } else { "s" };
    format!(
        "object store of this machine: {} object{plural}, {} of {} in memory, {} on disk",
        store.objects,
        of(store.used),
        of(store.capacity),
        of(store.spilled)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Printing;
    use oxiray_ids::WorkerId;

    #[test]
    fn references_are_grouped_and_placed() {
        let row = |id: &str, size: i64, ip: &str| {
            json!({"object_id": id, "object_size": size, "ip": ip, "reference_type": "LOCAL_REFERENCE", "pid": 7,
                   "task_status": "FINISHED", "attempt_number": 1, "type": "DRIVER", "call_site": "a.py:1"})
        };
        let stored = ObjectId::new([0xbb; 28]);
        let mut rows =
            vec![row("aa", 15, "10.0.0.1"), row(&stored.hex(), 2_000_000, "10.0.0.1"), row("cc", -1, "10.0.0.2")];
        let held = Holding { object: stored, place: Some("on disk".into()), ..Holding::default() };
        add_places(&mut rows, &[held], &vec![ObjectRow::default(); 3]);
        sort(&mut rows, SortBy::ObjectSize);
        let options = |group_by, no_format| MemoryOptions {
            address: None,
            group_by,
            sort_by: SortBy::ObjectSize,
            units: Units::Mb,
            stats_only: false,
            num_entries: Some(1),
            no_format,
            printing: Printing { wide: true, json: false },
        };
        let text = grouped(&rows, &options(GroupBy::NodeAddress, false));
        assert!(text.starts_with("2 references on 10.0.0.1, to 2.000 MB: 2 LOCAL_REFERENCE\nOBJECT"), "{text}");
        assert!(text.contains("\n1 reference on 10.0.0.2,"), "{text}");
        assert!(text.contains("bb  2.000 MB") && text.contains("on disk") && !text.contains("aa "), "{text}");
        assert!(text.contains("not made yet"), "{text}");
        let owner = ObjectProcess {
            role: ProcessRole::Worker,
            pid: Some(71),
            label: Some("load".into()),
            ..ObjectProcess::default()
        };
        let held = Holding { object: stored, owner: Some(owner), ..Holding::default() };
        add_owners(&mut rows, &[held]);
        let text = grouped(&rows, &options(GroupBy::Owner, false));
        assert!(
            text.contains(&format!(
                "1 reference to objects of worker 71 (load), {}, to 2.000 MB: 1 LOCAL_REFERENCE\n",
                WorkerId::default()
            )),
            "{text}"
        );
        assert!(text.contains("1 reference to objects of driver 7 on 10.0.0.1,"), "{text}");
        let on_device = ObjectRow { device: "cuda:0".into(), ..ObjectRow::default() };
        add_places(&mut rows, &[], &[on_device, ObjectRow::default()]);
        assert_eq!((rows[0]["place"].as_str(), rows[1]["place"].as_str()), (Some("cuda:0"), Some("with its process")));
        let text = grouped(&rows, &options(GroupBy::NodeAddress, true));
        assert!(text.contains("bb, 2.000 MB, LOCAL_REFERENCE,"), "{text}");
    }
}
