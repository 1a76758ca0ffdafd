//! `make build` and `make install`: the module has the execute permission that servers require,
//! and its debugging symbols are in a separate file. What a package says when it is removed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::server;

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

#[test]
fn the_removal_of_a_package_warns_while_a_server_needs_the_module() {
    let root = tempfile::tempdir().unwrap();
    let (module, file) =
        (root.path().join("libredis_ratelimit.so"), root.path().join("etc/valkey"));
    fs::copy(server::module(), &module).unwrap();
    fs::create_dir_all(&file).unwrap();
    let file = file.join("valkey.conf");
    let script = include_str!("../../../packaging/in-use.sh");
    let script = script.replace("{module}", "libredis_ratelimit.so");
    let warning = || {
        let mut shell = Command::new("sh");
        let output = shell.arg("-c").arg(&script).env("DPKG_ROOT", root.path()).output();
        let output = output.expect("sh starts");
        assert!(output.status.success() && output.stdout.is_empty(), "the removal goes on");
        String::from_utf8(output.stderr).expect("text")
    };
    let line = format!("loadmodule {}\n", module.display());
    fs::write(&file, format!("# {line}")).unwrap();
    assert_eq!(warning(), "");
    fs::write(&file, &line).unwrap();
    assert!(warning().contains(&format!("stands in: {}", file.display())), "{}", warning());
    fs::remove_file(&file).unwrap();
    let mut running = server::one().start();
    running.remove_module();
    running.edit_config(|lines| lines.push(line));
    running.restart();
    assert!(warning().contains(&format!("process id: {}", running.pid())), "{}", warning());
    running.kill9();
    assert_eq!(warning(), "");
}
