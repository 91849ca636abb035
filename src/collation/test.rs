//! The encoding against a collation that compares texts, and against the documented examples.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::{GlobalKey, KeyError, Number, Subscript};
use crate::key;
use crate::limits::KEY_BYTES_MAX;

/// Digits before and behind the point that any number here can have.
const WHOLE: usize = 48;
const FRACTION: usize = 64;

/// A number's sign and digits at fixed places, if the text is a canonical number.
fn fixed(text: &[u8]) -> Option<(bool, String)> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if text == "0" {
        return Some((false, "0".repeat(WHOLE + FRACTION)));
    }
    let mut halves = unsigned.splitn(2, '.');
    let whole = halves.next().unwrap_or("");
    let fraction = halves.next();
    let digits = format!("{whole}{}", fraction.unwrap_or(""));
    let significant = digits.trim_start_matches('0').trim_end_matches('0').len();
    let zeros_first = fraction
        .unwrap_or("")
        .bytes()
        .take_while(|&b| b == b'0')
        .count();
    let legal = !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !whole.starts_with('0')
        && fraction.is_none_or(|fraction| !fraction.is_empty() && !fraction.ends_with('0'))
        && significant <= 18
        && whole.len() <= 47
        && (!whole.is_empty() || zeros_first < 43);
    let fraction = fraction.unwrap_or("");
    legal.then(|| (negative, format!("{whole:0>WHOLE$}{fraction:0<FRACTION$}")))
}

/// The order of two subscripts, given as the bytes that a user would write.
fn reference(left: &[u8], right: &[u8]) -> Ordering {
    let class = |bytes: &[u8]| match (bytes.is_empty(), fixed(bytes)) {
        (true, _) => 0,
        (_, Some(_)) => 1,
        (_, None) => 2,
    };
    class(left)
        .cmp(&class(right))
        .then_with(|| match (fixed(left), fixed(right)) {
            (Some((false, left)), Some((false, right))) => left.cmp(&right),
            (Some((true, left)), Some((true, right))) => right.cmp(&left),
            (Some((left, _)), Some((right, _))) => right.cmp(&left),
            _ => left.cmp(right),
        })
}

fn reference_keys(left: &[Vec<u8>], right: &[Vec<u8>]) -> Ordering {
    let mut pairs = left.iter().zip(right);
    let differs = pairs.find_map(|(left, right)| match reference(left, right) {
        Ordering::Equal => None,
        order => Some(order),
    });
    differs.unwrap_or_else(|| left.len().cmp(&right.len()))
}

fn key_of(subscripts: &[Vec<u8>]) -> GlobalKey {
    let subscripts: Vec<_> = subscripts.iter().map(|s| Subscript::from(&s[..])).collect();
    GlobalKey::of("n", &subscripts).unwrap()
}

/// Numbers in canonical form, near misses of them, and bytes that try the escapes.
fn subscript() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => Just(Vec::new()),
        4 => "-?[0-9]{1,3}".prop_map(String::into_bytes),
        4 => r"-?[0-9]{0,2}\.[0-9]{1,3}".prop_map(String::into_bytes),
        2 => r"-?[1-9][0-9]{0,30}0{0,30}".prop_map(String::into_bytes),
        2 => r"-?\.0{0,50}[0-9]{0,20}[1-9]".prop_map(String::into_bytes),
        3 => r"[-+.eE0-9]{1,6}".prop_map(String::into_bytes),
        3 => prop::collection::vec(prop_oneof![Just(0), Just(1), Just(2), Just(0xff), any::<u8>()], 0..5),
        2 => "[a-c]{0,3}".prop_map(String::into_bytes),
    ]
}

fn subscripts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(subscript(), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn order_of_bytes_is_order_of_keys(left in subscripts(), right in subscripts()) {
        let (left_key, right_key) = (key_of(&left), key_of(&right));
        prop_assert_eq!(
            left_key.as_bytes().cmp(right_key.as_bytes()),
            reference_keys(&left, &right),
            "{:?} {:?}", left_key, right_key
        );
    }

    #[test]
    fn decoding_gives_back_what_was_encoded(subscripts in subscripts(), name in "[a-z\u{0}\u{1}é]{1,5}") {
        let given: Vec<_> = subscripts.iter().map(|s| Subscript::from(&s[..])).collect();
        let key = GlobalKey::of(&name, &given).unwrap();
        prop_assert_eq!(&*key.name(), name.as_bytes());
        prop_assert_eq!(key.subscripts().collect::<Vec<_>>(), given);
        let as_given: Vec<_> = key.subscripts().map(|s| s.to_bytes().into_owned()).collect();
        prop_assert_eq!(as_given, subscripts);
        prop_assert_eq!(GlobalKey::from_bytes(key.as_bytes()).unwrap(), key);
    }

    #[test]
    fn a_subtree_holds_the_key_and_what_continues_it(top in subscripts(), other in subscripts()) {
        let (key, other_key) = (key_of(&top), key_of(&other));
        let continues = other.len() >= top.len()
            && reference_keys(&top, &other[..top.len()]) == Ordering::Equal;
        prop_assert_eq!(key.subtree().contains(other_key.as_bytes()), continues);
        let is_below = continues && other.len() > top.len();
        prop_assert_eq!(key.descendants().contains(other_key.as_bytes()), is_below);
        prop_assert_eq!(other_key.as_bytes().starts_with(key.prefix()), continues);
    }

    #[test]
    fn values_compare_as_their_encodings(left in any::<i64>(), right in any::<i64>(), cut in 0_u32..40) {
        let (left, right) = (left >> cut, right >> (cut / 2));
        let (left_number, right_number) = (Number::from(left), Number::from(right));
        prop_assert_eq!(left_number.cmp(&right_number), left.cmp(&right));
        prop_assert_eq!(left_number.to_i64(), Some(left));
        prop_assert_eq!(left_number.to_string(), left.to_string());
        if let (Ok(left_key), Ok(right_key)) = (key!["n", left], key!["n", right]) {
            prop_assert_eq!(left_key.cmp(&right_key), left.cmp(&right));
        }
    }

    #[test]
    fn any_bytes_are_a_key_in_one_way_or_are_refused(mut bytes in prop::collection::vec(
        prop_oneof![Just(0), Just(1), Just(2), Just(0x7f), Just(0x80), Just(0xbf), Just(0x11), Just(0xff), any::<u8>()], 0..12)) {
        bytes.extend_from_slice(&[0, 0]);
        if let Ok(key) = GlobalKey::from_bytes(&bytes) {
            let subscripts: Vec<_> = key.subscripts().collect();
            prop_assert_eq!(GlobalKey::of(key.name(), &subscripts).unwrap(), key);
        }
    }
}

#[test]
fn documented_examples_are_encoded_as_documented() {
    let key = key!["NAME", Number::parse("0.12").unwrap(), 0, "STR", "-34.56"].unwrap();
    let expected = b"NAME\0\xbe\x13\0\x80\0\xffSTR\0\x3f\xca\xa8\xff\0\0";
    assert_eq!(key.as_bytes(), expected);
    let key = key!["NAME", ".12", 0, "STR", "-34.567"].unwrap();
    let expected = b"NAME\0\xbe\x13\0\x80\0\xffSTR\0\x3f\xca\xa8\x8e\xff\0\0";
    assert_eq!(key.as_bytes(), expected);
    let key = key!["A", "Name", 1].unwrap();
    assert_eq!(key.as_bytes(), b"A\0\xffName\0\xbf\x11\0\0");
}

#[test]
fn text_that_looks_like_a_number_is_that_number() {
    assert_eq!(key!["t", "11"], key!["t", 11]);
    assert_eq!(key!["t", "11"], key!["t", b"11"]);
    assert!(key!["t", "2"].unwrap() < key!["t", "11"].unwrap());
    for text in [
        "011",
        "1.0",
        "1E3",
        "+1",
        "-0",
        "0.5",
        "1.",
        ".",
        "-",
        "1234567890123456789",
    ] {
        let key = key!["t", text].unwrap();
        assert!(key > key!["t", 999_999].unwrap(), "{text}");
        assert!(matches!(key.last(), Some(Subscript::Bytes(_))), "{text}");
    }
    let by_hand = GlobalKey::of(
        "t",
        &[
            Subscript::Bytes(b"11"[..].into()),
            Subscript::Bytes([][..].into()),
        ],
    );
    assert_eq!(by_hand, key!["t", 11, ""]);
}

#[test]
fn numbers_are_read_in_any_notation_and_written_in_one() {
    let cases = [
        ("0.50", ".5"),
        ("-0", "0"),
        ("+1.50E3", "1500"),
        ("1e-3", ".001"),
        ("-00012.5", "-12.5"),
        ("1e46", "10000000000000000000000000000000000000000000000"),
        ("100", "100"),
        ("0.0e9", "0"),
    ];
    for (text, canonical) in cases {
        let number = Number::parse(text).unwrap();
        assert_eq!(number.to_string(), canonical);
        assert_eq!(Number::canonical(canonical.as_bytes()), Some(number));
    }
    for text in [
        "",
        ".",
        "e1",
        "1e",
        "--1",
        "1.2.3",
        "1 ",
        "1e99999999999",
        "٣",
    ] {
        assert!(
            matches!(Number::parse(text), Err(KeyError::NotANumber { .. })),
            "{text:?}"
        );
    }
    for text in ["1e47", "-1e47", "1e-44", "1e9999999"] {
        assert!(
            matches!(Number::parse(text), Err(KeyError::Range { .. })),
            "{text:?}"
        );
    }
    assert!(matches!(
        Number::parse("1234567890123456789"),
        Err(KeyError::Digits { .. })
    ));
    assert!(matches!(
        Number::parse(&"9".repeat(99)),
        Err(KeyError::Digits { .. })
    ));
}

#[test]
fn limits_give_errors_and_leave_the_key_as_it_was() {
    let mut key = key!["t", 1].unwrap();
    let before = key.clone();
    let room = KEY_BYTES_MAX - key.as_bytes().len() - 2;
    assert!(matches!(
        key.push(vec![7; room + 1]),
        Err(KeyError::TooLong { .. })
    ));
    assert!(matches!(
        key.push(vec![0; room / 2 + 1]),
        Err(KeyError::TooLong { .. })
    ));
    assert!(matches!(
        key.push(vec![0; 1 << 20]),
        Err(KeyError::TooLong { .. })
    ));
    assert!(matches!(key.push(i64::MAX), Err(KeyError::Digits { .. })));
    assert_eq!(key, before);
    key.push(vec![7; room]).unwrap();
    assert_eq!(key.as_bytes().len(), KEY_BYTES_MAX);
    assert!(matches!(key.push(""), Err(KeyError::TooLong { .. })));
    assert!(key.pop());
    assert_eq!(key, before);
    assert_eq!(key!["", 1], Err(KeyError::Name { bytes: 0 }));
    assert_eq!(key!["n".repeat(256)], Err(KeyError::Name { bytes: 256 }));
    assert!(
        key![
            "t",
            10_i64.pow(18),
            u64::MAX / 5 / 10_u64.pow(15) * 10_u64.pow(15)
        ]
        .is_ok()
    );
}

#[test]
fn parents_and_prefixes_go_component_by_component() {
    let key = key!["t", 1, "a\0", ""].unwrap();
    assert_eq!(format!("{key:?}"), "t(1,\"a\\x00\",\"\")");
    assert_eq!(key.last(), Some(Subscript::Empty));
    let mut parent = key.parent().unwrap();
    assert_eq!(parent, key!["t", 1, "a\0"].unwrap());
    assert_eq!(parent.child("").unwrap(), key);
    assert_eq!(key.prefix_of(0), b"t\0");
    assert_eq!(key.prefix_of(1), b"t\0\xbf\x11\0");
    assert_eq!(key.prefix_of(9), key.prefix());
    assert!(parent.pop() && parent.pop() && !parent.pop());
    assert_eq!((parent.parent(), parent.last()), (None, None));
    assert_eq!(parent, key!["t"].unwrap());
}

#[test]
fn what_is_no_encoding_is_refused_with_its_place() {
    let cases: [(&[u8], usize); 12] = [
        (b"", 0),
        (b"\0\0", 0),
        (b"t\0", 2),
        (b"t\0\0\0", 2),
        (b"t\0\xff\0\0", 2),
        (b"t\0\xff1\0\0", 2),
        (b"t\0\xffa\x01\x03\0\0", 2),
        (b"t\0\xbf\0\0", 2),
        (b"t\0\xbf\x01\0\0", 2),
        (b"t\0\xbf\xbb\0\0", 2),
        (b"t\0\x3f\xca\xa8\0\0", 2),
        (b"t\0\xbf\x11\x01\0\0", 2),
    ];
    for (bytes, place) in cases {
        match GlobalKey::from_bytes(bytes) {
            Err(KeyError::Encoding { at, .. }) => assert_eq!(at, place, "{bytes:?}"),
            other => panic!("{bytes:?}: {other:?}"),
        }
    }
}
