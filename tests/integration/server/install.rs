//! What `make build` leaves and `make install` copies: a module without debugging symbols, which
//! lie beside it, and with the run bit that servers ask for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/release").join(name);
    assert!(path.exists(), "no {}: run `make build`", path.display());
    path
}

/// The names of a file's sections that are about debugging or symbols.
fn symbols(path: &Path) -> Vec<String> {
    let output = Command::new("readelf").arg("-SW").arg(path).output().expect("readelf runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let names = text.split_whitespace().filter(|word| word.contains("debug") || *word == ".symtab");
    names.map(ToString::to_string).collect()
}

fn install(variables: &[&str]) -> bool {
    let mut make = Command::new("make");
    make.args(["-s", "install"]).args(variables).current_dir(env!("CARGO_MANIFEST_DIR"));
    // Settings of the `make` that runs the tests must not reach this one.
    let ours = ["MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PREFIX", "DESTDIR", "MODULEDIR"];
    ours.iter().for_each(|name| {
        make.env_remove(name);
    });
    make.status().expect("make runs").success()
}

#[test]
fn the_module_has_its_debugging_symbols_apart() {
    let (module, apart) = ("libredis_ratelimit.so", "libredis_ratelimit.so.debug");
    assert_eq!(symbols(&built(module)), [".gnu_debuglink"]);
    let bytes = fs::metadata(built(module)).unwrap().len();
    assert!(bytes < 3_000_000, "{bytes} bytes");
    let apart = symbols(&built(apart));
    for section in [".debug_info", ".debug_line", ".symtab"] {
        assert!(apart.iter().any(|name| name == section), "{section} is not in {apart:?}");
    }
}

#[test]
fn the_installed_module_is_the_one_that_was_built_and_can_be_run() {
    let root = tempfile::tempdir().unwrap();
    let stage = format!("DESTDIR={}", root.path().display());
    let installed = |folder: &str| {
        let path = root.path().join(folder).join("libredis_ratelimit.so");
        let mode = fs::metadata(&path).unwrap_or_else(|e| panic!("{path:?}: {e}")).permissions();
        assert_eq!(mode.mode() & 0o777, 0o755, "{folder}");
        let same = fs::read(&path).unwrap() == fs::read(built("libredis_ratelimit.so")).unwrap();
        assert!(same, "{folder} has another module");
    };
    assert!(install(&[&stage]));
    installed("usr/local/lib/redis/modules");
    assert!(install(&[&stage, "PREFIX=/usr"]));
    installed("usr/lib/redis/modules");
    assert!(install(&[&stage, "MODULEDIR=/usr/lib/valkey/modules"]));
    installed("usr/lib/valkey/modules");
    // Again, over what is there.
    assert!(install(&[&stage]));
    installed("usr/local/lib/redis/modules");
}
