//! Records of the killed process: people, whose telephone nobody else has, and notes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ancile::{Engine, Error, RecordVerbs, Records, Session, Verbs};

ancile::record! {
    /// All of it follows from its number and its value.
    pub struct Person {
        pub name: String,
        pub telephone: String,
        pub group: u64,
        pub picture: Option<Vec<u8>>,
        pub number: u64,
        pub value: u64,
    }
    key(name);
    unique_index telephone(telephone);
    hash_index group(group);
    ordered_index value(value, name);
}

ancile::record! {
    /// As a person, but for the telephone: it changes alone in its shard.
    pub struct Note {
        pub title: String,
        pub text: String,
        pub group: u64,
        pub number: u64,
        pub value: u64,
    }
    key(title);
    hash_index group(group);
    ordered_index group_value(group, value);
}

/// Groups of people and notes.
const GROUPS: u64 = 19;

/// The text of a number and a value, of some or of many bytes.
fn text(number: u64, value: u64) -> String {
    let length = [0, 9, 15, 40, 300, 5_000, 40_000][(value % 7) as usize];
    let word = format!("{number:x} {value:x}. ");
    word.chars().cycle().take(length).collect()
}

pub(super) fn name_of(number: u64) -> String {
    format!("Person of number {number}")
}

pub(super) fn person(number: u64, value: u64) -> Person {
    Person {
        name: name_of(number),
        telephone: format!("+44 {value}"),
        group: value % GROUPS,
        picture: (!value.is_multiple_of(3)).then(|| text(number, value).into_bytes()),
        number,
        value,
    }
}

pub(super) fn note(number: u64, value: u64) -> Note {
    Note {
        title: name_of(number),
        text: text(number, value),
        group: value % GROUPS,
        number,
        value,
    }
}

/// The values of all people and notes by their numbers; each must be found in every way.
pub(super) fn read(
    engine: &Engine,
    session: &mut Session,
) -> Result<[BTreeMap<u64, u64>; 2], String> {
    let told = |error: ancile::Error| error.to_string();
    let open = |error: ancile::TableError| error.to_string();
    let people: Records<Person> = engine.open_records("people").map_err(open)?;
    let mut found = [BTreeMap::new(), BTreeMap::new()];
    let mut wrong = Vec::new();
    let mut people = session.records(&people);
    let visit = |one: Person| {
        if one != person(one.number, one.value) || found[0].insert(one.number, one.value).is_some()
        {
            wrong.push(format!("{} is torn, or there twice", one.name));
        }
        ControlFlow::Continue(())
    };
    people.scan(visit).map_err(told)?;
    for (&number, &value) in &found[0] {
        let one = person(number, value);
        let by_name = people.get(&one.name).map_err(told)?;
        let by_telephone = people.find("telephone", &one.telephone).map_err(told)?;
        if by_name.as_ref() != Some(&one) || by_telephone != [one] {
            wrong.push(format!(
                "person {number} is not found by name and telephone"
            ));
        }
    }
    let mut in_groups = 0;
    for group in 0..GROUPS {
        let some = people.find("group", group).map_err(told)?;
        in_groups += some.iter().filter(|one| one.group == group).count();
    }
    if in_groups != found[0].len() || people.count().map_err(told)? != in_groups as u64 {
        wrong.push(format!("{in_groups} people are in groups"));
    }
    if !are_in_order(&mut people, &found[0]).map_err(told)? {
        wrong.push("people are not in the order of their values".to_owned());
    }
    let notes: Records<Note> = engine.open_records("notes").map_err(open)?;
    let mut notes = session.records(&notes);
    let visit = |one: Note| {
        if one != note(one.number, one.value) || found[1].insert(one.number, one.value).is_some() {
            wrong.push(format!("{} is torn, or there twice", one.title));
        }
        ControlFlow::Continue(())
    };
    notes.scan(visit).map_err(told)?;
    let mut in_groups = 0;
    for group in 0..GROUPS {
        for one in notes.find("group", group).map_err(told)? {
            in_groups += usize::from(notes.get(&one.title).map_err(told)? == Some(one));
        }
    }
    let in_order = (0..GROUPS).map(|group| notes.count_range("group_value", group..=group));
    let in_order: u64 = in_order.sum::<Result<u64, _>>().map_err(told)?;
    if in_order != found[1].len() as u64 {
        wrong.push(format!("{in_order} notes are in groups, in order"));
    }
    if in_groups != found[1].len() || notes.count().map_err(told)? != in_groups as u64 {
        wrong.push(format!("{in_groups} notes are in groups"));
    }
    match wrong.first() {
        None => Ok(found),
        Some(first) => Err(first.clone()),
    }
}

/// Whether the ordered index has all people, by their values.
fn are_in_order(
    people: &mut RecordVerbs<'_, Session, Person>,
    found: &BTreeMap<u64, u64>,
) -> Result<bool, Error> {
    let mut by_value = Vec::new();
    people.range("value", .., |one| {
        by_value.push((one.value, one.name));
        ControlFlow::Continue(())
    })?;
    let expected = found.iter();
    let mut expected: Vec<(u64, String)> = expected
        .map(|(&number, &value)| (value, name_of(number)))
        .collect();
    expected.sort_unstable();
    Ok(by_value == expected)
}
