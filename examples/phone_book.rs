//! A phone book: records with texts, found by name, by telephone and in order; closed, and opened again.

use std::ops::ControlFlow;

use ancile::{Engine, Error, Records, Session, Verbs};

ancile::record! {
    struct Person {
        name: String,
        town: String,
        telephone: String,
        born: Option<i64>,
    }
    key(name);
    unique_index telephone(telephone);
    ordered_index town(town, name);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("ancile-phone-book-{}", std::process::id()));
    let settings = || Engine::builder().shards(2).arena_bytes(64 << 20);
    let engine = settings().open(&path)?;
    let book = engine.create_records::<Person>("book")?;
    fill(&mut engine.session()?, &book)?;
    engine.close()?;
    // Whoever opens it next finds everything as it was, indexes included.
    let engine = settings().open(&path)?;
    let book = engine.open_records::<Person>("book")?;
    let mut session = engine.session()?;
    let mut people = session.records(&book);
    let caller = people.find("telephone", "02 2001")?;
    let mut londoners = Vec::new();
    people.prefix("town", "London", |person| {
        londoners.push(person.name);
        ControlFlow::Continue(())
    })?;
    println!("02 2001 is {}; in London: {londoners:?}", caller[0].name);
    assert_eq!(londoners, ["Ada Lovelace", "Mary Somerville"]);
    engine.close()?;
    std::fs::remove_dir_all(&path)?;
    Ok(())
}

fn fill(session: &mut Session, book: &Records<Person>) -> Result<(), Error> {
    let person = |[name, town, telephone]: [&str; 3], born| Person {
        name: name.to_owned(),
        town: town.to_owned(),
        telephone: telephone.to_owned(),
        born,
    };
    let ada = person(["Ada Lovelace", "London", "01 1815"], Some(1815));
    let emmy = person(["Emmy Noether", "Erlangen", "02 2001"], None);
    let mary = person(["Mary Somerville", "Rome", "06 1780"], Some(1780));
    let mut people = session.records(book);
    people.insert_batch(&[ada, emmy, mary])?;
    people.update("Mary Somerville", |mary| mary.town = "London".to_owned())?;
    let twin = person(["Augusta King", "London", "01 1815"], None);
    println!("{}", people.insert(&twin).unwrap_err());
    Ok(())
}
