//! The header is what the source says.

use std::path::Path;

/// `ANCILE_WRITE_HEADER=1 cargo test --package ancile-c --test header` writes it anew.
#[test]
fn the_header_that_is_kept_is_made_of_this_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kept = root.join("include/ancile.h");
    let made = header(root);
    assert!(made.contains("ancile_commit("), "{made}");
    if std::env::var_os("ANCILE_WRITE_HEADER").is_some() {
        std::fs::write(&kept, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&kept).unwrap();
    let differs = kept
        .lines()
        .zip(made.lines())
        .find(|(kept, made)| kept != made);
    assert!(
        kept == made,
        "include/ancile.h is of another source: {differs:?}"
    );
}

fn header(root: &Path) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    let order =
        "status handle builder engine session transaction rows batches scan key globals order";
    for file in order.split(' ') {
        builder = builder.with_src(root.join(format!("src/{file}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    without_safety(&String::from_utf8(text).unwrap())
}

/// What Rust wants to be said of each function is said once, at the head.
fn without_safety(header: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut is_safety = false;
    for line in header.lines() {
        is_safety = (is_safety || line == " * # Safety") && line != " */";
        if is_safety {
            continue;
        }
        if line == " */" && lines.last() == Some(&" *") {
            lines.pop();
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}
