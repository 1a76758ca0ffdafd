//! `make build` and `make install`: the module has the execute permission that servers require,
//! and its debugging symbols are in a separate file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/release").join(name);
    assert!(path.exists(), "no {}: run `make build`", path.display());
    path
}

/// The names of a file's sections with debugging information or symbols.
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
    // The variables of the `make` that runs the tests must not reach this `make`.
    for name in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PREFIX", "DESTDIR", "MODULEDIR"] {
        make.env_remove(name);
    }
    make.status().expect("make runs").success()
}

#[test]
fn debugging_symbols_have_a_file_beside_the_module() {
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
fn make_install_copies_the_built_module_with_execute_permission() {
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
    // A second time, over the first file.
    assert!(install(&[&stage]));
    installed("usr/local/lib/redis/modules");
}
